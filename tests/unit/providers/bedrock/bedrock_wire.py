"""Builders for bodies and messages of the Converse wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import Message, user
from penstock.providers.bedrock import DIALECT
from penstock.providers.bedrock.stream import ConverseStreamDecoder
from penstock.providers.wire.dialect import WireCall
from penstock.streaming.eventstream import EventStreamMessage

USAGE = {
    "inputTokens": 11,
    "outputTokens": 7,
    "totalTokens": 23,
    "cacheReadInputTokens": 3,
    "cacheWriteInputTokens": 2,
}
COUNTED = Usage(16, 7, 3, 2)
HEADERS = {"x-amzn-requestid": "id-1"}


def request(*messages: Message, **options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"max_tokens": 64, **options}
    return SamplingRequest(messages=messages or (user("Hi"),), **fields)


def call(
    asked: SamplingRequest | None = None, model: str = "m", *, stream: bool = False
) -> WireCall:
    profile = DIALECT.catalogue.profile("bedrock", model, {})
    return DIALECT.encode(model, asked or request(), profile, stream)


def encoded(asked: SamplingRequest, model: str = "m") -> dict[str, Any]:
    written = call(asked, model).body
    assert written is not None
    return msgspec.json.decode(written)


def body(*content: dict[str, Any], stop: str = "end_turn", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": list(content)}
    return msgspec.json.encode({"output": {"message": message}, "stopReason": stop, **fields})


def event(kind: str, payload: dict[str, Any] | bytes) -> EventStreamMessage:
    headers = {":event-type": kind, ":message-type": "event", ":content-type": "application/json"}
    written = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return EventStreamMessage(headers, written)


def failure(kind: str, payload: dict[str, Any] | bytes = b"{}") -> EventStreamMessage:
    headers = {":exception-type": kind, ":message-type": "exception"}
    written = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return EventStreamMessage(headers, written)


def start(index: int, id: str, name: str, **more: Any) -> EventStreamMessage:
    tool = {"toolUse": {"toolUseId": id, "name": name, **more}}
    return event("contentBlockStart", {"contentBlockIndex": index, "start": tool})


def delta(index: int, **piece: Any) -> EventStreamMessage:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": piece})


def arguments(index: int, text: str) -> EventStreamMessage:
    return delta(index, toolUse={"input": text})


def thought(index: int, **piece: Any) -> EventStreamMessage:
    return delta(index, reasoningContent=piece)


def block_stop(index: int) -> EventStreamMessage:
    return event("contentBlockStop", {"contentBlockIndex": index})


def stop(reason: str = "end_turn") -> EventStreamMessage:
    return event("messageStop", {"stopReason": reason})


def metadata(**usage: Any) -> EventStreamMessage:
    return event("metadata", {"usage": usage or USAGE, "metrics": {"latencyMs": 1}})


START = event("messageStart", {"role": "assistant"})


def feed(*frames: EventStreamMessage) -> tuple[ConverseStreamDecoder, list[ProviderEvent]]:
    decoder = ConverseStreamDecoder(HEADERS)
    return decoder, decoder.feed(frames)


def finished(events: Sequence[ProviderEvent]) -> Reply:
    ends = [each for each in events if isinstance(each, Finished)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return ends[0].reply
