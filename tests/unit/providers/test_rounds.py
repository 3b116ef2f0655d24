"""Several calls that are one answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.events import Chunk, ToolEnded, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Content, MCPCall, Reasoning, Text, ToolUse
from penstock.providers.wire.multi_call import PAUSE_MARK, after, endless, joined, without

CALL = ToolUse("c1", "f", {})
SIGNED = {"wire/signature": "s"}
PAUSED = {f"wire{PAUSE_MARK}": "t"}
FIRST = Reply((Text("One, "),), "m-1", "pause", Usage(10, 2, cached_input_tokens=4), "r1", "paused")
LAST = Reply((Text("two."),), "m-2", "endTurn", Usage(12, 3, reasoning_tokens=1), "r2", "completed")


def test_one_call_is_the_whole_answer() -> None:
    assert joined(None, LAST) is LAST


def test_two_calls_are_one_answer_that_ends_as_the_last_did() -> None:
    assert joined(FIRST, LAST) == Reply(
        (Text("One, two."),),
        "m-2",
        "endTurn",
        Usage(22, 5, cached_input_tokens=4, reasoning_tokens=1),
        "r2",
        "completed",
        api_calls=2,
    )


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ((), (Text("a"),), (Text("a"),)),
        ((Text("a"),), (), (Text("a"),)),
        ((Text("a"),), (Text("b"), CALL), (Text("ab"), CALL)),
        ((Text("a"), CALL), (Text("b"),), (Text("a"), CALL, Text("b"))),
        ((Text("a", meta=SIGNED),), (Text("b"),), (Text("a", meta=SIGNED), Text("b"))),
        ((Text("a"),), (Text("b", meta=SIGNED),), (Text("a"), Text("b", meta=SIGNED))),
        ((Text("a", meta=SIGNED),), (Text("b", meta=SIGNED),), (Text("ab", meta=SIGNED),)),
        ((Text("a", meta=PAUSED),), (Text("b"),), (Text("ab"),)),
        ((Text("a", meta=PAUSED),), (Text("b", meta=PAUSED),), (Text("ab", meta=PAUSED),)),
        (
            (Text("a", meta=SIGNED | PAUSED),),
            (Text("b"),),
            (Text("a", meta=SIGNED), Text("b")),
        ),
        ((ToolUse("c1", "f", {}, meta=PAUSED),), (CALL,), (CALL, CALL)),
        ((Text("a", meta=PAUSED),), (), (Text("a", meta=PAUSED),)),
        (
            (Reasoning("x", signature="s"),),
            (Reasoning("y"), Text("b")),
            (Reasoning("x", signature="s"), Reasoning("y"), Text("b")),
        ),
    ],
)
def test_only_text_runs_on(
    first: tuple[Content, ...], second: tuple[Content, ...], both: tuple[Content, ...]
) -> None:
    reply = joined(Reply(first, "m", "pause", Usage()), Reply(second, "m", "endTurn", Usage()))
    assert reply.content == both


def test_what_nobody_counted_stays_unknown() -> None:
    silent = Reply((), "m", "endTurn", Usage())
    assert joined(silent, silent).usage == Usage()
    assert joined(FIRST, silent).usage == FIRST.usage


def test_a_refused_call_is_counted_and_its_option_noted() -> None:
    refused = without("temperature", None)
    assert (refused.content, refused.stop_reason) == ((), "")
    assert (refused.dropped_options, refused.api_calls) == (("temperature",), 1)
    both = without("tools", refused)
    assert (both.dropped_options, both.api_calls) == (("temperature", "tools"), 2)
    reply = joined(both, LAST)
    assert (reply.text, reply.stop_reason, reply.usage) == ("two.", "endTurn", LAST.usage)
    assert (reply.dropped_options, reply.api_calls) == (("temperature", "tools"), 3)


def test_a_refusal_in_a_later_round_keeps_what_was_said() -> None:
    reply = joined(without("temperature", FIRST), LAST)
    assert (reply.text, reply.api_calls) == ("One, two.", 3)


def test_the_calls_of_a_later_round_are_numbered_on() -> None:
    earlier = Reply((ToolUse("a", "f", {}), Text("x")), "m", "pause", Usage())
    events = [Chunk("y"), ToolUseDelta(0, "b", "g")]
    assert after(earlier, events) == [Chunk("y"), ToolUseDelta(1, "b", "g")]
    assert after(None, events) is events


def test_a_call_of_one_round_is_answered_in_the_next() -> None:
    asked = MCPCall("m1", "docs", "search", {"q": 1}, meta={"state": "pending", "kept": 1})
    answer = MCPCall("m1", "", "", {}, (Text("4 °C"),), True, meta={"state": "answered"})
    stray = MCPCall("m2", "", "", {})
    first = Reply((Text("a"), asked), "m", "pause", Usage())
    second = Reply((answer, stray, Text("b")), "m", "endTurn", Usage())
    meta = {"state": "answered", "kept": 1}
    whole = MCPCall("m1", "docs", "search", {"q": 1}, (Text("4 °C"),), True, meta=meta)
    assert joined(first, second).content == (Text("a"), whole, stray, Text("b"))
    events = [ToolEnded("m1", "", True), ToolEnded("m2", ""), ToolEnded("m3", "open")]
    named = [ToolEnded("m1", "search", True), ToolEnded("m2", ""), ToolEnded("m3", "open")]
    assert after(first, events) == named


def test_an_answer_without_an_end_is_nobodys_to_repeat() -> None:
    error = endless(provider="p", model="m")
    assert (error.provider, error.model, error.retryable) == ("p", "m", False)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8))
def test_nothing_is_lost_over_many_rounds(texts: list[str]) -> None:
    reply: Reply | None = None
    for text in texts:
        content: tuple[Content, ...] = (Reasoning("hm"), Text(text)) if text else (CALL,)
        reply = joined(reply, Reply(content, "m", "pause", Usage(2, 1)))
    assert reply is not None
    assert reply.text == "".join(texts)
    assert sum(part == CALL for part in reply.content) == texts.count("")
    assert (reply.usage, reply.api_calls) == (Usage(2 * len(texts), len(texts)), len(texts))
