"""Whole bodies in, replies out; what a stream shares with a body is tested with it."""

from typing import Any

import pytest

from penstock.contract.errors import (
    ContentRejected,
    ContextLengthExceeded,
    MalformedResponse,
    ProviderUnavailable,
)
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.providers.openai_chat.decode import decode
from tests.unit.providers.openai_chat.chat_wire import (
    COUNTED,
    DONE,
    USAGE,
    WireEvent,
    body,
    call,
    delta,
    reply_of,
    run,
)


def test_a_plain_answer() -> None:
    assert decode(body({"content": "Hi"}, usage=USAGE)) == Reply(
        (Text("Hi"),), "m-1", "endTurn", COUNTED, "r1", "stop"
    )


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "endTurn"),
        ("length", "maxTokens"),
        ("eos", "endTurn"),
        ("of_tomorrow", "of_tomorrow"),
        (None, "endTurn"),
    ],
)
def test_the_stop_reason(finish: str | None, stop_reason: str) -> None:
    assert decode(body({"content": "Hi"}, finish)).stop_reason == stop_reason
    if finish is not None:
        assert reply_of(run(delta(finish, content="Hi"))).stop_reason == stop_reason


def test_calls_win_over_the_reason() -> None:
    message: dict[str, Any] = {"content": None, "tool_calls": [call("f", "{}", id="c1")]}
    assert decode(body(message, "stop")).stop_reason == "toolUse"
    assert reply_of(run(delta("stop", **message), DONE)).stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": None}, ()),
        ({"content": ""}, ()),
        ({}, ()),
        ({"content": "a", "reasoning_content": "h"}, (Reasoning(text="h"), Text("a"))),
        ({"content": "a", "reasoning": "h"}, (Reasoning(text="h"), Text("a"))),
        (
            {"content": "a", "reasoning_content": "h", "reasoning": "h"},
            (Reasoning(text="h"), Text("a")),
        ),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "h"}]},
                    {"type": "thinking", "thinking": "m"},
                    {"type": "text", "text": "a"},
                    {"type": "reference", "reference_ids": [1]},
                ]
            },
            (Reasoning(text="hm"), Text("a")),
        ),
        (
            {"content": "a", "tool_calls": [call("f", '{"x":1}', id="c1"), call("g", "", id="c2")]},
            (Text("a"), ToolUse("c1", "f", {"x": 1}), ToolUse("c2", "g", {})),
        ),
        (
            {"tool_calls": [call("f", {"x": 1}), call("f", {"x": 2})]},
            (ToolUse("call_r1_0", "f", {"x": 1}), ToolUse("call_r1_1", "f", {"x": 2})),
        ),
    ],
)
def test_what_a_message_may_hold(message: dict[str, Any], content: tuple[Any, ...]) -> None:
    assert decode(body(message)).content == content
    assert reply_of(run(delta("stop", **message), DONE)).content == content


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": 5}, Usage(5)),
        ({"prompt_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": None}, Usage(5, 0)),
        (USAGE, COUNTED),
        (
            {"prompt_tokens": 5, "prompt_tokens_details": {"audio_tokens": 4}},
            Usage(5, input_audio_tokens=4),
        ),
        # xAI's thinking is not among its completion, as its total shows.
        (
            {
                "prompt_tokens": 10_120,
                "completion_tokens": 1499,
                "total_tokens": 14_428,
                "prompt_tokens_details": {"cached_tokens": 128},
                "completion_tokens_details": {"reasoning_tokens": 2809},
            },
            Usage(10_120, 4308, 128, None, 2809),
        ),
        # Nor is Perplexity's, whose total leaves it out as well.
        (
            {
                "prompt_tokens": 33,
                "completion_tokens": 7163,
                "total_tokens": 7196,
                "reasoning_tokens": 73_997,
            },
            Usage(33, 81_160, None, None, 73_997),
        ),
        (
            {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}},
            Usage(None, 9, None, None, 4),
        ),
        ({"prompt_tokens": 5, "prompt_audio_seconds": 3}, Usage(5, audio_seconds=3.0)),
        ({"prompt_tokens": 5, "prompt_audio_seconds": {}}, Usage(5)),
    ],
)
def test_usage_is_what_the_provider_said_and_never_a_guess(
    usage: dict[str, Any] | None, expected: Usage
) -> None:
    assert decode(body({"content": "a"}, usage=usage)).usage == expected
    last = delta("stop") | {"usage": usage}
    assert reply_of(run(delta(content="a"), last, DONE)).usage == expected
    later: WireEvent = {"id": "r1", "model": "m-1", "choices": [], "usage": usage}
    assert reply_of(run(delta(content="a"), delta("stop"), later, DONE)).usage == expected
    # Some servers count along; the last count holds.
    early = delta(content="a") | {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert usage is None or reply_of(run(early, last, DONE)).usage == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{"index": 1, "message": {"content": "x"}}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b"[" * 100_000,
        body({"tool_calls": [call("f", "{")]}),
        body({"tool_calls": [call("f", "[]")]}),
        body({"tool_calls": [call(None, "{}")]}),
    ],
)
def test_a_body_that_is_no_chat_completion(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        decode(answer)


def test_an_error_inside_a_200() -> None:
    with pytest.raises(ContextLengthExceeded, match="too long"):
        decode(b'{"error": {"message": "too long", "code": "context_length_exceeded"}}')
    with pytest.raises(ProviderUnavailable, match="boom"):
        decode(b'{"error": "boom"}')


def test_refusals_and_filters_keep_what_was_said() -> None:
    with pytest.raises(ContentRejected, match="I cannot") as refused:
        decode(body({"content": "Well", "refusal": "I cannot"}))
    with pytest.raises(ContentRejected) as filtered:
        decode(body({"content": "Well"}, "content_filter"))
    assert refused.value.partial == filtered.value.partial == "Well"


def test_only_the_first_choice_counts() -> None:
    choices = [
        {"index": 1, "message": {"content": "no"}, "finish_reason": "stop"},
        {"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"},
    ]
    assert decode(body({}, choices=choices)).text == "yes"
    assert (
        reply_of(run(delta("stop", index=1, content="no"), delta("stop", content="yes"))).text
        == "yes"
    )
