"""Puts the MCP server together, for whichever transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer

from penstock._version import __version__
from penstock.mcp.serving.resources import add_resources
from penstock.mcp.serving.tools import add_tools

NAME = "penstock"
_INSTRUCTIONS = (
    "A gateway to language models. `generate` answers a prompt, `embed` makes vectors, "
    "`count_tokens` counts, `route` explains who would answer, `usage` tells what was used. The "
    "resource penstock://models lists the models."
)


def build_server(
    *,
    extensions: Sequence[Extension] = (),
    middleware: Sequence[ServerMiddleware[Any]] = (),
) -> MCPServer[Any]:
    """The server; it serves whoever `visiting` names, and holds no state of its own."""
    server: MCPServer[Any] = MCPServer(
        NAME,
        title="Penstock",
        version=__version__,
        instructions=_INSTRUCTIONS,
        extensions=list(extensions),
        middleware=list(middleware),
        # Its lists change only when it is started anew, so there is nothing to listen to.
        subscriptions=False,
        log_level="WARNING",
    )
    add_tools(server)
    add_resources(server)
    return server
