"""Puts the MCP server together, for whichever transport."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams

from penstock._version import __version__
from penstock.mcp.serving.resources import add_resources
from penstock.mcp.serving.tools import make_tools
from penstock.mcp.serving.visits import present
from penstock.mcp.streaming.extension import StreamingTools
from penstock.mcp.streaming.methods import Elsewhere
from penstock.mcp.streaming.wire import STREAM_KEY, AnyRequest, token_of
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


def streaming_of(elsewhere: Elsewhere | None = None) -> StreamingTools:
    """What streams, for the owners that tasks have; `elsewhere` asks the other processes."""
    return _StreamingTools(owner=lambda _: present().owner, elsewhere=elsewhere)


def build_server(tasks: Tasks, streaming: StreamingTools) -> MCPServer[Any]:
    """The server; it serves the caller of `visiting`. The tasks are closed where they were made."""
    with _logging_as_it_is():
        server: MCPServer[Any] = MCPServer(
            NAME,
            title="Penstock",
            version=__version__,
            instructions=_INSTRUCTIONS,
            tools=make_tools(),
            extensions=[streaming, tasks],
            middleware=[streaming.announce, tasks],
            # Its lists change only when it is started anew, so there is nothing to listen to.
            subscriptions=False,
        )
    add_resources(server)
    return server


class _StreamingTools(StreamingTools):
    """A progress token is enough to get the pieces of `generate`, whatever the client declares.

    For the other tools the client must have declared the extension. A legacy client did so in a
    message before, which the caller's session remembers.
    """

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: AnyRequest, call_next: CallNext
    ) -> HandlerResult:
        """Ask for chunks on behalf of a client that listens and does not say how."""
        meta = ctx.meta or {}
        silent = (ctx.params or {}).get("stream") is None and meta.get(STREAM_KEY) is None
        listens = token_of(ctx) is not None
        if silent and listens and (params.name == "generate" or present().streams):
            ctx = dataclasses.replace(ctx, meta=cast(Any, {**meta, STREAM_KEY: True}))
        return await super().intercept_tool_call(params, ctx, call_next)


@contextmanager
def _logging_as_it_is() -> Generator[None, None, None]:
    """The SDK sets up the log of the whole process, unless somebody has; ours is set up already."""
    root, somebody = logging.getLogger(), logging.NullHandler()
    root.addHandler(somebody)
    try:
        yield
    finally:
        root.removeHandler(somebody)
