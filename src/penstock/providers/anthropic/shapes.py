"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec


class _Shape(msgspec.Struct, gc=False):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class Block(_Shape):
    """A content block: whole in a body, only begun in a stream."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    # Blocks of the server's own tools have inputs and contents of other types.
    input: Any = None
    content: Any = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    server_name: str | None = None
    mcp_server_name: str | None = None
    tools: Any = None


class OutputDetails(_Shape):
    """The answer's tokens by kind."""

    thinking_tokens: int | None = None


class WireUsage(_Shape):
    """Tokens as the provider counted them; `input_tokens` is only the uncached rest."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(_Shape):
    """Why the model refused."""

    category: str | None = None
    explanation: str | None = None


class Answer(_Shape):
    """A whole message, or the one that begins a stream."""

    type: str = ""
    id: str | None = None
    model: str | None = None
    content: list[Block] | None = None
    stop_reason: str | None = None
    stop_sequence: Any = None
    stop_details: StopDetails | None = None
    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read apart from the rest."""
    error: Any = None


class Delta(_Shape):
    """The next piece of a block, or what is new about the message."""

    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: Any = None
    stop_details: StopDetails | None = None


class Event(_Shape):
    """An event of a stream, of any type."""

    type: str
    index: int = 0
    delta: Delta | None = None
    content_block: Block | None = None
    message: Answer | None = None
    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read apart from the rest."""
    error: Any = None
