"""Every rule with its path, all problems at once, and nothing but InvalidRequest for nonsense."""

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import (
    Audio,
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import ModelPreferences, ToolChoice, ToolDefinition
from penstock.contract.requests import RequestOptions, build_request
from penstock.pipeline.limits import Limits
from penstock.pipeline.validate import validate, validate_embedding
from tests.support.media import PNG, WAV
from tests.unit.contract.test_messages import messages as any_messages

CALL = ToolUse("c1", "now", {})
RESULT = ToolResult("c1", (Text("noon"),))
HALF = "\ud83d"
"""Half of a surrogate pair, as the undecodable bytes of a command line give it."""


def request(*messages: Message, **options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": messages or (user("hi"),), "max_tokens": 9, **options}
    return SamplingRequest(**fields)


def problems(candidate: SamplingRequest, limits: Limits | None = None) -> list[str]:
    with pytest.raises(InvalidRequest) as caught:
        validate(candidate, limits or Limits())
    return [str(problem) for problem in caught.value.problems]


def test_a_good_request_is_handed_on_as_it_is() -> None:
    good = request()
    assert validate(good, Limits()) is good


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_tokens": 0}, "max_tokens: 0 is not a positive number"),
        ({"max_tokens": -3}, "max_tokens: -3 is not a positive number"),
        ({"model": f"fake/{HALF}"}, "model: holds half a character (a lone surrogate)"),
        ({"metadata": {"user": HALF}}, "metadata: holds half a character (a lone surrogate)"),
        ({"metadata": {HALF: 1}}, "metadata: holds half a character (a lone surrogate)"),
        ({"max_tokens": 10**30}, "max_tokens: is more than 2147483647"),
        ({"temperature": -0.1}, "temperature: -0.1 is not between 0 and 2"),
        ({"temperature": 2.1}, "temperature: 2.1 is not between 0 and 2"),
        ({"temperature": math.nan}, "temperature: nan is not between 0 and 2"),
        ({"stop_sequences": ("a",) * 11}, "stop_sequences: 11 given, at most 10 are allowed"),
        ({"stop_sequences": ("a", "")}, "stop_sequences[1]: is empty; leave it out"),
        ({"stop_sequences": (HALF,)}, "stop_sequences[0]: holds half a character"),
        ({"system_prompt": HALF}, "system_prompt: holds half a character"),
        ({"timeout": 0.0}, "timeout: 0.0 is not a positive number of seconds"),
        ({"timeout": math.nan}, "timeout: nan is not a positive number of seconds"),
        ({"timeout": math.inf}, "timeout: inf is not a positive number of seconds"),
        (
            {"model_preferences": ModelPreferences(cast(Any, "claude"))},
            "model_preferences.hints: is a single text; give a list of texts",
        ),
        (
            {"model_preferences": ModelPreferences(cost=1.1)},
            "model_preferences.cost: 1.1 is not between 0 and 1",
        ),
        (
            {"model_preferences": ModelPreferences(speed=-1)},
            "model_preferences.speed: -1 is not between 0 and 1",
        ),
        (
            {"model_preferences": ModelPreferences(intelligence=math.nan)},
            "model_preferences.intelligence: nan is not between 0 and 1",
        ),
        (
            {"model_preferences": ModelPreferences(cost=cast(Any, "1"))},
            "model_preferences.cost: '1' is not a number; give one from 0 to 1",
        ),
        ({"tools": (ToolDefinition(""),)}, "tools[0].name: is empty"),
        (
            {"tools": (ToolDefinition("a"), ToolDefinition("a"))},
            "tools[1].name: 'a' is there twice",
        ),
        ({"tool_choice": ToolChoice.tool("a")}, "tool_choice: 'a' is not one of the tools"),
        (
            {"tool_choice": ToolChoice("required")},
            "tool_choice: is 'required', but there are no tools",
        ),
    ],
)
def test_an_option_outside_its_range_is_refused(options: dict[str, Any], problem: str) -> None:
    (found,) = problems(request(**options))
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 1},
        {"max_tokens": 2**31 - 1},
        {"temperature": 0.0},
        {"temperature": 2.0},
        {"stop_sequences": ("a",) * 10},
        {"timeout": 0.001},
        {"system_prompt": "né 🙂"},
        {"model_preferences": ModelPreferences(("claude",), 0, 1, 0.5)},
        {"tools": (ToolDefinition("a"),), "tool_choice": ToolChoice.tool("a")},
        {"tools": (ToolDefinition("a"),), "tool_choice": ToolChoice("required")},
        {"tool_choice": ToolChoice("none")},
    ],
)
def test_an_option_at_the_edge_of_its_range_is_taken(options: dict[str, Any]) -> None:
    good = request(**options)
    assert validate(good, Limits()) is good


