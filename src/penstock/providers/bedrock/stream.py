"""Streams in: the messages of `converse-stream` become events.

The answer ends with `messageStop`; the tokens come behind it, in `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.events import Chunk, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply
from penstock.contract.messages import ToolUse
from penstock.providers.bedrock.blocks import Blocks, TextBlock, ThinkingBlock
from penstock.providers.bedrock.decode import is_callers, reply
from penstock.providers.bedrock.errors import map_stream_error
from penstock.providers.bedrock.shapes import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageStop,
    ReasoningPiece,
    StreamMetadata,
)
from penstock.providers.wire.endings import check_ending, is_cut
from penstock.providers.wire.stream_reader import StreamReader
from penstock.streaming.assemble import CallBuffer
from penstock.streaming.eventstream import EventStreamMessage

_decode_start = msgspec.json.Decoder(ContentBlockStart).decode
_decode_delta = msgspec.json.Decoder(ContentBlockDelta).decode
_decode_block_stop = msgspec.json.Decoder(ContentBlockStop).decode
_decode_stop = msgspec.json.Decoder(MessageStop).decode
_decode_metadata = msgspec.json.Decoder(StreamMetadata).decode

_Events: TypeAlias = list[ProviderEvent]


class ConverseStreamDecoder(StreamReader[EventStreamMessage]):
    """The messages of one answer; it ends with `metadata`, or with the body."""

    __slots__ = ("_blocks", "_foreign", "_headers", "_metadata", "_reason", "_usage")

    end_mark = "messageStop"
    content = "message"

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Expect the first message of a response with these headers."""
        super().__init__()
        # Whatever comes in Amazon's framing, with its checksums, is Amazon's.
        self._begun = True
        self._headers = headers
        self._blocks = Blocks()
        self._foreign: set[int] = set()
        self._reason: str | None = None
        self._usage = msgspec.Raw()
        self._metadata = False

    def _read(self, frames: Sequence[EventStreamMessage], events: _Events) -> None:
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
                        continue
                    self._add(piece, events)
                elif headers.get(":message-type", "event") != "event":
                    raise map_stream_error(headers, frame.payload)
                elif kind == "contentBlockStart":
                    self._start(frame.payload, events)
                elif kind == "contentBlockStop":
                    self._stop(frame.payload, events)
                elif kind == "messageStop":
                    self._reason = _decode_stop(frame.payload).stop_reason
                elif kind == "metadata":
                    self._usage = _decode_metadata(frame.payload).usage
                    self._metadata = True
            except (ValueError, RecursionError) as unread:
                # The counts are no part of the answer, and behind its reason there is no more.
                if kind != "metadata" and self._reason is None:
                    raise self._unreadable(unread) from unread
            if self._metadata and self._reason is not None:
                self._end(events)
                break

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

    def _stop(self, payload: bytes, events: _Events) -> None:
        block = self._blocks.by_index.get(_decode_block_stop(payload).content_block_index)
        # Once: a stop that is repeated without end would repeat all of the thinking.
        if (
            isinstance(block, ThinkingBlock)
            and not block.signed
            and (block.signature or block.redacted)
        ):
            block.signed = True
            events.append(ReasoningDelta("", block.build()))

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
        if not isinstance(block, CallBuffer):
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
            block.signature.append(thought.signature)
        if thought.redacted_content:
            block.redacted.append(thought.redacted_content)

    def _partial(self) -> str:
        return self._blocks.partial_text

    def _reply(self) -> Reply | None:
        reason = self._reason
        if reason is None:
            return None
        check_ending(reason, partial=self._partial())
        content = self._blocks.content(cut=is_cut(reason))
        if any(isinstance(part, ToolUse) and not part.name for part in content):
            raise MalformedResponse("a tool call has no name")
        return reply(content, reason, self._usage, self._headers)
