"""Streams in: the messages of `converse-stream` become events.

The answer ends with `messageStop`; the tokens come behind it, in `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from penstock.contract.errors import (
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.messages import ToolUse
from penstock.providers.bedrock.blocks import Blocks, CallBlock, TextBlock
from penstock.providers.bedrock.decode import check, is_callers, is_cut, reply
from penstock.providers.bedrock.errors import map_stream_error
from penstock.providers.bedrock.shapes import (
    ContentBlockDelta,
    ContentBlockStart,
    MessageStop,
    ReasoningPiece,
    StreamMetadata,
    WireUsage,
)
from penstock.streaming.eventstream import EventStreamMessage

_decode_start = msgspec.json.Decoder(ContentBlockStart).decode
_decode_delta = msgspec.json.Decoder(ContentBlockDelta).decode
_decode_stop = msgspec.json.Decoder(MessageStop).decode
_decode_metadata = msgspec.json.Decoder(StreamMetadata).decode

_Events: TypeAlias = list[ProviderEvent]


class ConverseStreamDecoder:
    """Turns the messages of one stream into deltas and, at its end, the whole reply.

    A typed error that follows deltas in the same batch is raised by the next call, so that no text
    that has arrived is lost.
    """

    __slots__ = (
        "_blocks",
        "_ended",
        "_error",
        "_foreign",
        "_headers",
        "_metadata",
        "_reason",
        "_usage",
        "malformed",
    )

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Expect the first message of a response with these headers."""
        self._headers = headers
        self._blocks = Blocks()
        self._foreign: set[int] = set()
        self._reason: str | None = None
        self._usage: WireUsage | None = None
        self._metadata = False
        self._ended = False
        self._error: PenstockError | None = None
        self.malformed = 0
        """How many messages were skipped because they could not be read."""

    def feed(self, frames: Sequence[EventStreamMessage]) -> list[ProviderEvent]:
        """The deltas that these messages hold; `Finished` comes with `metadata`."""
        self._raise_held()
        events: _Events = []
        if self._ended:
            return events
        blocks = self._blocks.by_index
        for frame in frames:
            headers = frame.headers
            kind = headers.get(":event-type")
            try:
                if kind == "contentBlockDelta":
                    piece = _decode_delta(frame.payload)
                    text = piece.delta.text
                    # Most messages end here: they are one more piece of a text.
                    if text and isinstance(
                        block := blocks.get(piece.content_block_index), TextBlock
                    ):
                        block.pieces.append(text)
                        events.append(Chunk(text))
                    else:
                        self._add(piece, events)
                elif headers.get(":message-type", "event") != "event":
                    self._fail(map_stream_error(headers, frame.payload))
                elif kind == "contentBlockStart":
                    self._start(frame.payload, events)
                elif kind == "messageStop":
                    self._stop(frame.payload, events)
                elif kind == "metadata":
                    self._measure(frame.payload, events)
            except (ValueError, RecursionError):
                self.malformed += 1
            if self._ended:
                break
        if not events:
            self._raise_held()
        return events

    def finish(self) -> list[ProviderEvent]:
        """The end of the body: `Finished`, unless `metadata` brought it already."""
        events: _Events = []
        if not self._ended:
            self._end(events)
        self._raise_held()
        return events

    def _start(self, payload: bytes, events: _Events) -> None:
        begun = _decode_start(payload)
        call, index = begun.start.tool_use, begun.content_block_index
        if call is None:
            return
        if not is_callers(call.type):
            self._foreign.add(index)
            return
        block = self._blocks.begin_call(index, call.tool_use_id, call.name)
        events.append(ToolUseDelta(block.slot, call.tool_use_id, call.name))

    def _add(self, piece: ContentBlockDelta, events: _Events) -> None:
        delta, index = piece.delta, piece.content_block_index
        if delta.text:
            if (text := self._blocks.text(index)) is None:
                raise ValueError("text inside of another block")
            text.pieces.append(delta.text)
            events.append(Chunk(delta.text))
        elif delta.tool_use is not None:
            self._add_arguments(index, delta.tool_use.input, events)
        elif delta.reasoning_content is not None:
            self._add_thought(index, delta.reasoning_content, events)

    def _add_arguments(self, index: int, arguments: str, events: _Events) -> None:
        if index in self._foreign:
            return
        block = self._blocks.by_index.get(index)
        if not isinstance(block, CallBlock):
            raise ValueError("arguments of a call that never began")
        if arguments:
            block.pieces.append(arguments)
            events.append(ToolUseDelta(block.slot, arguments=arguments))

    def _add_thought(self, index: int, thought: ReasoningPiece, events: _Events) -> None:
        if (block := self._blocks.thinking(index)) is None:
            raise ValueError("thinking inside of another block")
        if thought.text:
            block.pieces.append(thought.text)
            events.append(ReasoningDelta(thought.text))
        if thought.signature:
            block.signature = (block.signature or "") + thought.signature
        if thought.redacted_content:
            block.redacted.append(thought.redacted_content)

    def _stop(self, payload: bytes, events: _Events) -> None:
        self._reason = _decode_stop(payload).stop_reason
        if self._metadata:
            self._end(events)

    def _measure(self, payload: bytes, events: _Events) -> None:
        self._usage = _decode_metadata(payload).usage
        self._metadata = True
        if self._reason is not None:
            self._end(events)

    def _end(self, events: _Events) -> None:
        self._ended = True
        try:
            events.append(self._finished())
        except PenstockError as error:
            self._error = error

    def _finished(self) -> Finished:
        reason, partial = self._reason, self._blocks.partial_text
        if reason is None:
            raise StreamInterrupted("the stream ended before messageStop came", partial=partial)
        check(reason, partial)
        content = self._blocks.content(cut=is_cut(reason))
        if any(isinstance(part, ToolUse) and not part.name for part in content):
            raise MalformedResponse("a tool call has no name")
        return Finished(reply(content, reason, self._usage, self._headers))

    def _fail(self, error: PenstockError) -> None:
        self._ended = True
        self._error = error

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
