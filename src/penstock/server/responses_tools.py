"""The tools of a Responses request: functions that the caller runs, and MCP servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.contract.options import MCPTool, ToolChoice, ToolDefinition
from penstock.server.errors import unsupported
from penstock.server.openai_chat_decode import MODES


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Filter(_Wire):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class WireTool(_Wire):
    """A tool of any type."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: JSONObject | None = None
    strict: bool | None = None
    server_label: str | None = None
    server_url: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    allowed_tools: list[str] | _Filter | None = None
    require_approval: Any = None
    connector_id: Any = None
    tunnel_id: Any = None


class WireChoice(_Wire, omit_defaults=True):
    """A tool that must be called."""

    type: str = msgspec.field()
    name: str | None = None


def read_tools(
    wire: Sequence[WireTool],
) -> tuple[tuple[ToolDefinition, ...], tuple[MCPTool, ...], tuple[str, ...]]:
    """Functions, servers, and the places of the servers; raises what names the tool."""
    tools: list[ToolDefinition] = []
    servers: list[MCPTool] = []
    places: list[str] = []
    for index, tool in enumerate(wire):
        path = f"tools[{index}]"
        if tool.type == "function":
            tools.append(_function(tool, path))
        elif tool.type == "mcp":
            servers.append(_server(tool, path))
            places.append(path)
        else:
            raise unsupported(
                f"{path}.type",
                f"tools of type {tool.type!r} are not supported here; use functions or MCP servers",
            )
    return tuple(tools), tuple(servers), tuple(places)


def _function(tool: WireTool, path: str) -> ToolDefinition:
    if tool.name is None:
        raise _wrong(f"{path}.name", "is missing")
    nothing: JSONObject = {"type": "object", "properties": {}}
    schema = nothing if tool.parameters is None else tool.parameters
    return ToolDefinition(tool.name, tool.description or "", schema, tool.strict)


def _server(tool: WireTool, path: str) -> MCPTool:
    for name in ("connector_id", "tunnel_id"):
        if getattr(tool, name) is not None:
            raise unsupported(f"{path}.{name}", "only OpenAI has these; give a server_url")
    if tool.require_approval != "never":
        raise unsupported(
            f"{path}.require_approval", "nobody can approve a call here; say 'never' to allow all"
        )
    if tool.server_label is None:
        raise _wrong(f"{path}.server_label", "is missing")
    if tool.server_url is None:
        raise _wrong(f"{path}.server_url", "is missing")
    allowed = tool.allowed_tools
    if isinstance(allowed, _Filter):
        if allowed.read_only is not None:
            raise unsupported(
                f"{path}.allowed_tools.read_only", "cannot be honoured here; name the tools"
            )
        allowed = allowed.tool_names
    headers = dict(tool.headers or {})
    if tool.authorization is not None:
        headers["Authorization"] = f"Bearer {tool.authorization}"
    return MCPTool(tool.server_url, tool.server_label, headers, allowed)


def read_choice(choice: str | WireChoice) -> ToolChoice:
    """Whether a tool may, must or must not be called."""
    if isinstance(choice, str):
        if choice in MODES:
            return MODES[choice]
        raise _wrong("tool_choice", f"{choice!r} is none of auto, none, required")
    if choice.type != "function":
        raise unsupported(
            "tool_choice.type", f"{choice.type!r} is not supported here; use 'function'"
        )
    if choice.name is None:
        raise _wrong("tool_choice.name", "is missing")
    return ToolChoice.tool(choice.name)


def told(tool: WireTool) -> JSONObject:
    """A tool as the response repeats it: nothing of what opens a server is among it."""
    if tool.type == "function":
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        }
    return {
        "type": "mcp",
        "server_label": tool.server_label,
        "server_url": tool.server_url,
        "allowed_tools": tool.allowed_tools,
        "require_approval": tool.require_approval,
    }


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