def test_the_limits_are_configurable() -> None:
    strict = Limits(max_temperature=0.5, max_stop_sequences=0)
    assert problems(request(temperature=1.0, stop_sequences=("a",)), strict) == [
        "temperature: 1.0 is not between 0 and 0.5",
        "stop_sequences: 1 given, at most 0 are allowed; send fewer, or raise "
        "limits.max_stop_sequences",
    ]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((Message("user", ()),), ["messages[0].content: is empty; give at least one part"]),
        ((user(" \n"),), ["messages[0].content: is blank; say something"]),
        ((user(HALF),), ["messages[0].content[0]: holds half a character (a lone surrogate)"]),
        (
            (user(Image(data="aGk=")),),
            ["messages[0].content[0]: an image needs data with a mimeType, or a url"],
        ),
        (
            (user(Audio(data="", mime_type="audio/wav")),),
            ["messages[0].content[0]: audio needs data and a mimeType"],
        ),
        (
            (user("a"), assistant(CALL), user(ToolResult("c1", (Image(),)))),
            ["messages[2].content[0].content[0]: an image needs data with a mimeType, or a url"],
        ),
        (
            (user(CALL),),
            ["messages[0].content[0]: a tool call belongs to the assistant, not to the user"],
        ),
        (
            (user("a"), user(Reasoning("hm"), "b")),
            ["messages[1].content[0]: reasoning belongs to the assistant, not to the user"],
        ),
        (
            (system(Image(url="https://x"), "Be brief."), user("a")),
            ["messages[0].content[0]: a system message may hold text only"],
        ),
        (
            (user("a"), assistant("b", ToolResult("c1"))),
            [
                "messages[1].content[1]: a tool result belongs to the user, not to the assistant",
                "messages[1].content: a message with tool results may hold nothing else",
                "messages[1]: the tool result 'c1' answers no call before it",
            ],
        ),
        ((system("Be brief."),), ["messages: give at least one user message"]),
    ],
)
def test_content_that_breaks_a_rule_is_refused(
    messages: tuple[Message, ...], expected: list[str]
) -> None:
    assert problems(request(*messages)) == expected


def test_a_request_without_messages_is_refused() -> None:
    assert problems(request(messages=())) == ["messages: give at least one user message"]


def test_a_part_that_is_none_is_refused() -> None:
    wrong = cast(Text, {"type": "text", "text": "hi"})
    assert problems(request(user(wrong))) == ["messages[0].content[0]: dict is not a content part"]


def test_whole_pictures_and_sounds_are_taken_wherever_they_may_stand() -> None:
    picture = Image(data=PNG, mime_type="image/png")
    sound = Audio(data=WAV, mime_type="audio/wav")
    shown = user("What is this?", picture, Image(url="https://x/y.png"), sound)
    answered = user(ToolResult("c1", (picture, sound)))
    good = request(shown, assistant(CALL), answered)
    assert validate(good, Limits()) is good


def test_a_blank_assistant_turn_may_stand_in_a_history() -> None:
    assert validate(request(user("a"), assistant(""), user("b")), Limits())


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            (user("a"), assistant(CALL)),
            ["messages[1]: the call 'c1' has no tool result after it"],
        ),
        (
            (user("a"), assistant(CALL, ToolUse("c2", "now", {})), system("Be brief.")),
            [
                "messages[1]: the call 'c1' has no tool result after it",
                "messages[1]: the call 'c2' has no tool result after it",
            ],
        ),
        (
            (user("a"), assistant(CALL), user("b")),
            ["messages[2]: the call 'c1' before it has no tool result here"],
        ),
        (
            (user("a"), assistant(CALL), assistant("b")),
            ["messages[2]: the call 'c1' before it has no tool result here"],
        ),
        (
            (user("a"), assistant(CALL), user(RESULT, "b")),
            ["messages[2].content: a message with tool results may hold nothing else"],
        ),
        (
            (user("a"), assistant(CALL), user(RESULT, RESULT)),
            ["messages[2]: a call is answered twice"],
        ),
        (
            (user("a"), assistant(CALL), user(ToolResult("c2"))),
            [
                "messages[2]: the call 'c1' before it has no tool result here",
                "messages[2]: the tool result 'c2' answers no call before it",
            ],
        ),
        (
            (user("a"), assistant(CALL, CALL), user(RESULT)),
            ["messages[1]: two calls have the same id"],
        ),
        # A broken turn long ago is as wrong as one at the end.
        (
            (user("a"), assistant(CALL), user("b"), assistant("c"), user("d")),
            ["messages[2]: the call 'c1' before it has no tool result here"],
        ),
    ],
)
def test_calls_and_results_are_balanced_over_the_whole_history(
    messages: tuple[Message, ...], expected: list[str]
) -> None:
    assert problems(request(*messages)) == expected


