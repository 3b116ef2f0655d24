"""How many connections to MCP servers may be open at once, in all and for each owner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol


class Closable(Protocol):
    """A connection that can make room for another one."""

    @property
    def idle_since(self) -> float | None:
        """When its last work ended, by the loop's clock; None while it works or opens."""
        ...

    async def aclose(self) -> None:
        """End it; the next work opens it again."""
        ...


class Place:
    """One open connection among those that are allowed."""

    __slots__ = ("_limit", "closing", "connection", "owner")

    def __init__(self, limit: ConnectionLimit, connection: Closable, owner: str | None) -> None:
        """Made by `ConnectionLimit.enter`."""
        self._limit = limit
        self.connection = connection
        self.owner = owner
        self.closing = False
        """Whether it is being closed to make room, so that only one connection waits for it."""

    def leave(self) -> None:
        """The connection is closed."""
        self._limit.remove(self)


class ConnectionLimit:
    """Counts open connections; a new one takes the place of an idle one, or waits for a place."""

    def __init__(self, most: int, most_of_owner: int) -> None:
        """`most` are open in all, and `most_of_owner` for one owner."""
        self._most = most
        self._most_of_owner = most_of_owner
        self._places: set[Place] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    def change(self, most: int, most_of_owner: int) -> None:
        """Go on with other limits; connections that are open stay so."""
        self._most = most
        self._most_of_owner = most_of_owner
        self.wake()

    async def enter(self, connection: Closable, owner: str | None) -> Place:
        """Wait for a place; the connection that is idle for longest is closed to make one."""
        while not self._has_place(owner):
            idle = min(self._idle(owner), default=None, key=lambda each: each[0])
            if idle is None:
                await self._change()
            else:
                idle[1].closing = True
                await idle[1].connection.aclose()
        place = Place(self, connection, owner)
        self._places.add(place)
        return place

    def remove(self, place: Place) -> None:
        """Count a connection no longer."""
        self._places.discard(place)
        self.wake()

    def wake(self) -> None:
        """Look again for a place: a connection has ended, or is idle now."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def _has_place(self, owner: str | None) -> bool:
        if len(self._places) >= self._most:
            return False
        own = sum(place.owner == owner for place in self._places)
        return owner is None or own < self._most_of_owner

    def _idle(self, owner: str | None) -> Iterator[tuple[float, Place]]:
        """Those whose end would make a place."""
        all_full = len(self._places) >= self._most
        for place in self._places:
            since = None if place.closing else place.connection.idle_since
            if since is not None and (all_full or place.owner == owner):
                yield since, place

    async def _change(self) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await changed
        finally:
            self._waiting.discard(changed)
