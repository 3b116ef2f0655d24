"""What the dialects share about MCP servers that a provider connects to.

A call that such a server answered goes back to the dialect that made it in that dialect's own form.
To any other it is told as text: left out, the answer after it would speak of things that nobody has
said; as a call of a function it would name one that is not declared, which most APIs refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import Problem, UnsupportedOption
from penstock.contract.messages import Audio, Image, JSONObject, MCPCall, Text

_BEARER = "bearer "


def told(call: MCPCall) -> str:
    """The call in words, for a model of another provider; it stands on lines of its own."""
    what = f'The tool "{call.name}"' if call.name else "A tool"
    where = f' of the MCP server "{call.server}"' if call.server else ""
    asked = msgspec.json.encode(call.input, enc_hook=str).decode()
    said = " ".join(
        part.text if isinstance(part, Text) else f"({type(part).__name__.lower()})"
        for part in call.content
    )
    how = "failed" if call.is_error else "answered"
    return f"\n[{what}{where} was called with {asked} and {how}: {said}]\n"


def bearer(headers: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The token of an `Authorization: Bearer` header, and the headers without it."""
    rest = dict(headers)
    for name, value in headers.items():
        if name.lower() == "authorization" and value.lower().startswith(_BEARER):
            del rest[name]
            return value[len(_BEARER) :].strip(), rest
    return None, rest


def refused(model: str, field: str, reason: str) -> UnsupportedOption:
    """The error for what a provider cannot be told about a server; it never holds a value."""
    # Who the provider is, only the caller knows, and fills in.
    error = UnsupportedOption(
        f"{model} does not support this {field}: {reason}",
        options=[field],
        provider="",
        model=model,
    )
    error.problems = (Problem(field, reason),)
    return error


def parts_of(value: Any) -> tuple[Text | Image | Audio, ...]:
    """What a tool answered: MCP's own list of parts, a text, or anything else as its JSON."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, list):
        return tuple(map(_part, cast(list[Any], value)))
    return (Text(msgspec.json.encode(value).decode()),)


def _part(value: Any) -> Text | Image | Audio:
    part: JSONObject = cast(JSONObject, value) if isinstance(value, dict) else {}
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return Image(data=data, mime_type=kind)
        case {"type": "audio", "data": str(data), "mimeType": str(kind)}:
            return Audio(data, kind)
        case _:
            return Text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
