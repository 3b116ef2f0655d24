"""What Penstock reads from the wire is what the official SDK reads from the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError
from anthropic.types import Message, RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolUseBlock

from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.providers.anthropic.decode import MessageStreamDecoder, decode
from penstock.providers.anthropic.errors import map_error
from penstock.streaming.sse import SSEDecoder
from tests.unit.providers.anthropic.message_wire import (
    PING,
    START,
    STOP,
    USAGE,
    WireEvent,
    begin,
    body,
    call,
    delta,
    ending,
    says,
    stop,
    text,
    thinks,
    wire_bytes,
    writes,
)

STOPS = {
    "end_turn": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "model_context_window_exceeded": "maxTokens",
    "tool_use": "toolUse",
    "pause_turn": "",
}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s=="}
REDACTED = {"type": "redacted_thinking", "data": "x=="}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
BARE = {"input_tokens": 3, "output_tokens": 2}


def client_for(data: bytes, content_type: str, status: int = 200, **headers: str) -> Anthropic:
    sent = {"content-type": content_type, **headers}

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=data, headers=sent)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return Anthropic(api_key="k", max_retries=0, http_client=http)


def ask(client: Anthropic) -> Message:
    with client:
        return client.messages.create(
            model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        )


def ask_streaming(client: Anthropic) -> Message:
    with (
        client,
        client.messages.stream(
            model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        return stream.get_final_message()


def part_of(block: Any) -> Content | None:
    if isinstance(block, TextBlock):
        return Text(block.text)
    if isinstance(block, ThinkingBlock):
        return Reasoning(text=block.thinking, signature=block.signature)
    if isinstance(block, RedactedThinkingBlock):
        return Reasoning(signature=block.data, redacted=True)
    if isinstance(block, ToolUseBlock):
        return ToolUse(block.id, block.name, dict(block.input))
    return None  # Blocks of the server's own tools are not a part of Penstock's contract.


def same(reply: Reply, message: Message) -> None:
    parts: list[Content] = []
    for part in filter(None, map(part_of, message.content)):
        last = parts[-1] if parts else None
        if isinstance(part, Text) and isinstance(last, Text):
            parts[-1] = Text(last.text + part.text)  # Penstock joins neighbouring texts.
        else:
            parts.append(part)
    assert reply.content == tuple(parts)
    assert (reply.response_id, reply.model) == (message.id, message.model)
    assert reply.response_status == message.stop_reason
    calls = any(isinstance(part, ToolUse) for part in parts)
    assert reply.stop_reason == ("toolUse" if calls else STOPS[str(message.stop_reason)])
    usage, theirs = reply.usage, message.usage
    read, written = theirs.cache_read_input_tokens, theirs.cache_creation_input_tokens
    assert usage.input_tokens == theirs.input_tokens + (read or 0) + (written or 0)
    assert usage.output_tokens == theirs.output_tokens
    assert (usage.cached_input_tokens, usage.cache_write_tokens) == (read, written)
    details = theirs.output_tokens_details
    assert usage.reasoning_tokens == (details.thinking_tokens if details else None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(body(text("Hello")), id="text"),
        pytest.param(body(text("Grüße 🐈\n\u2028")), id="unicode"),
        pytest.param(body(text("a"), text("b")), id="two texts"),
        pytest.param(body(THOUGHT, text("Yes")), id="thinking"),
        pytest.param(body(REDACTED, THOUGHT, REDACTED, text("Yes")), id="redacted"),
        pytest.param(body(THOUGHT, THOUGHT), id="two thoughts"),
        pytest.param(body(call("a", x=1), call("b", "g"), stop="tool_use"), id="calls"),
        pytest.param(body(text("So"), call("a", x=[{"y": None}]), stop="tool_use"), id="both"),
        pytest.param(body(call("a"), stop="end_turn"), id="a call wins"),
        pytest.param(body(SEARCH, FOUND, text("Found")), id="server tools"),
        pytest.param(body(text("cut"), stop="max_tokens"), id="max tokens"),
        pytest.param(body(text("cut"), stop="model_context_window_exceeded"), id="window"),
        pytest.param(body(text("a"), stop="stop_sequence", stop_sequence="X"), id="stop sequence"),
        pytest.param(body(text("a"), stop="pause_turn"), id="pause"),
        pytest.param(body(), id="nothing"),
        pytest.param(body(text("a"), usage=BARE), id="bare usage"),
    ],
)
def test_the_same_whole_answer(data: bytes) -> None:
    same(decode(data), ask(client_for(data, "application/json")))


def feed(events: bytes) -> list[ProviderEvent]:
    frames, decoder = SSEDecoder(), MessageStreamDecoder()
    found = decoder.feed(frames.feed(events))
    return [*found, *decoder.feed(frames.finish()), *decoder.finish()]


EMPTY_THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
SIGNED = delta(0, "signature_delta", signature="s==")
CITED = delta(0, "citations_delta", citation={"type": "char_location", "cited_text": "x"})
BEGUN: dict[str, Any] = {
    **START,
    "message": {**START["message"], "usage": {**USAGE, "output_tokens": 1}},
}

STREAMS: dict[str, Sequence[WireEvent]] = {
    "text": (START, begin(0, text("")), PING, says(0, "Hel"), says(0, "lo"), stop(0), ending()),
    "text in the beginning": (START, begin(0, text("He")), says(0, "y"), stop(0), ending()),
    "unicode": (START, begin(0, text("")), says(0, "Grüße "), says(0, "🐈"), stop(0), ending()),
    "two texts": (
        *(START, begin(0, text("")), says(0, "a"), stop(0)),
        *(begin(1, text("")), says(1, "b"), stop(1), ending()),
    ),
    "cited": (START, begin(0, text("")), says(0, "a"), CITED, stop(0), ending()),
    "thinking": (
        *(START, begin(0, EMPTY_THOUGHT), thinks(0, "H"), thinks(0, "m."), SIGNED, stop(0)),
        *(begin(1, text("")), says(1, "Yes"), stop(1), ending()),
    ),
    "hidden thinking": (START, begin(0, EMPTY_THOUGHT), SIGNED, stop(0), ending()),
    "redacted": (START, begin(0, REDACTED), stop(0), ending()),
    "calls": (
        *(START, begin(0, call("a")), writes(0, ""), writes(0, '{"x"'), writes(0, ":1}"), stop(0)),
        *(begin(1, call("b", "g")), writes(1, ""), stop(1), ending("tool_use")),
    ),
    "text and a call": (
        *(START, begin(0, text("")), says(0, "So"), stop(0)),
        *(begin(1, call("a")), writes(1, '{"x": [1]}'), stop(1), ending("tool_use")),
    ),
    "max tokens": (START, begin(0, text("")), says(0, "cut"), stop(0), ending("max_tokens")),
    "stop sequence": (
        *(START, begin(0, text("")), says(0, "a"), stop(0)),
        ending("stop_sequence", stop_sequence="X"),
    ),
    "pause": (START, begin(0, text("")), says(0, "a"), stop(0), ending("pause_turn")),
    "usage that grows": (BEGUN, begin(0, text("")), says(0, "a"), stop(0), ending()),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_same_stream(name: str) -> None:
    data = wire_bytes([*STREAMS[name], STOP])
    last = feed(data)[-1]
    assert isinstance(last, Finished)
    same(last.reply, ask_streaming(client_for(data, "text/event-stream")))


def text_of(event: WireEvent) -> str:
    assert isinstance(event, dict)
    piece: dict[str, Any] = event.get("content_block") or event.get("delta") or {}
    return piece.get("text") or ""


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_event_is_interrupted(name: str) -> None:
    """The SDK takes a stream without its end for a message; Penstock never does."""
    events = [*STREAMS[name], STOP]
    for cut in range(len(events)):
        with pytest.raises(StreamInterrupted) as caught:
            feed(wire_bytes(events[:cut]))
        assert caught.value.partial == "".join(map(text_of, events[:cut]))


@pytest.mark.parametrize(
    ("status", "kind", "ours"),
    [
        (400, "invalid_request_error", InvalidRequest),
        (401, "authentication_error", AuthenticationFailed),
        (402, "billing_error", RateLimited),
        (403, "permission_error", AuthenticationFailed),
        (404, "not_found_error", ModelNotFound),
        (409, "conflict_error", ProviderUnavailable),
        (413, "request_too_large", InvalidRequest),
        (429, "rate_limit_error", RateLimited),
        (500, "api_error", ProviderUnavailable),
        (504, "timeout_error", ProviderUnavailable),
        (529, "overloaded_error", ProviderUnavailable),
    ],
)
def test_the_same_error(status: int, kind: str, ours: type[PenstockError]) -> None:
    data = wire_error(kind)
    with pytest.raises(APIStatusError) as caught:
        ask(client_for(data, "application/json", status, **{"retry-after": "3"}))
    error = map_error(status, {"retry-after": "3"}, data)
    assert type(error) is ours
    assert (error.status, caught.value.type) == (caught.value.status_code, kind)
    assert kind in error.message
    # The SDK tries these again, and so does Penstock.
    assert error.retryable is (status in (408, 409, 429) or status >= 500)


def wire_error(kind: str) -> bytes:
    return b'{"type":"error","error":{"type":"%b","message":"m"},"request_id":"req_1"}' % (
        kind.encode()
    )


def test_the_same_error_in_a_stream() -> None:
    events = wire_bytes([START, begin(0, text("")), says(0, "a")])
    data = events + b"event: error\ndata: " + wire_error("overloaded_error") + b"\n\n"
    with pytest.raises(APIStatusError) as caught:
        ask_streaming(client_for(data, "text/event-stream"))
    assert caught.value.type == "overloaded_error"
    with pytest.raises(ProviderUnavailable, match="overloaded_error"):
        feed(data)
