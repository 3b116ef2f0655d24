"""Builders for bodies and events of the Chat Completions wire."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.providers.openai_chat.decode import ChatStreamDecoder
from penstock.streaming.sse import ServerSentEvent

WireEvent: TypeAlias = dict[str, Any] | str | bytes

DONE = "[DONE]"
USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0},
}
COUNTED = Usage(11, 7, 3, 2, 5)


def body(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return msgspec.json.encode(
        {"id": "r1", "object": "chat.completion", "model": "m-1", "choices": [choice], **fields}
    )


def delta(finish: str | None = None, *, index: int = 0, **piece: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": piece, "finish_reason": finish, "logprobs": None}
    return {"id": "r1", "model": "m-1", "created": 1, "choices": [choice], "usage": None}


def call_delta(*calls: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=list(calls))


def call(
    name: str | None = None,
    arguments: Any = None,
    *,
    index: int | None = None,
    id: str | None = None,
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    piece: dict[str, Any] = {
        "function": {key: value for key, value in function.items() if value is not None}
    }
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    return piece


def frame(event: WireEvent) -> ServerSentEvent:
    if isinstance(event, str):
        event = event.encode()
    return ServerSentEvent(event if isinstance(event, bytes) else msgspec.json.encode(event))


def run(*events: WireEvent) -> list[ProviderEvent]:
    """Every event in a read of its own, to the end of the body."""
    decoder = ChatStreamDecoder()
    out: list[ProviderEvent] = []
    for event in events:
        out += decoder.feed([frame(event)])
    return [*out, *decoder.finish()]


def reply_of(events: Sequence[ProviderEvent]) -> Reply:
    assert [isinstance(event, Finished) for event in events].count(True) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply
