"""`penstock mcp serve`: Penstock as an MCP server on standard input and output."""

from __future__ import annotations

from penstock.engine.engine import Engine
from penstock.mcp.serving.server import build_server, streaming_of, tasks_of
from penstock.mcp.serving.visits import visiting
from penstock.server.doors.mcp.caller import GatewayVisit
from penstock.server.doors.mcp.endpoint import tasks_file

PLACE = "stdio"
"""Whoever started the server: there is nobody else."""


async def serve_stdio(engine: Engine) -> None:
    """Answer until the client closes its end; everything that the engine can is allowed."""
    tasks = tasks_of(tasks_file(engine.config))
    with visiting(GatewayVisit(lambda: engine, place=PLACE)):
        async with tasks:
            await build_server(tasks, streaming_of()).run_stdio_async()
