"""What an upstream received, read back from its wire into neutral values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock import Audio, MCPTool, Message, ToolChoice, ToolDefinition


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One HTTP request; header names are lower-case, and the path has no query."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A generation request. What the wire did not carry is None, or empty.

    Messages are in the contract's own shapes, so that a check compares them with what was asked:
    tool results are parts of a user's turn, neighbouring results of one turn are together, and a
    failed one is marked by `is_error` however the dialect says it.
    """

    model: str
    stream: bool | None
    """None where the upstream cannot tell."""
    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    mcp_tools: tuple[MCPTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    schema: Mapping[str, Any] | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_level: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What only the renderer of the same dialect has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEmbedding:
    """One embedding call: a part of the caller's texts, if the wire limits their number."""

    model: str
    texts: tuple[str, ...]
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class SeenCount:
    """A prompt that was to be counted and not answered."""

    prompt: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTranscription:
    """One recording, by a call of its own or in a prompt that asks for its words."""

    model: str
    audio: bytes
    mime_type: str
    hints: tuple[str, ...] = ()
    """All that was said about it."""
    temperature: float | None = None


def heard_in(seen: Seen) -> SeenTranscription | None:
    """The recording in a generation request; None when there is none."""
    parts = [part for message in seen.messages for part in message.content]
    sound = next((part for part in parts if isinstance(part, Audio)), None)
    if sound is None:
        return None
    return SeenTranscription(
        model=seen.model,
        audio=base64.b64decode(sound.data, validate=True),
        mime_type=sound.mime_type,
        hints=tuple(message.text for message in seen.messages),
        temperature=seen.temperature,
    )


Asked: TypeAlias = Seen | SeenCount | SeenEmbedding | SeenTranscription
"""What a call may be, other than the list of models."""
