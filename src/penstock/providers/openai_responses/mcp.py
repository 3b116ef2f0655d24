"""MCP servers on this wire: tools of type `mcp`, and the items that tell what became of them.

- Nobody is there to approve a call, so `require_approval` is `never`; a provider that asks all the
  same has made the tool unusable, which is ToolFailed.
- An `Authorization: Bearer` header is the field `authorization`; all others are `headers`.
- The list of a server's tools is kept in the `_meta` of the part that follows it and goes back with
  it, as long as the request names that server: the API asks the server again without.
- A server that would not list its tools is an `MCPCall` of MCP's method `tools/list` that failed;
  it does not go back, so that the server is asked again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from penstock.contract.errors import MalformedResponse, ToolFailed
from penstock.contract.messages import Audio, Content, Image, JSONObject, MCPCall, Text
from penstock.contract.options import MCPTool
from penstock.providers.openai_responses.shapes import OutputItem
from penstock.providers.wire.json_body import write_json
from penstock.providers.wire.mcp_calls import bearer, parts_of
from penstock.streaming.assemble import parse_arguments

CALL = "mcp_call"
LISTING = "mcp_list_tools"
APPROVAL = "mcp_approval_request"

LISTINGS = "openai_mcp_tools"
"""The key in `_meta` of the part that followed lists of tools."""
_OWN = "openai_mcp"
"""The key in `_meta` of a call that this wire made: what the other fields do not hold."""
_UNFINISHED = ("in_progress", "calling", "incomplete")


def tool(server: MCPTool) -> JSONObject:
    """The server as one of the tools."""
    token, headers = bearer(server.http_headers)
    wire: JSONObject = {
        "type": "mcp",
        "server_label": server.name,
        "server_url": server.url,
        "require_approval": "never",
    }
    if token is not None:
        wire["authorization"] = token
    if headers:
        wire["headers"] = headers
    if server.allowed_tools is not None:
        wire["allowed_tools"] = server.allowed_tools
    return wire


def is_own(call: MCPCall) -> bool:
    """Whether this wire made the call."""
    # What a caller sends back may be anything.
    return bool(call.meta) and isinstance(call.meta.get(_OWN), dict)


def items_of(call: MCPCall) -> list[JSONObject]:
    """A call of this wire as it goes back."""
    own: JSONObject = (call.meta or {})[_OWN]
    if own.get("listing"):
        return []
    arguments = own.get("arguments")
    item: JSONObject = {
        "type": CALL,
        "id": call.id,
        "server_label": call.server,
        "name": call.name,
        "arguments": write_json(call.input).decode() if arguments is None else arguments,
    }
    error = own.get("error")
    # One of the two is there, or neither.
    return [item | ({"output": call.text} if error is None else {"error": error})]


def listings(part: Content, servers: Collection[str]) -> list[JSONObject]:
    """The lists of tools that came before this part, of servers that the request still names."""
    kept: Any = part.meta.get(LISTINGS) if part.meta else None
    if not isinstance(kept, list):
        return []
    return [
        cast(JSONObject, each)
        for each in cast(list[Any], kept)
        if isinstance(each, dict) and cast(JSONObject, each).get("server_label") in servers
    ]


def listing_of(item: OutputItem) -> JSONObject:
    """A list of tools as it goes back."""
    return {
        "type": LISTING,
        "id": item.id or "",
        "server_label": item.server_label or "",
        "tools": item.tools or [],
    }


def is_finished(item: OutputItem) -> bool:
    """Whether the tool has answered, well or badly."""
    return item.output is not None or item.error is not None or item.status not in _UNFINISHED


def call_of(item: OutputItem) -> MCPCall:
    """The call that a finished item tells of, or the failure to list a server's tools."""
    own: JSONObject = {}
    arguments: JSONObject = {}
    if item.type == LISTING:
        own["listing"] = True
    else:
        try:
            arguments = parse_arguments(item.arguments or "", tool=item.name or "")
        except MalformedResponse:
            # The server has refused it already; it goes back as it came.
            own["arguments"] = item.arguments
    if item.error is not None:
        own["error"] = item.error
    failed = item.error is not None or item.status == "failed"
    return MCPCall(
        item.id or "",
        item.server_label or "",
        "tools/list" if item.type == LISTING else item.name or "",
        arguments,
        _failure(item.error) if item.error is not None else parts_of(item.output),
        failed,
        meta={_OWN: own},
    )


def unapproved(item: OutputItem) -> ToolFailed:
    """The error for a call that the provider will not make without somebody's word."""
    return ToolFailed(
        f"the provider wants an approval for the tool {item.name!r} of the MCP server "
        f"{item.server_label!r}, although it was told that none is needed; allow the tool in the "
        "provider's own settings, or leave it out of allowed_tools"
    )


def _failure(error: Any) -> tuple[Text | Image | Audio, ...]:
    """A protocol or HTTP error has a message, a tool's own failure has content."""
    if isinstance(error, dict):
        found = cast(JSONObject, error)
        return parts_of(found.get("message") or found.get("content") or found)
    return parts_of(error)
