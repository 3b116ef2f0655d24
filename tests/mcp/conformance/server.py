"""The server that the conformance suite is run against: the official one with our extensions.

`server.py PORT FOLDER`: it keeps its tasks in the folder.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

from penstock.mcp.tasks import SqliteTasks, Tasks
from penstock.server.http.protocol import HttpProtocol
from tests.mcp.conformance import plain, rounds

HOST = "127.0.0.1"
RETRY_MS = 100
CACHEABLE = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


class Events(EventStore):
    """What was sent on each stream, in memory: a client that comes back gets the rest."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        seen = int(last_event_id)
        stream = self._events[seen - 1][0]
        for number, (where, message) in enumerate(self._events[seen:], start=seen + 1):
            if where == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def build(folder: Path) -> MCPServer[Any]:
    """The server with everything that the suite asks for by name."""
    tasks = Tasks(
        SqliteTasks(folder / "tasks.db"),
        tools=rounds.SUPPORT,  # pyright: ignore[reportArgumentType]
        asks_first=rounds.ASKS_FIRST,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with tasks:
            yield {}

    server: MCPServer[Any] = MCPServer(
        "conformance",
        version="1",
        extensions=[tasks],
        middleware=[tasks],
        lifespan=lifespan,
        cache_hints={method: CacheHint(ttl_ms=0) for method in CACHEABLE},
    )
    add_everything(server)
    return server


def add_everything(server: MCPServer[Any]) -> None:
    """Add the tools, resources and prompts that the suite asks for by name."""
    for add in (
        plain.add_tools,
        plain.add_asking_tools,
        plain.add_resources,
        plain.add_prompts,
        rounds.add_rounds,
        rounds.add_task_tools,
    ):
        add(server)

    async def accept(_: ServerRequestContext[Any, Any], __: Any) -> types.EmptyResult:
        return types.EmptyResult()

    low = server._lowlevel_server  # pyright: ignore[reportPrivateUsage]
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)


if __name__ == "__main__":
    app = build(Path(sys.argv[2])).streamable_http_app(
        event_store=Events(), retry_interval=RETRY_MS
    )
    # The HTTP protocol of the gateway; `gateway.py` has the rest of its stack too.
    uvicorn.run(app, host=HOST, port=int(sys.argv[1]), log_level="warning", http=HttpProtocol)
