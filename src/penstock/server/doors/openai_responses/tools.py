"""The tools of a Responses request: functions that the caller runs, and MCP servers."""

from __future__ import annotations

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.contract.options import ToolChoice, ToolDefinition
from penstock.server.doors.openai_chat.decode import MODES
from penstock.server.doors.openai_tools import AnyTool
from penstock.server.errors import unsupported


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class WireTool(AnyTool, kw_only=True):
    """A tool of any type."""

    name: str | None = None
    description: str | None = None
    parameters: JSONObject | None = None
    strict: bool | None = None


class WireChoice(_Wire, omit_defaults=True):
    """A tool that must be called."""

    type: str = msgspec.field()
    name: str | None = None


def read_function(tool: WireTool, path: str) -> ToolDefinition:
    """A function that the caller runs."""
    if tool.name is None:
        raise _wrong(f"{path}.name", "is missing")
    nothing: JSONObject = {"type": "object", "properties": {}}
    schema = nothing if tool.parameters is None else tool.parameters
    return ToolDefinition(tool.name, tool.description or "", schema, tool.strict)


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
