"""Notifications that nobody has to wait for: a client that does not read stops no work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import Notification

from penstock.mcp.tasks.records import JSON
from penstock.mcp.tasks.wire import RequestContext

MOST_WAITING = 1024
"""So many notifications wait for a slow client; then the oldest are dropped."""
LEAVE_S = 5.0
Send: TypeAlias = Callable[[str, JSON], Awaitable[None]]


def by_request(ctx: RequestContext) -> Send:
    """On the stream of this request, as long as it is open."""

    async def send(method: str, params: JSON) -> None:
        note = Notification[JSON, str](method=method, params=params)
        # The SDK types what the core protocol knows; extensions have notifications of their own.
        await ctx.session.send_notification(note, related_request_id=ctx.request_id)  # pyright: ignore[reportArgumentType]

    return send


def by_connection(ctx: RequestContext) -> Send:
    """On the connection itself, which lasts longer than the request."""

    async def send(method: str, params: JSON) -> None:
        note = Notification[JSON, str](method=method, params=params)
        await ctx.session.send_notification(note)  # pyright: ignore[reportArgumentType]

    return send


class Outbox:
    """Sends in order, in a task of its own."""

    def __init__(self, send: Send) -> None:
        """Nothing is sent before `put`."""
        self._send = send
        self._waiting: asyncio.Queue[tuple[str, JSON] | None] = asyncio.Queue(MOST_WAITING)
        self._sender: asyncio.Task[None] | None = None

    def put(self, method: str, params: JSON) -> None:
        """Send it when its turn comes."""
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        self._put((method, params))

    async def aclose(self) -> None:
        """Send what is waiting, as far as the client takes it soon."""
        if self._sender is None:
            return
        self._put(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._sender, LEAVE_S)

    def _put(self, item: tuple[str, JSON] | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(item)

    async def _send_all(self) -> None:
        while (item := await self._waiting.get()) is not None:
            try:
                await self._send(*item)
            except (MCPError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the client has gone; what it missed it can ask for
