"""Tools as both of OpenAI's doors take them: the caller's own functions, and MCP servers.

The doors write a function differently, and a server alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.options import MCPTool, ToolDefinition
from penstock.server.errors import unsupported

_FIELDS: Mapping[str, str] = {
    ".url": ".server_url",
    ".name": ".server_label",
    ".http_headers": ".headers",
}
"""Ours, where the wire has other names."""
_SERVER = re.compile(r"mcp_tools\[(\d{1,9})\](.*)", re.DOTALL)


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Filter(_Wire):
    tool_names: list[str] | None = None
    read_only: bool | None = None


class AnyTool(_Wire, kw_only=True):
    """A tool of any type, with the fields of a server; each door adds those of its functions."""

    type: str
    server_label: str | None = None
    server_url: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    allowed_tools: list[str] | _Filter | None = None
    require_approval: Any = None
    connector_id: Any = None
    tunnel_id: Any = None


Tool = TypeVar("Tool", bound=AnyTool)


def read_tools(
    wire: Sequence[Tool], function: Callable[[Tool, str], ToolDefinition]
) -> tuple[tuple[ToolDefinition, ...], tuple[MCPTool, ...], tuple[str, ...]]:
    """Functions, servers, and the places of the servers; raises what names the tool.

    `function` reads a function, given its path.
    """
    tools: list[ToolDefinition] = []
    servers: list[MCPTool] = []
    places: list[str] = []
    for index, tool in enumerate(wire):
        path = f"tools[{index}]"
        if tool.type == "function":
            tools.append(function(tool, path))
        elif tool.type == "mcp":
            servers.append(_server(tool, path))
            places.append(path)
        else:
            raise unsupported(
                f"{path}.type",
                f"tools of type {tool.type!r} are not supported here; use functions or MCP servers",
            )
    return tuple(tools), tuple(servers), tuple(places)


def _server(tool: AnyTool, path: str) -> MCPTool:
    for name in ("connector_id", "tunnel_id"):
        if getattr(tool, name) is not None:
            raise unsupported(f"{path}.{name}", "only OpenAI has these; give a server_url")
    if tool.require_approval != "never":
        raise unsupported(
            f"{path}.require_approval", "approval is not possible here; write 'never' to allow all"
        )
    if tool.server_label is None:
        raise _missing(f"{path}.server_label")
    if tool.server_url is None:
        raise _missing(f"{path}.server_url")
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


def in_callers_places(path: str, places: Sequence[str]) -> str:
    """The path of a server, or of a field of one, as the caller wrote it; other paths as they are.

    `places` says where each server stands among the caller's tools.
    """
    if path == "mcp_tools":
        return "tools"
    match = _SERVER.fullmatch(path)
    if match is None or int(match[1]) >= len(places):
        return path
    return places[int(match[1])] + _FIELDS.get(match[2], match[2])


def _missing(path: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, "is missing")])
