"""MCP servers on this wire: `mcpServers` among the tools, and the parts that tell of their calls.

- The API has no field for an allow-list, so one is refused by name: nothing would hold the model
  to it.
- `includeServerSideToolInvocations` makes the API show the calls, as parts `toolCall` and
  `toolResponse`, and lets functions stand beside them. Both parts are kept in the call's `_meta`,
  and go back unchanged, as the API asks.
- These parts hold an id, a type of tool and arguments. A name and a server are read where the API
  tells them, and are empty where it does not.
- `functionCallingConfig` speaks of functions only. So "none" leaves the servers out, and "required"
  is refused by name when there are no functions.
"""

from __future__ import annotations

from typing import Any, cast

from penstock.contract.events import ProviderEvent, ToolEnded, ToolStarted
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, JSONObject, MCPCall, Text
from penstock.providers.gemini.shapes import PartPiece
from penstock.providers.wire.mcp_calls import parts_of, refused

SHOW_CALLS = {"includeServerSideToolInvocations": True}
"""What `toolConfig` holds beside servers."""
_CALL = "gemini/toolCall"
_ANSWER = "gemini/toolResponse"
"""The keys in `_meta` of a call that this wire made."""


def servers(model: str, request: SamplingRequest) -> list[JSONObject]:
    """The servers to connect to; raises UnsupportedOption for what the API cannot be told."""
    mode = request.tool_choice.mode if request.tool_choice else "auto"
    if request.mcp_tools and not request.tools and mode == "required":
        raise refused(model, "tool_choice", "the API can require functions only, not MCP tools")
    if mode == "none":
        return []
    wire: list[JSONObject] = []
    for index, tool in enumerate(request.mcp_tools):
        if tool.allowed_tools is not None:
            reason = "the API offers all tools of a server; leave it out"
            raise refused(model, f"mcp_tools[{index}].allowed_tools", reason)
        transport: JSONObject = {"url": tool.url}
        if tool.http_headers:
            transport["headers"] = tool.http_headers
        wire.append({"name": tool.name, "streamableHttpTransport": transport})
    return wire


def is_own(call: MCPCall) -> bool:
    """Whether this wire made the call."""
    return bool(call.meta) and (_CALL in call.meta or _ANSWER in call.meta)


def wire_parts(call: MCPCall) -> list[JSONObject]:
    """A call of this wire as it goes back: what came, unchanged."""
    meta = call.meta or {}
    return [meta[key] for key in (_CALL, _ANSWER) if key in meta]


def add(parts: list[Any], piece: PartPiece, events: list[ProviderEvent]) -> None:
    """Take a call, or the answer to one, and append the event that tells of it."""
    if piece.tool_call is not None:
        call = _call(_object(piece.tool_call), _kept("toolCall", piece.tool_call, piece))
        parts.append(call)
        events.append(ToolStarted(call.id, call.name, call.input, call.server))
    else:
        answer = _object(piece.tool_response)
        place = _waiting(parts, answer.get("id"))
        began = parts[place] if place is not None else None
        if not isinstance(began, MCPCall):
            began = _call(answer, None)
            place = len(parts)
            parts.append(began)
        kept = _kept("toolResponse", piece.tool_response, piece)
        call = _answered(began, answer, {**(began.meta or {}), _ANSWER: kept})
        parts[cast(int, place)] = call
        events.append(ToolEnded(call.id, call.name, call.is_error, call.content))


def _object(value: Any) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


def _kept(name: str, value: Any, piece: PartPiece) -> JSONObject:
    signature = piece.thought_signature
    return {name: value} | ({"thoughtSignature": signature} if signature else {})


def _call(wire: JSONObject, kept: JSONObject | None) -> MCPCall:
    return MCPCall(
        str(wire.get("id") or ""),
        str(wire.get("serverName") or ""),
        str(wire.get("name") or ""),
        _object(wire.get("args")),
        meta={_CALL: kept} if kept else None,
    )


def _waiting(parts: list[Any], id: Any) -> int | None:
    """The place of the call that this answers: that of its id, or the last one without an id."""
    found = [
        place
        for place, part in enumerate(parts)
        if isinstance(part, MCPCall) and part.id == (id or "") and _ANSWER not in (part.meta or {})
    ]
    return found[-1] if found else None


def _answered(call: MCPCall, wire: JSONObject, meta: JSONObject) -> MCPCall:
    said = _object(wire.get("response"))
    failed = said.get("isError") is True or "error" in said
    content: tuple[Text | Image | Audio, ...] = ()
    for key in ("error", "content", "output", "result"):
        if key in said:
            content = parts_of(said[key])
            break
    else:
        content = parts_of(said) if said else ()
    return MCPCall(call.id, call.server, call.name, call.input, content, failed, meta=meta)
