"""Answers out: a `Result`, or the events of a stream, in the words of Anthropic's Messages.

- `usage` is required on this wire: what the provider did not count is 0. `input_tokens` is what was
  neither read from a cache nor written to one. A stream tells all of it in `message_delta`, as
  nothing is known before.
- `stop_sequence` is what the provider reported or what was found here, or the only one given.
- Thinking that nobody signed has an empty `signature`.
- Pictures and sounds of an answer, and tools that somebody else has run, have no place here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contract.errors import RequestCancelled
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
from penstock.contract.exchange import Result, Usage
from penstock.contract.messages import Content, JSONObject, Reasoning, Text, ToolUse
from penstock.server.answer_headers import stream_end_facts
from penstock.server.doors.anthropic.errors import ANTHROPIC_ERRORS
from penstock.server.doors.anthropic.thinking import seal
from penstock.server.doors.passthrough import appended, extra_of
from penstock.server.errors import failure_of

_STOP_REASONS: Mapping[str, str] = {
    "endTurn": "end_turn",
    "stopSequence": "stop_sequence",
    "maxTokens": "max_tokens",
    "toolUse": "tool_use",
}
_WINDOW_FULL = "model_context_window_exceeded"
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class _Message(msgspec.Struct, gc=False, kw_only=True):
    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[JSONObject]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: _Usage


_encode = msgspec.json.Encoder().encode
WIRE_ANSWER: type[msgspec.Struct] = _Message
"""What is written here, for the OpenAPI document."""


def encode(result: Result, stop_sequences: Sequence[str] = ()) -> bytes:
    """The `message` object; the stop sequences are those of the request."""
    reason = _stop_reason(result)
    message = _encode(
        _Message(
            id=message_id(result.request_id),
            model=result.model,
            content=[block for part in result.content if (block := _block(part))],
            stop_reason=reason,
            stop_sequence=_stop_sequence(reason, result.stop_sequence, stop_sequences),
            usage=_usage(result.usage),
        )
    )
    further = extra_of(result, "anthropic")
    return appended(message, further, _Message.__struct_fields__) if further else message


class EventEncoder:
    """Writes the events of one stream. One block is open at a time, as at Anthropic."""

    __slots__ = ("_begun", "_calls", "_count", "_head", "_open", "_sequences", "_start", "ended")

    def __init__(self, request_id: str, model: str, stop_sequences: Sequence[str] = ()) -> None:
        """The stop sequences are those of the request."""
        message = _Message(
            id=message_id(request_id), model=model, content=[], usage=_usage(Usage())
        )
        self._start = _event(b"message_start", b'"message":' + _encode(message))
        self._sequences = stop_sequences
        self._begun = False
        self._count = 0  # of the blocks that have begun
        self._open = ""  # the type of the last one; empty when it has ended
        self._calls: dict[int, int] = {}  # from the number of a call to that of its block
        self._head = b""  # of the events of an open text
        self.ended = False
        """Whether the stream's last event has been written."""

    def encode(self, events: Sequence[StreamEvent]) -> bytes:
        """These events, one after the other."""
        pieces: list[bytes] = []
        if not self._begun:
            self._begun = True
            pieces += (self._start, _PING)
        head = self._head
        for event in events:
            if type(event) is Chunk:
                if not head:
                    head = self._begin_text(pieces)
                pieces += (head, _encode(event.text), b"}}\n\n")
            else:
                self._other(event, pieces)
                head = self._head
        return b"".join(pieces)

    def _begin_text(self, pieces: list[bytes]) -> bytes:
        self._begin(pieces, "text", b'"text":""')
        self._head = _delta_head(self._count - 1, b"text_delta", b"text")
        return self._head

    def _other(self, event: StreamEvent, pieces: list[bytes]) -> None:
        if isinstance(event, ReasoningDelta):
            self._think(event, pieces)
        elif isinstance(event, ToolUseDelta):
            self._call(event, pieces)
        elif isinstance(event, ToolStarted | ToolEnded):
            # Somebody else runs this tool; a `tool_use` would ask the client to.
            pass
        else:
            self.ended = True
            if isinstance(event, Complete):
                self._complete(event.result, pieces)
                return
            error = (
                event.error if isinstance(event, Error) else RequestCancelled("it was cancelled")
            )
            pieces.append(ANTHROPIC_ERRORS.event(failure_of(error)))

    def _think(self, event: ReasoningDelta, pieces: list[bytes]) -> None:
        signed = event.signed
        if signed is not None and signed.redacted:
            self._begin(pieces, "redacted_thinking", b'"data":' + _encode(seal(signed)))
            self._end(pieces)
            return
        if self._open != "thinking":
            self._begin(pieces, "thinking", b'"thinking":"","signature":""')
        block = self._count - 1
        if event.text:
            pieces.append(_delta(block, b"thinking_delta", b"thinking", event.text))
        if signed is not None:
            pieces.append(_delta(block, b"signature_delta", b"signature", seal(signed)))
            self._end(pieces)

    def _call(self, event: ToolUseDelta, pieces: list[bytes]) -> None:
        block = self._calls.get(event.index)
        if block is None:
            named = b'"id":%b,"name":%b,"input":{}' % (_encode(event.id), _encode(event.name))
            self._begin(pieces, "tool_use", named)
            block = self._calls[event.index] = self._count - 1
        pieces.append(_delta(block, b"input_json_delta", b"partial_json", event.arguments))

    def _begin(self, pieces: list[bytes], kind: str, fields: bytes) -> None:
        self._end(pieces)
        block = b'"index":%d,"content_block":{"type":"%b",%b}' % (
            self._count,
            kind.encode(),
            fields,
        )
        pieces.append(_event(b"content_block_start", block))
        self._open = kind
        self._count += 1

    def _end(self, pieces: list[bytes]) -> None:
        if self._open:
            pieces.append(_event(b"content_block_stop", b'"index":%d' % (self._count - 1)))
            self._open, self._head = "", b""

    def _complete(self, result: Result, pieces: list[bytes]) -> None:
        self._end(pieces)
        reason = _stop_reason(result)
        ending = b'"delta":{"stop_reason":%b,"stop_sequence":%b},"usage":%b' % (
            _encode(reason),
            _encode(_stop_sequence(reason, result.stop_sequence, self._sequences)),
            _encode(_usage(result.usage)),
        )
        marks = stream_end_facts(result.metadata)
        pieces += (marks, _event(b"message_delta", ending), _MESSAGE_STOP)


