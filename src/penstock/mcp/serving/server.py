"""Puts the MCP server together, for whichever transport."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

from penstock._version import __version__
from penstock.mcp.serving.resources import add_resources
from penstock.mcp.serving.tools import add_tools
from penstock.mcp.serving.visits import present
from penstock.mcp.streaming.extension import StreamingTools
from penstock.mcp.tasks.extension import Tasks
from penstock.mcp.tasks.sqlite import SqliteTasks

NAME = "penstock"
_INSTRUCTIONS = (
    "A gateway to language models. `generate` answers a prompt, `embed` makes vectors, "
    "`count_tokens` counts, `route` explains who would answer, `usage` tells what was used. The "
    "resource penstock://models lists the models."
)


def tasks_of(file: Path) -> Tasks:
    """What runs as a task: `generate`, for whoever asks for it; kept in this file."""
    return Tasks(SqliteTasks(file), tools={"generate": "optional"}, owner=lambda _: present().owner)


def build_server(tasks: Tasks) -> MCPServer[Any]:
    """The server; it serves whoever `visiting` names. The tasks are closed by whoever made them."""
    streaming = StreamingTools()
    with _logging_as_it_is():
        server: MCPServer[Any] = MCPServer(
            NAME,
            title="Penstock",
            version=__version__,
            instructions=_INSTRUCTIONS,
            extensions=[streaming, tasks],
            middleware=[streaming.announce, tasks],
            # Its lists change only when it is started anew, so there is nothing to listen to.
            subscriptions=False,
        )
    add_tools(server)
    add_resources(server)
    return server


@contextmanager
def _logging_as_it_is() -> Generator[None, None, None]:
    """The SDK sets up the log of the whole process, unless somebody has; ours is set up already."""
    root, somebody = logging.getLogger(), logging.NullHandler()
    root.addHandler(somebody)
    try:
        yield
    finally:
        root.removeHandler(somebody)
