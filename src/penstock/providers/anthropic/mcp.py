"""MCP servers on this wire, which is a beta of the API: `mcp_servers`, and a toolset for each.

- The API connects by https, and the only header that it passes on is `Authorization: Bearer`, in
  `authorization_token`. Anything else is refused by name, for without it the server would refuse.
- An allow-list is a toolset that is off but for the tools named.
- A call and its answer are blocks of their own, which one `MCPCall` holds. A paused answer may end
  between the two: the call is `pending` then, and its answer comes as one without a name.
- The list of a server's tools is kept in the `_meta` of the part that follows it, and goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Content, JSONObject, MCPCall, Text
from penstock.contract.options import MCPTool
from penstock.providers.wire.mcp_calls import bearer, refused

BETA = {"anthropic-beta": "mcp-client-2025-11-20"}
"""The header of calls that name a server, or tell of one."""
LISTINGS = "anthropic_mcp_tools"
"""The key in `_meta` of the part that followed lists of tools."""
OWN = "anthropic_mcp"
"""The key in `_meta` of a call that this wire made."""
PENDING = "pending"


def servers(tools: Sequence[MCPTool], model: str) -> list[JSONObject]:
    """The servers to connect to; raises UnsupportedOption for what the API cannot be told."""
    return [_server(tool, model, f"mcp_tools[{index}]") for index, tool in enumerate(tools)]


def _server(tool: MCPTool, model: str, path: str) -> JSONObject:
    if not tool.url.lower().startswith("https:"):
        raise refused(model, f"{path}.url", "the API connects to https addresses only")
    token, others = bearer(tool.http_headers)
    if others:
        reason = f"the API sends a server `Authorization: Bearer` only, not {', '.join(others)}"
        raise refused(model, f"{path}.http_headers", reason)
    wire: JSONObject = {"type": "url", "url": tool.url, "name": tool.name}
    if token is not None:
        wire["authorization_token"] = token
    return wire


def toolset(tool: MCPTool) -> JSONObject:
    """The server's tools among the tools."""
    wire: JSONObject = {"type": "mcp_toolset", "mcp_server_name": tool.name}
    if tool.allowed_tools is not None:
        wire["default_config"] = {"enabled": False}
        wire["configs"] = {name: {"enabled": True} for name in tool.allowed_tools}
    return wire


def is_own(call: MCPCall) -> bool:
    """Whether this wire made the call."""
    return bool(call.meta) and OWN in call.meta


def is_used(request: SamplingRequest) -> bool:
    """Whether the request needs the beta: it names a server, or its history tells of one."""
    return bool(request.mcp_tools) or any(
        (isinstance(part, MCPCall) and is_own(part)) or _has_listings(part)
        for message in request.messages
        if message.role == "assistant"
        for part in message.content
    )


def _has_listings(part: Content) -> bool:
    return bool(part.meta) and LISTINGS in part.meta


def listings(part: Content) -> list[JSONObject]:
    """The lists of tools that came before this part."""
    kept: Any = part.meta.get(LISTINGS) if part.meta else None
    return cast(list[JSONObject], kept) if isinstance(kept, list) else []


def blocks_of(call: MCPCall) -> list[JSONObject]:
    """A call of this wire as it goes back: the call, and what was answered."""
    blocks: list[JSONObject] = []
    if call.name:
        blocks.append(
            {
                "type": "mcp_tool_use",
                "id": call.id,
                "name": call.name,
                "server_name": call.server,
                "input": call.input,
            }
        )
    if (call.meta or {})[OWN] != PENDING:
        # The wire refuses empty texts.
        said = [part for part in call.content if isinstance(part, Text) and part.text]
        blocks.append(
            {
                "type": "mcp_tool_result",
                "tool_use_id": call.id,
                "is_error": call.is_error,
                "content": [{"type": "text", "text": part.text} for part in said],
            }
        )
    return blocks
