"""Messages and the parts they are made of, in the shapes of MCP sampling.

A part is a frozen struct whose JSON is MCP's own (`{"type": "text", "text": ...}`), so that reading
and writing the wire of the MCP doors needs no translation. `_meta` is kept on every part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

JSONObject: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["user", "assistant", "system"]


class Part(
    msgspec.Struct, frozen=True, tag_field="type", rename="camel", omit_defaults=True, kw_only=True
):
    """What all content parts share."""

    meta: JSONObject | None = msgspec.field(default=None, name="_meta")


class Text(Part, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Image(Part, frozen=True, tag="image"):
    """A picture: base64 `data` with its MIME type, or a `url` the provider fetches itself.

    The data stays base64 because every wire wants it so; `penstock.image(path_or_bytes)` makes one.
    """

    data: str = ""
    mime_type: str = ""
    url: str | None = None


class Audio(Part, frozen=True, tag="audio"):
    """A sound clip: base64 `data` with its MIME type."""

    data: str
    mime_type: str


class ToolUse(Part, frozen=True, tag="tool_use"):
    """The model asks for one call of a tool."""

    id: str
    name: str
    input: JSONObject


class ToolResult(Part, frozen=True, tag="tool_result"):
    """What a tool answered; the id is that of the `ToolUse`."""

    tool_use_id: str
    # A plain default would be left out of the JSON, where MCP requires it; a factory's is not.
    content: tuple[Text | Image | Audio, ...] = msgspec.field(default_factory=lambda: ())
    structured_content: JSONObject | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """All text of the result; the structured content as JSON when there is no text."""
        text = join_text(self.content)
        if not text and self.structured_content is not None:
            return msgspec.json.encode(self.structured_content).decode()
        return text


class Reasoning(Part, frozen=True, tag="reasoning"):
    """Thinking of the model. `signature` is opaque and goes back to its origin unchanged.

    `redacted` marks thinking of which only the signature may be seen. `origin` says who signed it:
    no other provider is sent the part. Parts that a caller makes need none, and are sent to all.
    """

    text: str = ""
    signature: str | None = None
    redacted: bool = False
    origin: str | None = None


class MCPCall(Part, frozen=True, tag="mcp_call"):
    """A tool of an MCP server that the provider itself called, with what the tool answered.

    It stands in an assistant's turn, and there is nothing left for the caller to do. `_meta` holds
    what sends it back to the same provider in its own form; any other provider reads it as text.
    """

    id: str
    server: str
    name: str
    input: JSONObject
    content: tuple[Text | Image | Audio, ...] = msgspec.field(default_factory=lambda: ())
    is_error: bool = False

    @property
    def text(self) -> str:
        """All text of the answer."""
        return join_text(self.content)


Content: TypeAlias = Text | Image | Audio | ToolUse | ToolResult | Reasoning | MCPCall


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One turn of a conversation."""

    role: Role
    content: tuple[Content, ...]
    meta: JSONObject | None = msgspec.field(default=None, name="_meta")

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return join_text(self.content)

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tool calls that this turn asks for."""
        return tuple(part for part in self.content if isinstance(part, ToolUse))


def join_text(parts: Iterable[Content]) -> str:
    """The text of all text parts, one after the other."""
    return "".join(part.text for part in parts if isinstance(part, Text))


def _message(role: Role, content: tuple[str | Content, ...]) -> Message:
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in content))


def user(*content: str | Content) -> Message:
    """A user's turn: `user("What is this?", image("cat.png"))`."""
    return _message("user", content)


def assistant(*content: str | Content) -> Message:
    """An assistant's turn, for histories."""
    return _message("assistant", content)


def system(*content: str | Content) -> Message:
    """Instructions; taken out of the messages and joined with the request's system prompt."""
    return _message("system", content)
