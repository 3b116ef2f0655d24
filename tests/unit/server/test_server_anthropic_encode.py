"""Answers and streams on the Messages wire: events in, JSON out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest, ProviderTimeout
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
from penstock.contract.messages import Content, Image, MCPCall, Reasoning, Text, ToolUse
from penstock.server.doors.anthropic.encode import EventEncoder, encode
from penstock.server.doors.anthropic.thinking import seal, unseal
from tests.unit.server.anthropic_support import read_events

COUNTED = Usage(10, 5)
USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}
CLAUDES = Reasoning("Hm.", signature="EqQB", origin="anthropic-claude")
OTHERS = Reasoning("Hm.", signature="s", origin="gemini", meta={"k": "v"})


def result(
    *content: Content, reason: str = "endTurn", usage: Usage = COUNTED, status: str | None = None
) -> Result:
    metadata = Metadata(
        provider="p",
        model="m-1",
        request_id="req_1",
        latency_ms=1,
        usage=usage,
        response_status=status,
    )
    return Result(content, "m-1", reason, metadata)


def whole(*content: Content, reason: str = "endTurn", **fields: Any) -> Any:
    return json.loads(encode(result(*content, reason=reason, **fields), ()))


def written(*events: StreamEvent, stop_sequences: tuple[str, ...] = ()) -> list[Any]:
    encoder = EventEncoder("req_1", "m-1", stop_sequences)
    data = b"".join(encoder.encode([event]) for event in events)
    assert encoder.ended
    return read_events(data.decode())


def test_a_text() -> None:
    assert whole(Text("Hello "), Text("you")) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            ToolUse("a", "f", {"x": 1}),
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ),
        (Reasoning("Hm."), {"type": "thinking", "thinking": "Hm.", "signature": ""}),
        (CLAUDES, {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}),
        (OTHERS, {"type": "thinking", "thinking": "Hm.", "signature": seal(OTHERS)}),
        (
            Reasoning(signature="x", redacted=True, origin="anthropic-claude"),
            {"type": "redacted_thinking", "data": "x"},
        ),
    ],
)
def test_a_part(part: Content, block: dict[str, Any]) -> None:
    assert whole(part)["content"] == [block]


def test_what_has_no_place_on_this_wire_is_left_out() -> None:
    picture = Image(data="aaaa", mime_type="image/png")
    call = MCPCall("a", "docs", "search", {}, (Text("found"),))
    assert whole(picture, call, Text(""), Text("a"))["content"] == [{"type": "text", "text": "a"}]
    assert whole()["content"] == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("endTurn", "end_turn"),
        ("maxTokens", "max_tokens"),
        ("stopSequence", "stop_sequence"),
        ("toolUse", "tool_use"),
        ("something_new", "max_tokens"),
    ],
)
def test_why_it_stopped(reason: str, expected: str) -> None:
    assert whole(Text("a"), reason=reason)["stop_reason"] == expected
    assert written(Complete(result(reason=reason)))[-2]["delta"]["stop_reason"] == expected


def test_a_call_says_more_than_an_unknown_reason() -> None:
    assert whole(ToolUse("a", "f", {}), reason="something_new")["stop_reason"] == "tool_use"


def test_a_window_that_is_full() -> None:
    full = "model_context_window_exceeded"
    assert whole(reason="maxTokens", status=full)["stop_reason"] == full


@pytest.mark.parametrize(
    ("reason", "given_sequences", "told"),
    [
        ("stopSequence", ("END",), "END"),
        ("stopSequence", ("END", "STOP"), None),
        ("endTurn", ("END",), None),
    ],
)
def test_the_sequence_that_stopped_it(
    reason: str, given_sequences: tuple[str, ...], told: str | None
) -> None:
    ended = result(reason=reason)
    assert json.loads(encode(ended, given_sequences))["stop_sequence"] == told
    events = written(Complete(ended), stop_sequences=given_sequences)
    assert events[-2]["delta"]["stop_sequence"] == told


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(), {**USAGE, "input_tokens": 0, "output_tokens": 0}),
        (
            Usage(100, 5, cached_input_tokens=70, cache_write_tokens=20),
            {**USAGE, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 70},
        ),
        (
            Usage(10, 5, reasoning_tokens=3),
            {**USAGE, "output_tokens_details": {"thinking_tokens": 3}},
        ),
    ],
)
def test_usage(usage: Usage, expected: dict[str, Any]) -> None:
    assert whole(usage=usage)["usage"] == expected
    assert written(Complete(result(usage=usage)))[-2]["usage"] == expected


START: Any = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**USAGE, "input_tokens": 0, "output_tokens": 0},
    },
}
PING = {"type": "ping"}
STOP = {"type": "message_stop"}


def begin(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    block = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    piece = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": index, "delta": piece}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def last(reason: str) -> dict[str, Any]:
    ending = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": ending, "usage": USAGE}


def test_a_stream_of_everything() -> None:
    hidden = Reasoning(signature="x", redacted=True, origin="anthropic-claude")
    assert written(
        ReasoningDelta("H"),
        ReasoningDelta("m."),
        ReasoningDelta("", CLAUDES),
        ReasoningDelta("", hidden),
        Chunk("Let "),
        Chunk('"me"'),
        ToolStarted("z", "search", {}),
        ToolEnded("z", "search"),
        ToolUseDelta(0, "a", "f"),
        ToolUseDelta(0, arguments='{"x":'),
        ToolUseDelta(0, arguments="1}"),
        ToolUseDelta(1, "b", "g", "{}"),
        Chunk("!"),
        Complete(result(reason="toolUse")),
    ) == [
        *(START, PING),
        begin(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="H"),
        delta(0, "thinking_delta", thinking="m."),
        delta(0, "signature_delta", signature="EqQB"),
        end(0),
        begin(1, "redacted_thinking", data="x"),
        end(1),
        begin(2, "text", text=""),
        delta(2, "text_delta", text="Let "),
        delta(2, "text_delta", text='"me"'),
        end(2),
        begin(3, "tool_use", id="a", name="f", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"x":'),
        delta(3, "input_json_delta", partial_json="1}"),
        end(3),
        begin(4, "tool_use", id="b", name="g", input={}),
        delta(4, "input_json_delta", partial_json="{}"),
        end(4),
        begin(5, "text", text=""),
        delta(5, "text_delta", text="!"),
        end(5),
        *(last("tool_use"), STOP),
    ]


def test_two_thoughts_are_two_blocks() -> None:
    second = Reasoning("So.", signature="s2", origin="anthropic-claude")
    events = written(
        *(ReasoningDelta("Hm."), ReasoningDelta("", CLAUDES)),
        *(ReasoningDelta("So."), ReasoningDelta("", second)),
        *(ReasoningDelta("", Reasoning(signature="s3", origin="anthropic-claude")), Chunk("a")),
        Complete(result()),
    )
    signatures = [
        (event["index"], event["delta"]["signature"])
        for event in events
        if event.get("delta", {}).get("type") == "signature_delta"
    ]
    assert signatures == [(0, "EqQB"), (1, "s2"), (2, "s3")]


def test_calls_whose_pieces_are_mixed_keep_their_pieces() -> None:
    events = written(
        *(ToolUseDelta(0, "a", "f", "{"), ToolUseDelta(1, "b", "g", "{}")),
        *(ToolUseDelta(0, arguments="}"), Complete(result(reason="toolUse"))),
    )
    pieces = ["", ""]
    for event in events:
        if event["type"] == "content_block_delta":
            pieces[event["index"]] += event["delta"]["partial_json"]
    assert pieces == ["{}", "{}"]


def test_a_stream_that_says_nothing() -> None:
    assert written(Complete(result())) == [START, PING, last("end_turn"), STOP]


def test_events_written_together_are_the_same() -> None:
    events = [ReasoningDelta("Hm."), Chunk("a"), Chunk("b"), Complete(result())]
    together = EventEncoder("req_1", "m-1").encode(events)
    assert read_events(together.decode()) == written(*events)


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (Error(ProviderTimeout("too late", request_id="req_1")), "timeout_error", "too late"),
        (Cancelled(), "invalid_request_error", "it was cancelled"),
    ],
)
def test_a_stream_that_fails(event: StreamEvent, kind: str, message: str) -> None:
    *before, failed = written(Chunk("a"), event)
    assert failed["type"] == "error"
    assert failed["error"] == {"type": kind, "message": message}
    assert failed["request_id"] == ("req_1" if isinstance(event, Error) else None)
    assert STOP not in before


@given(
    st.builds(
        Reasoning,
        text=st.text(),
        signature=st.text(min_size=1).filter(lambda text: not text.startswith("penstock.")),
        redacted=st.booleans(),
        origin=st.none() | st.text(min_size=1),
        meta=st.none() | st.dictionaries(st.text(), st.text(), min_size=1),
    )
)
def test_a_sealed_signature_comes_back_whole(part: Reasoning) -> None:
    assert unseal(part.text, seal(part), "x", redacted=part.redacted) == part


@given(st.text(st.characters(max_codepoint=127)))
def test_a_seal_that_somebody_made_up_is_refused_or_read(text: str) -> None:
    try:
        found = unseal("", f"penstock.{text}", "here").signature
    except InvalidRequest as error:
        found = error.problems[0].path
    assert found is not None
