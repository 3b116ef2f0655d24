"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec


class _Shape(msgspec.Struct, rename="camel", gc=False):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class ReasoningText(_Shape):
    """Thinking that may be seen, with the signature that proves it unchanged."""

    text: str = ""
    signature: str | None = None


class ReasoningBlock(_Shape):
    """Thinking, or its encrypted form in base64."""

    reasoning_text: ReasoningText | None = None
    redacted_content: str | None = None


class ToolUseBlock(_Shape):
    """A whole tool call; `type` is set for tools that Bedrock runs itself."""

    tool_use_id: str = ""
    name: str = ""
    input: Any = None
    type: str | None = None


class CitedText(_Shape):
    """A piece of text with a source."""

    text: str | None = None


class CitationsBlock(_Shape):
    """Text that cites its sources."""

    content: list[CitedText] = []


class Block(_Shape):
    """One block of an answer; exactly one field is set."""

    text: str | None = None
    tool_use: ToolUseBlock | None = None
    reasoning_content: ReasoningBlock | None = None
    citations_content: CitationsBlock | None = None


class WireMessage(_Shape):
    """The model's turn."""

    content: list[Block] = []


class Output(_Shape):
    """What holds the turn."""

    message: WireMessage | None = None


class WireUsage(_Shape):
    """Tokens; the cached ones are not among `input_tokens`."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class Answer(_Shape):
    """The body of a 200, or an error that hides in one."""

    output: Output | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read by `counts.read_counts`."""
    kind: str | None = msgspec.field(default=None, name="__type")


class BlockStart(_Shape):
    """What begins: only a tool call says more than its index."""

    tool_use: ToolUseBlock | None = None


class ContentBlockStart(_Shape):
    """`contentBlockStart`."""

    start: BlockStart
    content_block_index: int


class ToolUsePiece(_Shape):
    """The next piece of a call's arguments."""

    input: str = ""


class ReasoningPiece(_Shape):
    """The next piece of thinking."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class BlockDelta(_Shape):
    """The next piece of a block; exactly one field is set."""

    text: str | None = None
    tool_use: ToolUsePiece | None = None
    reasoning_content: ReasoningPiece | None = None


class ContentBlockDelta(_Shape):
    """`contentBlockDelta`."""

    delta: BlockDelta
    content_block_index: int


class ContentBlockStop(_Shape):
    """`contentBlockStop`."""

    content_block_index: int


class MessageStop(_Shape):
    """`messageStop`."""

    stop_reason: str


class StreamMetadata(_Shape):
    """`metadata`, which follows `messageStop`."""

    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read by `counts.read_counts`."""
