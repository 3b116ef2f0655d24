"""The messages of a request as `contents`: turns of `user` and `model`, made of parts.

What the wire cannot say is decided here, once:

- A tool's result needs its function's name, which is found at the matching call.
- A failed tool is a response with `error` in place of `output`, as the API asks for.
- Pictures in a tool's result are a part of it where the model takes them so (`result_media`);
  anything else follows at the end of the same turn, each under a line that names its call.
- A call of an MCP server goes back as its own parts if this wire made it, and as text otherwise.
- Thinking goes back when it is signed. What is not signed is a summary that the API does not want.
- A signature that came with a call, a text or a picture is kept in its `_meta`, and goes back with
  it. Newer models refuse a turn whose first call has none (`signed_calls`), which is the case for
  calls of other providers' models; Google documents a placeholder for them. Only calls since the
  user last spoke are checked, so only they get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Message,
    Part,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.providers.gemini import mcp
from penstock.providers.wire.mcp_calls import told
from penstock.providers.wire.multi_call import PAUSE_MARK

SIGNATURE = "gemini/thoughtSignature"
"""The key in `_meta` of a part."""
CONTINUATION = f"gemini{PAUSE_MARK}"
"""The key in `_meta` of the turn, and of the part, that a continued answer hangs on."""
_IMAGE_TYPES: Mapping[str, str] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
}
"""By the ending of an address; without a type, the server goes by what it fetches."""
_UNSIGNED = "skip_thought_signature_validator"


def encode_contents(messages: Sequence[Message], options: Mapping[str, Any]) -> list[JSONObject]:
    """All turns but the system's."""
    names: dict[str, str] = {}
    wire: list[JSONObject] = []
    checked = _last_words(messages) if options.get("signed_calls") else len(messages)
    for number, message in enumerate(messages):
        if message.role == "system" or continuation_token(message.meta):
            continue
        if message.role == "assistant":
            names |= {use.id: use.name for use in message.tool_uses}
            parts = _model_parts(message, number, number > checked)
            role = "model"
        else:
            parts = _user_parts(message, number, names, bool(options.get("result_media")))
            role = "user"
        # A turn of dropped thinking only would be refused as empty.
        if parts or not message.content:
            wire.append({"role": role, "parts": parts or [{"text": ""}]})
    return wire


def continuation_token(meta: JSONObject | None) -> str | None:
    """The token that a paused answer left, if this is the `_meta` of its turn or part."""
    token: Any = meta.get(CONTINUATION) if meta else None
    return token if isinstance(token, str) else None


def _last_words(messages: Sequence[Message]) -> int:
    """The place of the last turn in which the user says something, or -1."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "user" and not all(isinstance(p, ToolResult) for p in message.content):
            return place
    return -1


def _model_parts(message: Message, number: int, signed_calls: bool) -> list[JSONObject]:
    parts: list[JSONObject] = []
    first_call = True
    for place, part in enumerate(message.content):
        wire: JSONObject
        if isinstance(part, Reasoning):
            if part.signature:
                wire = {"text": part.text, "thought": True, "thoughtSignature": part.signature}
                parts.append(wire)
            continue
        if isinstance(part, MCPCall) and mcp.is_own(part):
            parts += mcp.wire_parts(part)
            continue
        if isinstance(part, ToolUse):
            wire = {"functionCall": {"id": part.id, "name": part.name, "args": part.input}}
            if first_call and signed_calls:
                wire["thoughtSignature"] = _UNSIGNED
            first_call = False
        else:
            wire = _part(part, f"messages[{number}].content[{place}]", "a model's turn")
        if signature := _signature(part):
            wire["thoughtSignature"] = signature
        parts.append(wire)
    return parts


def _signature(part: Part) -> str | None:
    value: Any = part.meta.get(SIGNATURE) if part.meta else None
    return value if isinstance(value, str) and value else None


def _user_parts(
    message: Message, number: int, names: Mapping[str, str], result_media: bool
) -> list[JSONObject]:
    parts: list[JSONObject] = []
    loose: list[JSONObject] = []
    for place, part in enumerate(message.content):
        path = f"messages[{number}].content[{place}]"
        if isinstance(part, ToolResult):
            name = names.get(part.tool_use_id)
            if name is None:
                raise _refused(f"{path}.tool_use_id", "no call before has this id")
            parts.append({"functionResponse": _response(part, name, result_media, loose)})
        elif not isinstance(part, Reasoning):
            parts.append(_part(part, path, "a user's turn"))
    return parts + loose


def _response(
    result: ToolResult, name: str, result_media: bool, loose: list[JSONObject]
) -> JSONObject:
    text = result.text
    held: list[JSONObject] = []
    for inner in result.content:
        if isinstance(inner, Text):
            continue
        if result_media and isinstance(inner, Image) and not inner.url:
            held.append(_media(inner))
        else:
            loose += [{"text": f"From the tool call {result.tool_use_id}:"}, _media(inner)]
    said = {"error": text or "the tool failed without a message"}
    response: JSONObject = {
        "id": result.tool_use_id,
        "name": name,
        "response": said if result.is_error else {"output": text},
    }
    if held:
        response["parts"] = held
    return response


def _part(part: Content, path: str, turn: str) -> JSONObject:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Image | Audio):
        return _media(part)
    if isinstance(part, MCPCall):
        return {"text": told(part)}
    raise _refused(path, f"{turn} holds no {type(part).__name__}")


def _media(part: Image | Audio) -> JSONObject:
    if isinstance(part, Image) and part.url:
        file: JSONObject = {"fileUri": part.url}
        ending = part.url.partition("?")[0].rpartition(".")[2].lower()
        if kind := part.mime_type or _IMAGE_TYPES.get(ending):
            file["mimeType"] = kind
        return {"fileData": file}
    return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}


def _refused(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, f"on Gemini, {message}")])
