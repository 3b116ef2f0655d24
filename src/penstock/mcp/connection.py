"""One connection to one MCP server: opened when first needed, and again after it was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar, cast

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from penstock.mcp.connection_limit import ConnectionLimit, Place
from penstock.mcp.http import is_refusal

T = TypeVar("T")
Work: TypeAlias = Callable[[Client], Awaitable[T]]


class ServerLost(Exception):
    """The server went away, or was never there; `unsent` says that it cannot have seen the call."""

    def __init__(self, reason: str, *, unsent: bool = False) -> None:
        """In words for people."""
        super().__init__(reason)
        self.unsent = unsent


class Connection:
    """Runs work on a client; a client lives in a task of its own, for it must end where it began.

    `watch` runs beside the client as long as it lives, and may end before it.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        *,
        timeout_s: float,
        idle_s: float,
        watch: Callable[[Client], Awaitable[None]] | None = None,
        limit: ConnectionLimit | None = None,
        owner: str | None = None,
    ) -> None:
        """Nothing is opened yet; `connect` makes a client that was never entered.

        `timeout_s` limits connecting; after `idle_s` without work the connection is closed. While
        it is open it counts towards `limit`, as one of the `owner`.
        """
        self._connect = connect
        self._idle_s = idle_s
        self._timeout_s = timeout_s
        self._watch = watch
        self._limit = limit
        self._owner = owner
        self._session: _Session | None = None
        self._gate = asyncio.Lock()
        self._works = 0
        self._last_work = 0.0

    @property
    def idle_since(self) -> float | None:
        """When its last work ended, by the loop's clock; None while it works or opens."""
        return None if self._works else self._last_work

    async def run(self, work: Work[T], *, repeatable: bool = False) -> T:
        """What the work gives; raises ServerLost, or the MCPError that the server answers with.

        When the connection is lost, the work is done once more on a new one, if it is `repeatable`
        or cannot have reached the server.
        """
        self._works += 1
        try:
            session = await self._open()
            try:
                return await session.run(work)
            except ServerLost as lost:
                if not (repeatable or lost.unsent):
                    raise
            return await (await self._open()).run(work)
        finally:
            self._works -= 1
            self._last_work = asyncio.get_running_loop().time()
            if self._limit is not None:
                self._limit.wake()

    async def aclose(self) -> None:
        """End the connection; the next work opens a new one."""
        async with self._gate:
            session, self._session = self._session, None
        if session is not None:
            await session.aclose()

    async def _open(self) -> _Session:
        async with self._gate:
            if self._session is None or self._session.ended:
                place = await self._place()
                self._session = _Session(self._connect, self._watch, self._idle_s)
                if place is not None:
                    self._session.on_end(place.leave)
            session = self._session
        await session.ready(self._timeout_s)
        return session

    async def _place(self) -> Place | None:
        if self._limit is None:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._limit.enter(self, self._owner)
        except TimeoutError as error:
            raise ServerLost(
                f"too many connections to MCP servers are in use, and none ended within "
                f"{self._timeout_s:g} s; try again later, or raise limits.max_mcp_connections and "
                "limits.max_mcp_connections_per_key"
            ) from error


class _Session:
    """A client from its beginning to its end."""

    def __init__(
        self,
        connect: Callable[[], Client],
        watch: Callable[[Client], Awaitable[None]] | None,
        idle_s: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._idle_s = idle_s
        self._works = 0
        self._last_work = loop.time()
        self._leaving = False
        self._closing = asyncio.Event()
        self._client: asyncio.Future[Client] = loop.create_future()
        self._reason: BaseException | None = None
        self._task = asyncio.create_task(self._live(connect, watch))

    @property
    def ended(self) -> bool:
        return self._leaving or self._task.done()

    def on_end(self, function: Callable[[], None]) -> None:
        self._task.add_done_callback(lambda _: function())

    async def ready(self, timeout_s: float) -> None:
        await asyncio.wait({self._client, self._task}, timeout=timeout_s, return_when=_FIRST)
        if self._client.done():
            return
        if not self._task.done():
            await self.aclose()
            raise ServerLost(f"no connection within {timeout_s:g} s")
        raise self._lost()

    async def run(self, work: Work[T]) -> T:
        client = self._client.result()
        self._works += 1
        call = asyncio.ensure_future(work(client))
        try:
            await asyncio.wait({call, self._task}, return_when=_FIRST)
            if not call.done():
                raise self._lost()
            return call.result()
        except MCPError as error:
            # A server that is being started anew is not there, or does not know the session.
            unsent = is_refusal(error)
            if not unsent and error.code != CONNECTION_CLOSED:
                raise
            await self.aclose()
            raise self._lost(error, unsent=unsent) from error
        finally:
            self._works -= 1
            self._last_work = asyncio.get_running_loop().time()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def aclose(self) -> None:
        self._closing.set()
        if not self._client.done():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _live(
        self,
        connect: Callable[[], Client],
        watch: Callable[[Client], Awaitable[None]] | None,
    ) -> None:
        try:
            async with connect() as client:
                watcher = asyncio.ensure_future(watch(client)) if watch else None
                self._last_work = asyncio.get_running_loop().time()
                self._client.set_result(client)
                try:
                    await self._until_idle()
                    self._leaving = True
                finally:
                    if watcher is not None:
                        watcher.cancel()
                        with contextlib.suppress(asyncio.CancelledError, Exception):
                            await watcher
        except Exception as error:  # noqa: BLE001 - told to everybody whose work it stops
            self._reason = error

    async def _until_idle(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self._closing.is_set():
            left = self._idle_s if self._works else self._last_work + self._idle_s - clock()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), left)

    def _lost(self, told: MCPError | None = None, *, unsent: bool = False) -> ServerLost:
        """By what ended the client, which says more than what a caller was told of it."""
        cause = _root(self._reason) or told
        if cause is None:
            return ServerLost("the connection was closed", unsent=unsent)
        return ServerLost(str(cause) or type(cause).__name__, unsent=unsent)


_FIRST = asyncio.FIRST_COMPLETED


def _root(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        group = cast(BaseExceptionGroup[BaseException], error)
        return _root(group.exceptions[0])
    return error
