"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.providers.openai_wire.usage import InputDetails, OutputDetails


class _Shape(msgspec.Struct, gc=False):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class ContentPart(_Shape):
    """Content in parts, as Mistral sends it: text, or thinking that is made of text parts."""

    text: str | None = None
    thinking: list[ContentPart] | str | None = None


class FunctionPiece(_Shape):
    """The name and the arguments of a call; some servers send the arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCallPiece(_Shape):
    """A whole tool call, or the next piece of one."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


class MessagePiece(_Shape):
    """A whole message, or the next piece of one."""

    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallPiece] | None = None


class WireUsage(_Shape):
    """Tokens as the provider counted them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Perplexity's; they are not among the completion's."""
    prompt_audio_seconds: Any = None
    """Mistral's, which charges for sound by its length."""


class Choice(_Shape):
    """One of the answers: a `message` in a body, a `delta` in a stream."""

    delta: MessagePiece | None = None
    message: MessagePiece | None = None
    finish_reason: str | None = None
    index: int | None = None
    error: Any = None
    """OpenRouter's, which reports here what stopped the provider behind it."""


class Event(_Shape):
    """An event of a stream, without what every event repeats."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    """A `WireUsage`, read by `counts.read_counts`."""
    error: Any = None


class Answer(Event):
    """A whole body, or an event of which the id and the model are still wanted."""

    id: str | None = None
    model: str | None = None