def test_a_balanced_history_is_taken_even_when_ids_come_again_in_a_later_turn() -> None:
    turn = (assistant("let me see", CALL), user(RESULT))
    assert validate(request(user("a"), *turn, assistant("b"), user("c"), *turn), Limits())


def test_a_system_message_between_call_and_result_does_not_part_them() -> None:
    history = (user("a"), assistant(CALL), system("Be brief."), user(RESULT))
    assert validate(request(*history), Limits()).messages == (history[0], history[1], history[3])


def test_system_messages_are_moved_into_the_system_prompt() -> None:
    moved = validate(
        request(
            system("One."),
            user("a"),
            system("Two.", " Three."),
            assistant("b"),
            user("c"),
            system_prompt="Zero.",
        ),
        Limits(),
    )
    assert moved.system_prompt == "Zero.\n\nOne.\n\nTwo. Three."
    assert moved.messages == (user("a"), assistant("b"), user("c"))
    assert validate(request(system("One."), user("a")), Limits()).system_prompt == "One."


def test_every_problem_is_reported_at_once() -> None:
    assert problems(
        request(
            user(""), assistant(CALL), max_tokens=0, temperature=9.0, tools=(ToolDefinition(""),)
        )
    ) == [
        "max_tokens: 0 is not a positive number",
        "temperature: 9.0 is not between 0 and 2",
        "messages[0].content: is blank; say something",
        "messages[1]: the call 'c1' has no tool result after it",
        "tools[0].name: is empty",
    ]


wild_texts = st.text(st.characters(exclude_categories=()))
"""With lone surrogates, which Python allows in a text and no wire can carry."""
numbers = st.none() | st.floats() | st.integers(-5, 5)
options = st.fixed_dictionaries(
    {"max_tokens": st.integers()},
    optional={
        "model": st.none() | st.text(),
        "system_prompt": st.none() | wild_texts,
        "temperature": numbers,
        "stop_sequences": st.lists(wild_texts, max_size=12),
        "model_preferences": st.none()
        | st.builds(ModelPreferences, st.just(()), numbers, numbers, numbers),
        "tools": st.lists(st.builds(ToolDefinition, st.sampled_from(["", "a", "b"])), max_size=3),
        "tool_choice": st.sampled_from(["auto", "required", "none", "tool", "maybe", None])
        | st.builds(ToolChoice, st.just("tool"), st.sampled_from([None, "a", "c"])),
        "output_schema": st.none() | st.dictionaries(st.text(), st.integers(), max_size=2),
        "reasoning_level": st.sampled_from([None, "none", "low", "huge"]),
        "timeout": numbers,
        "ignore_invalid_options": st.booleans(),
        "unknown": st.none(),
    },
)


@given(wild_texts | st.lists(any_messages, max_size=4), options)
def test_nonsense_is_refused_with_invalid_request_and_nothing_else(
    messages: str | list[Message], options: dict[str, Any]
) -> None:
    try:
        built = build_request(messages, cast(RequestOptions, options))
        checked = validate(built, Limits())
    except InvalidRequest as error:
        refusal = error
    else:
        assert all(message.role != "system" for message in checked.messages)
        assert validate(checked, Limits()) is checked
        return
    assert refusal.problems
    assert str(refusal)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (EmbeddingRequest(texts=()), ["texts: give at least one text"]),
        (EmbeddingRequest(texts=("a", "")), ["texts[1]: is empty; give some text"]),
        (
            EmbeddingRequest(texts=(HALF,)),
            ["texts[0]: holds half a character (a lone surrogate)"],
        ),
        (
            EmbeddingRequest(texts=("",), dimensions=0, timeout=math.nan),
            [
                "texts[0]: is empty; give some text",
                "dimensions: 0 is not a positive number",
                "timeout: nan is not a positive number of seconds",
            ],
        ),
    ],
)
def test_a_bad_embedding_request_is_refused(bad: EmbeddingRequest, expected: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_embedding(bad, Limits())
    assert [str(problem) for problem in caught.value.problems] == expected


def test_a_good_embedding_request_is_handed_on_as_it_is() -> None:
    good = EmbeddingRequest(texts=("a",), dimensions=1, timeout=1.0)
    assert validate_embedding(good, Limits()) is good
