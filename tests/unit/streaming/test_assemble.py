"""The deltas of a stream, put together again."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import MalformedResponse
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.streaming.assemble import Assembler, CallBuffer, parse_arguments


def test_nothing_said_is_no_content() -> None:
    assert Assembler().content() == Assembler().content(cut=True) == ()
    assert Assembler().partial_text == ""
    assert not Assembler().has_tools


def test_pieces_of_one_kind_become_one_part() -> None:
    made = Assembler()
    for piece in ("Hel", "", "lo"):
        made.text(piece)
    assert made.content() == (Text("Hello"),)
    assert made.partial_text == "Hello"


def test_parts_stand_in_the_order_in_which_they_began() -> None:
    made = Assembler()
    made.reasoning("hm")
    made.text("a")
    made.tool(0, id="c1", name="now")
    made.text("b")
    made.tool(0, arguments='{"x":1}')
    made.reasoning("so")
    assert made.content() == (
        Reasoning("hm"),
        Text("a"),
        ToolUse("c1", "now", {"x": 1}),
        Text("b"),
        Reasoning("so"),
    )
    assert made.partial_text == "ab"
    assert made.has_tools


def test_a_whole_part_stands_for_itself() -> None:
    made = Assembler()
    made.text("a")
    made.whole(Text("b", meta={"signed": "x"}))
    made.text("c")
    made.whole(Reasoning("hm", signature="s"))
    made.reasoning("m")
    made.whole(ToolUse("c1", "now", {}))
    assert made.partial_text == "abc"
    assert made.content(cut=True) == (
        Text("a"),
        Text("b", meta={"signed": "x"}),
        Text("c"),
        Reasoning("hm", signature="s"),
        Reasoning("m"),
        ToolUse("c1", "now", {}),
    )


def test_text_that_is_appended_to_the_run_is_text_like_any_other() -> None:
    made = Assembler()
    run = made.run
    run.append("a")
    made.text("b")
    assert made.partial_text == "ab"
    run.append("c")
    made.reasoning("hm")
    run.append("d")
    assert made.content() == (Text("abc"), Reasoning("hm"), Text("d"))


@pytest.mark.parametrize(
    ("pieces", "broken"),
    [
        ([], True),
        (["", " "], True),
        (['{"a"', ":1"], True),
        (["[1]"], True),
        (["{", "}"], False),
        (['{"a":', "1}"], False),
    ],
)
def test_a_call_is_broken_until_its_arguments_are_there(pieces: list[str], broken: bool) -> None:
    call = CallBuffer(0, "c1", "now")
    call.pieces += pieces
    assert call.broken is broken


def test_the_signature_of_a_thought_is_kept_wherever_it_comes() -> None:
    made = Assembler()
    made.reasoning("hm", signature="first")
    made.reasoning("m")
    assert made.content() == (Reasoning("hmm", signature="first"),)
    made.reasoning(signature="second")
    assert made.content() == (Reasoning("hmm", signature="second"),)


def test_parallel_calls_are_told_apart_by_their_index() -> None:
    made = Assembler()
    made.tool(1, id="c2", name="b", arguments='{"n"')
    made.tool(0, id="c1", name="a", arguments="{}")
    made.tool(1, id="ignored", name="ignored", arguments=": 2}")
    assert made.content() == (ToolUse("c2", "b", {"n": 2}), ToolUse("c1", "a", {}))


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_arguments_at_all_are_an_empty_object(text: str) -> None:
    assert parse_arguments(text, tool="now") == {}


@pytest.mark.parametrize(
    ("text", "reason"), [('{"a":', "not JSON"), ("[1]", "not an object"), ("null", "not an object")]
)
def test_arguments_that_are_no_object_are_malformed(text: str, reason: str) -> None:
    made = Assembler()
    made.tool(0, id="c1", name="now", arguments=text)
    with pytest.raises(MalformedResponse, match=f"arguments of the call to 'now' are {reason}"):
        made.content()


def test_arguments_nested_beyond_measure_are_malformed() -> None:
    with pytest.raises(MalformedResponse):
        parse_arguments('{"a":' + "[" * 100_000, tool="now")


def test_a_long_broken_argument_does_not_flood_the_message() -> None:
    with pytest.raises(MalformedResponse) as caught:
        parse_arguments("{" + "x" * 100_000, tool="now")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("arguments", ["", '{"city": "Os'])
def test_a_call_that_the_token_limit_broke_off_is_left_out(arguments: str) -> None:
    made = Assembler()
    made.text("Let me see.")
    made.tool(0, id="c1", name="a", arguments="{}")
    made.tool(1, id="c2", name="b", arguments=arguments)
    assert made.content(cut=True) == (Text("Let me see."), ToolUse("c1", "a", {}))


def test_a_whole_call_or_text_at_the_limit_is_kept() -> None:
    made = Assembler()
    made.tool(0, id="c1", name="a", arguments='{"x":1}')
    assert made.content(cut=True) == (ToolUse("c1", "a", {"x": 1}),)
    made.text("and")
    assert made.content(cut=True) == (ToolUse("c1", "a", {"x": 1}), Text("and"))


def test_a_broken_call_before_the_end_is_malformed_even_at_the_limit() -> None:
    made = Assembler()
    made.tool(0, id="c1", name="a", arguments="{")
    made.text("and")
    with pytest.raises(MalformedResponse):
        made.content(cut=True)


objects = st.dictionaries(st.text(), st.integers(0, 9) | st.text(), max_size=4)


@given(objects, st.lists(st.integers(0, 200), max_size=6))
def test_arguments_may_be_cut_anywhere(value: dict[str, Any], cuts: list[int]) -> None:
    text = msgspec.json.encode(value).decode()
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    made = Assembler()
    made.tool(0, id="c1", name="a")
    for start, end in pairwise(places):
        made.tool(0, arguments=text[start:end])
    assert made.content() == (ToolUse("c1", "a", value),)


@given(st.text())
def test_any_text_as_arguments_is_an_object_or_malformed(text: str) -> None:
    try:
        parsed: object = parse_arguments(text, tool="a")
    except MalformedResponse:
        return
    assert isinstance(parsed, dict)
