"""Builders for bodies and events of the Messages wire."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.providers.anthropic.decode import MessageStreamDecoder
from penstock.streaming.sse import ServerSentEvent

WireEvent: TypeAlias = dict[str, Any] | bytes

USAGE: dict[str, Any] = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 5},
    "server_tool_use": None,
    "service_tier": "standard",
}
COUNTED = Usage(11, 7, 3, 2, 5)


def message(
    *content: dict[str, Any], stop: str | None = "end_turn", **fields: Any
) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }


def body(*content: dict[str, Any], stop: str | None = "end_turn", **fields: Any) -> bytes:
    return msgspec.json.encode(message(*content, stop=stop, **fields))


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(id: str = "t1", name: str = "f", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def begin(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **piece: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


def says(index: int, piece: str) -> dict[str, Any]:
    return delta(index, "text_delta", text=piece)


def thinks(index: int, piece: str) -> dict[str, Any]:
    return delta(index, "thinking_delta", thinking=piece)


def writes(index: int, piece: str) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=piece)


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ending(reason: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    said = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": said, "usage": USAGE}


START: dict[str, Any] = {
    "type": "message_start",
    "message": message(stop=None, usage={**USAGE, "output_tokens": 1}),
}
PING: dict[str, Any] = {"type": "ping"}
STOP: dict[str, Any] = {"type": "message_stop"}
TEXT_STREAM: tuple[WireEvent, ...] = (
    START,
    begin(0, text("")),
    PING,
    says(0, "Hello"),
    stop(0),
    ending(),
    STOP,
)


def frame(event: WireEvent) -> ServerSentEvent:
    if isinstance(event, bytes):
        return ServerSentEvent(event)
    return ServerSentEvent(msgspec.json.encode(event), event.get("type", "message"))


def wire_bytes(events: Iterable[WireEvent]) -> bytes:
    frames = [frame(event) for event in events]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (each.event.encode(), each.data) for each in frames
    )


def run(*events: WireEvent) -> list[ProviderEvent]:
    """Every event in a read of its own, to the end of the body."""
    decoder = MessageStreamDecoder()
    out: list[ProviderEvent] = []
    for event in events:
        out += decoder.feed([frame(event)])
    return [*out, *decoder.finish()]


def reply_of(events: Sequence[ProviderEvent]) -> Reply:
    assert [isinstance(event, Finished) for event in events].count(True) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply
