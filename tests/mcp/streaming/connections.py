"""Clients of the streaming server, by every way and in both eras, and what they hear."""

from __future__ import annotations

import asyncio
import atexit
import functools
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client import ClientExtension
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client

from penstock.mcp.streaming.wire import CHUNK_KEY, STREAM_KEY
from tests.mcp.streaming.server import make_server
from tests.support.mcp.processes import HttpServer

ROOT = Path(__file__).parents[3]
ERAS = ("legacy", "auto")
WAYS = ("memory", "stdio", "http")
SECONDS = 30.0
T = TypeVar("T")


def on_port(port: int) -> list[str]:
    """The command for HTTP."""
    return [sys.executable, "-m", "tests.mcp.streaming.server", str(port)]


@functools.cache
def shared_server() -> HttpServer:
    """One for all tests of this process."""
    server = HttpServer(on_port)
    atexit.register(server.kill)
    server.start()
    return server


class Heard:
    """Every progress notification that a client was told of."""

    def __init__(self) -> None:
        self.notes: list[types.ProgressNotificationParams] = []
        self.opened: list[types.ProgressNotificationParams] = []
        """The notifications that name a stream."""
        self._news = asyncio.Event()

    async def __call__(self, message: IncomingMessage) -> None:
        """For `message_handler`."""
        if isinstance(message, types.ProgressNotification):
            is_opening = STREAM_KEY in (message.params.meta or {})
            (self.opened if is_opening else self.notes).append(message.params)
            self._news.set()

    async def chunks(self, count: int) -> list[dict[str, Any]]:
        """The chunks, when so many are there: the last may come after the result."""
        async with asyncio.timeout(SECONDS):
            while len(self._chunks()) < count:
                self._news.clear()
                await self._news.wait()
        return self._chunks()

    def _chunks(self) -> list[dict[str, Any]]:
        metas = [note.meta or {} for note in self.notes]
        return [meta[CHUNK_KEY] for meta in metas if CHUNK_KEY in meta]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(SECONDS):
        while not await condition():  # noqa: ASYNC110  the condition is in another process
            await asyncio.sleep(0.02)


async def ended(client: Client, name: str) -> None:
    """Return when the generator of this call of `endless` is closed."""

    async def is_closed() -> bool:
        result = await client.call_tool("ended_calls")
        return name in result.structured_content["result"]

    await until(is_closed)


@asynccontextmanager
async def connected(
    way: str,
    era: str,
    heard: Heard | None = None,
    extensions: Sequence[ClientExtension] | None = None,
) -> AsyncGenerator[Client]:
    """A client that is connected this way."""
    target: Any
    if way == "memory":
        target = make_server()
    elif way == "stdio":
        target = StdioServerParameters(
            command=sys.executable, args=["-m", "tests.mcp.streaming.server", "stdio"], cwd=ROOT
        )
    else:
        # A single event may be large here; a client of the SDK takes 1 MiB unless told otherwise.
        target = streamable_http_client(shared_server().url, max_sse_event_size=None)
    async with Client(target, mode=era, message_handler=heard, extensions=extensions) as client:
        yield client


@asynccontextmanager
async def held_open(connection: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
    """In a task of its own: a client must end where it began, and a fixture does not."""
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with connection as value:
            opened.set_result(value)
            await over.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait([task, opened], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield opened.result()
    finally:
        over.set()
        await task


class StreamParams(types.CallToolRequestParams):
    """Params with the field that asks for chunks."""

    stream: Any = None


class StreamRequest(types.Request[StreamParams, Literal["tools/call"]]):
    """A tools/call with it."""

    method: Literal["tools/call"] = "tools/call"
    params: StreamParams


async def call(
    client: Client,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    stream: Any = None,
    meta: dict[str, Any] | None = None,
) -> types.CallToolResult:
    """Call a tool with exactly this in the request."""
    params = StreamParams(name=name, arguments=arguments, stream=stream, _meta=cast("Any", meta))
    return await client.session.send_request(StreamRequest(params=params), types.CallToolResult)
