"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.providers.openai_wire.usage import InputDetails, OutputDetails


class _Shape(msgspec.Struct, gc=False):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class ContentPart(_Shape):
    """A part of a message or of a thought: its text, or a refusal."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class OutputItem(_Shape):
    """A message, a call, a thought or a list of tools; items of other kinds are not read."""

    type: str = ""
    id: str | None = None
    content: list[ContentPart] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    summary: list[ContentPart] | None = None
    encrypted_content: str | None = None
    status: str | None = None
    # Of an MCP server.
    server_label: str | None = None
    output: Any = None
    error: Any = None
    tools: Any = None


class WireUsage(_Shape):
    """Tokens as the provider counted them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class IncompleteDetails(_Shape):
    """Why a response is not complete."""

    reason: str | None = None


class Response(_Shape):
    """The response itself; its items are read one by one, so that a foreign one harms no other."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    error: Any = None
    incomplete_details: IncompleteDetails | None = None
    output: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read by `counts.read_counts`."""


class Event(_Shape):
    """An event of a stream."""

    type: str = ""
    delta: str | None = None
    arguments: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: Response | None = None
    error: Any = None
