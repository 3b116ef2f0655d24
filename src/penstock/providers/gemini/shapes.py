"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec


class _Shape(msgspec.Struct, gc=False, rename="camel"):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class Call(_Shape):
    """A call of a function; it is never sent in pieces."""

    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None


class Blob(_Shape):
    """Media that the model made."""

    mime_type: str = ""
    data: str = ""


class PartPiece(_Shape):
    """One part of an answer; exactly one of text, calls, answers and media is there."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Call | None = None
    inline_data: Blob | None = None
    # Of the server's own tools; kept as they came, for they go back so.
    tool_call: Any = None
    tool_response: Any = None


class ContentPiece(_Shape):
    """A whole turn, or the next piece of one."""

    parts: list[PartPiece] | None = None


class Candidate(_Shape):
    """One of the answers."""

    content: ContentPiece | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    continuation_token: str | None = None


class ModalityCount(_Shape):
    """The tokens of one modality; they are among the others."""

    modality: str | None = None
    token_count: int | None = None


class WireUsage(_Shape):
    """Tokens as the provider counted them; in a stream, each event holds the sum so far."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: list[ModalityCount] | None = None
    candidates_tokens_details: list[ModalityCount] | None = None


class PromptFeedback(_Shape):
    """What a filter has against the prompt."""

    block_reason: str | None = None


class Answer(_Shape):
    """A whole body, or an event of a stream: both have one shape."""

    candidates: list[Candidate] | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read by `counts.read_counts`."""
    prompt_feedback: PromptFeedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None