def message_id(request_id: str) -> str:
    """The id of the answer on this wire; the rest of it is the request's own."""
    return f"msg_{request_id.removeprefix('req_')}"


def _event(name: bytes, fields: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b",%b}\n\n' % (name, name, fields)


def _delta_head(block: int, kind: bytes, field: bytes) -> bytes:
    return (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
        b'"delta":{"type":"%b","%b":' % (block, kind, field)
    )


def _delta(block: int, kind: bytes, field: bytes, value: str) -> bytes:
    return _delta_head(block, kind, field) + _encode(value) + b"}}\n\n"


def _block(part: Content) -> JSONObject | None:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if isinstance(part, ToolUse):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}
    if isinstance(part, Reasoning):
        if part.redacted:
            return {"type": "redacted_thinking", "data": seal(part)}
        return {"type": "thinking", "thinking": part.text, "signature": seal(part)}
    return None


def _stop_reason(result: Result) -> str:
    if result.stop_reason == "maxTokens" and result.metadata.response_status == _WINDOW_FULL:
        return _WINDOW_FULL
    # An unknown reason is no normal end: of the reasons of this wire, `max_tokens` is the nearest.
    known = _STOP_REASONS.get(result.stop_reason)
    return known or ("tool_use" if result.tool_uses else "max_tokens")


def _stop_sequence(reason: str, known: str | None, given: Sequence[str]) -> str | None:
    if reason != "stop_sequence":
        return None
    return known or (given[0] if len(given) == 1 else None)


def _usage(usage: Usage) -> _Usage:
    written, read = usage.cache_write_tokens or 0, usage.cached_input_tokens or 0
    thought = usage.reasoning_tokens
    return _Usage(
        max(0, (usage.input_tokens or 0) - written - read),
        written,
        read,
        usage.output_tokens or 0,
        msgspec.UNSET if thought is None else {"thinking_tokens": thought},
    )
