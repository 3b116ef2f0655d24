"""Answers out: MCP's result with `usage` and `_metadata`, or the events of a stream.

A stream is chunks and then one of `complete`, `error` and `cancelled`. A chunk is `{"seq",
"content"}`, where the content is

- `{"type": "text", "text"}`: the next piece of the answer;
- `{"type": "reasoning", "text"}`: the next piece of the model's visible thinking, which has no
  place in MCP's result;
- `{"type": "tool_use_delta", "index", "id", "name"}` and then `{"type": "tool_use_delta", "index",
  "arguments"}`: a tool call, its input as fragments of JSON.

`complete` has the whole result, so who wants only that may skip the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contract.events import (
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Result
from penstock.server.doors.sampling.errors import SAMPLING_ERRORS, document
from penstock.server.errors import Failure, failure_of

_encode = msgspec.json.Encoder().encode


def encode(result: Result) -> bytes:
    """The result of `sampling/createMessage`."""
    return _encode(result.to_mcp(extras=True))


class Frames(Protocol):
    """How one wire puts what a stream consists of."""

    chunk_head: bytes
    """What stands before the fields of a chunk."""
    tail: bytes
    """What ends a frame."""

    def complete(self, result: Result) -> bytes:
        """The answer is whole."""
        ...

    def error(self, failure: Failure) -> bytes:
        """It failed."""
        ...

    def cancelled(self) -> bytes:
        """Somebody stopped it."""
        ...


class EventFrames:
    """Server-sent events, named after what they are."""

    chunk_head = b"event: chunk\ndata: {"
    tail = b"\n\n"

    def __init__(self, request_id: str) -> None:
        """The events of one stream."""
        self._request_id = request_id

    def complete(self, result: Result) -> bytes:
        """The data is the result."""
        return b"event: complete\ndata: " + encode(result) + self.tail

    def error(self, failure: Failure) -> bytes:
        """The data is what the body of an error response would be."""
        return SAMPLING_ERRORS.event(failure)

    def cancelled(self) -> bytes:
        """The data names the request."""
        return b"event: cancelled\ndata: " + _encode({"requestId": self._request_id}) + self.tail


class MessageFrames:
    """Messages of a WebSocket, each with the id that its client gave to the request."""

    tail = b""

    def __init__(self, identifier: str | int | None, request_id: str | None) -> None:
        """The messages of one request, or with None and None those about no request."""
        self._head = {"id": identifier, "requestId": request_id}
        if request_id is None:
            del self._head["requestId"]
        self.chunk_head = b'{"type":"chunk","id":%b,' % _encode(identifier)

    def complete(self, result: Result) -> bytes:
        """The answer is whole."""
        return self._message("complete", result=result.to_mcp(extras=True))

    def error(self, failure: Failure) -> bytes:
        """It failed."""
        return self._message("error", error=document(failure))

    def cancelled(self) -> bytes:
        """Somebody stopped it."""
        return self._message("cancelled")

    def _message(self, kind: str, **fields: object) -> bytes:
        return _encode({"type": kind, **self._head, **fields})


class StreamEncoder:
    """Writes the events of one stream, each as one frame."""

    __slots__ = ("_frames", "_next", "ended")

    def __init__(self, frames: Frames) -> None:
        """Chunks are numbered from 0."""
        self._frames = frames
        self._next = 0
        self.ended = False
        """Whether the last event has been written."""

    def encode(self, events: Sequence[StreamEvent]) -> list[bytes]:
        """The frames of these events, in their order."""
        frames: list[bytes] = []
        for event in events:
            if type(event) is Chunk:
                frames.append(self._chunk(b'{"type":"text","text":%b}' % _encode(event.text)))
            elif isinstance(event, ReasoningDelta):
                if not event.text:
                    # A signature alone says nothing that could be shown.
                    continue
                frames.append(self._chunk(b'{"type":"reasoning","text":%b}' % _encode(event.text)))
            elif isinstance(event, ToolUseDelta):
                frames.append(self._chunk(_tool_use(event)))
            elif not isinstance(event, ToolStarted | ToolEnded):
                # The params cannot ask for tools that somebody else calls, so of these there are
                # none unless the model has them by itself; nobody here has to answer them.
                frames.append(self._end(event))
        return frames

    def _chunk(self, content: bytes) -> bytes:
        number = self._next
        self._next += 1
        return b'%b"seq":%d,"content":%b}%b' % (
            self._frames.chunk_head,
            number,
            content,
            self._frames.tail,
        )

    def _end(self, event: StreamEvent) -> bytes:
        self.ended = True
        if isinstance(event, Complete):
            return self._frames.complete(event.result)
        if isinstance(event, Error):
            return self._frames.error(failure_of(event.error))
        return self._frames.cancelled()


def _tool_use(delta: ToolUseDelta) -> bytes:
    if delta.id or delta.name:
        return b'{"type":"tool_use_delta","index":%d,"id":%b,"name":%b,"arguments":%b}' % (
            delta.index,
            _encode(delta.id),
            _encode(delta.name),
            _encode(delta.arguments),
        )
    return b'{"type":"tool_use_delta","index":%d,"arguments":%b}' % (
        delta.index,
        _encode(delta.arguments),
    )
