"""Answers and streams on the Chat Completions wire: events in, JSON out."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.contract.errors import ProviderTimeout
from penstock.contract.events import (
    Cancelled,
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Metadata, Result, Usage
from penstock.contract.messages import Content, MCPCall, Reasoning, Text, ToolUse
from penstock.server.doors.openai_chat.encode import ChunkEncoder, encode
from tests.unit.server.gateway_support import deltas, read_events

COUNTED = Usage(10, 5)


def result(*content: Content, reason: str = "endTurn", usage: Usage = COUNTED) -> Result:
    metadata = Metadata(provider="p", model="m-1", request_id="req_1", latency_ms=1, usage=usage)
    return Result(content, "m-1", reason, metadata)


def written(*events: StreamEvent, include_usage: bool = False) -> list[Any]:
    encoder = ChunkEncoder("req_1", "m-1", include_usage=include_usage)
    data = b"".join(encoder.encode([event]) for event in events)
    assert encoder.ended
    return read_events(data.decode())


def test_a_text() -> None:
    document = json.loads(encode(result(Text("Hello "), Text("you"))))
    assert isinstance(document.pop("created"), int)
    assert document == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello you", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def test_tools_and_thinking() -> None:
    content = (Reasoning("Hm."), ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {}))
    choice = json.loads(encode(result(*content, reason="toolUse")))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "Hm.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_an_answer_that_says_nothing() -> None:
    assert json.loads(encode(result()))["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize(
    ("content", "reason", "finish"),
    [
        ((), "endTurn", "stop"),
        ((), "stopSequence", "stop"),
        ((), "maxTokens", "length"),
        ((), "something new", "length"),
        ((ToolUse("a", "f", {}),), "something new", "tool_calls"),
    ],
)
def test_why_it_stopped(content: Sequence[Content], reason: str, finish: str) -> None:
    answer = result(*content, reason=reason)
    assert json.loads(encode(answer))["choices"][0]["finish_reason"] == finish
    assert written(Complete(answer))[1]["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(), None),
        (Usage(3), None),
        (Usage(None, 4), None),
        (
            Usage(3, 4, cached_input_tokens=2, reasoning_tokens=1),
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        ),
    ],
)
def test_usage_is_told_only_when_it_is_known(usage: Usage, expected: Any) -> None:
    answer = result(Text("x"), usage=usage)
    assert json.loads(encode(answer)).get("usage") == expected
    told = [event["usage"] for event in written(Complete(answer), include_usage=True)[:-1]]
    assert told == [None, None] + ([] if expected is None else [expected])


def test_a_stream_of_text() -> None:
    odd = 'quote " and \n and € and \x00'
    events = written(Chunk("Hel"), Chunk(odd), Complete(result(Text("Hel" + odd))))
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        assert event["id"] == "chatcmpl-1"
        assert event["object"] == "chat.completion.chunk"
        assert event["model"] == "m-1"
        assert isinstance(event["created"], int)
        assert "usage" not in event
    assert deltas(events) == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hel"},
        {"content": odd},
        {},
    ]
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert reasons == [None, None, None, "stop"]


def test_a_stream_of_thinking_and_tools() -> None:
    answer = result(reason="toolUse")
    events = written(
        ReasoningDelta("Hm."),
        ToolUseDelta(0, "a", "f", ""),
        ToolUseDelta(0, arguments='{"x"'),
        ToolUseDelta(0, arguments=":1}"),
        ToolUseDelta(1, "b", "g", "{}"),
        Complete(answer),
    )
    assert deltas(events)[1:-1] == [
        {"reasoning_content": "Hm."},
        {"tool_calls": [_begin(0, "a", "f", "")]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [_begin(1, "b", "g", "{}")]},
    ]


def _begin(index: int, id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function}


def test_a_tool_that_somebody_else_runs_is_not_the_clients_to_call() -> None:
    call = MCPCall("m1", "docs", "search", {"q": 1}, (Text("4 °C"),))
    done = result(call, Text("Cold."))
    plain = written(Chunk("Cold."), Complete(done))
    started = ToolStarted("m1", "search", {"q": 1}, "docs")
    ended = ToolEnded("m1", "search", content=call.content)
    assert written(started, ended, Chunk("Cold."), Complete(done)) == plain
    choice = json.loads(encode(done))["choices"][0]
    assert choice["message"]["content"] == "Cold."
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


def test_usage_comes_in_a_chunk_of_its_own() -> None:
    events = written(Chunk("x"), Complete(result(Text("x"))), include_usage=True)
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["total_tokens"] == 15
    assert all(event["usage"] is None for event in events[:-2])


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Error(ProviderTimeout("silence")), "upstream_timeout"),
        (Cancelled(), "request_cancelled"),
    ],
)
def test_a_stream_that_fails_has_no_done(event: StreamEvent, code: str) -> None:
    events = written(Chunk("Hel"), event)
    assert events[-1]["error"]["code"] == code
    assert "[DONE]" not in events


def test_a_batch_is_written_at_once() -> None:
    encoder = ChunkEncoder("req_1", 'm"1', include_usage=False)
    events = read_events(encoder.encode([Chunk("a"), Chunk("b")]).decode())
    assert [delta.get("content") for delta in deltas(events)] == ["", "a", "b"]
    assert events[0]["model"] == 'm"1'
    assert not encoder.ended


def test_a_signature_has_no_place_on_this_wire() -> None:
    signed = ReasoningDelta("", Reasoning("Hm.", signature="s", origin="x"))
    plain = written(ReasoningDelta("Hm."), Complete(result()))
    assert deltas(written(ReasoningDelta("Hm."), signed, Complete(result()))) == deltas(plain)
