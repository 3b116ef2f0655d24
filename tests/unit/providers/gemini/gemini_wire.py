"""Builders for bodies and events of the Gemini wire."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.providers.gemini.stream import GeminiStreamDecoder
from penstock.streaming.sse import ServerSentEvent

WireEvent: TypeAlias = dict[str, Any] | list[Any] | bytes

USAGE = {
    "promptTokenCount": 11,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 3,
    "totalTokenCount": 23,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 11}],
}
COUNTED = Usage(11, 12, 3, None, 5)


def event(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A whole body or one event of a stream, which have the same shape."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    candidate |= fields
    return {
        "candidates": [candidate],
        "usageMetadata": USAGE,
        "modelVersion": "m-1",
        "responseId": "r1",
    }


def text(piece: str, **fields: Any) -> dict[str, Any]:
    return {"text": piece, **fields}


def call(name: str, args: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    if args is not None:
        function["args"] = args
    if "id" in fields:
        function["id"] = fields.pop("id")
    return {"functionCall": function, **fields}


def body(value: Any) -> bytes:
    return msgspec.json.encode(value)


def frame(value: WireEvent, name: str = "message") -> ServerSentEvent:
    return ServerSentEvent(value if isinstance(value, bytes) else body(value), name)


def run(*events: WireEvent) -> list[ProviderEvent]:
    """Every event in a read of its own, to the end of the body."""
    decoder = GeminiStreamDecoder()
    out: list[ProviderEvent] = []
    for each in events:
        out += decoder.feed([frame(each)])
    return [*out, *decoder.finish()]


def reply_of(events: Sequence[ProviderEvent]) -> Reply:
    assert [isinstance(each, Finished) for each in events].count(True) == 1
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply
