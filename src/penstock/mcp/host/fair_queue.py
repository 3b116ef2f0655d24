"""Slots for requests at once, and a bounded queue for the rest in which sessions take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable

from penstock.contract.errors import RateLimited


class _Waiter:
    """A request that waits for a slot."""

    __slots__ = ("session", "size", "turn")

    def __init__(self, session: Hashable, size: int) -> None:
        self.session = session
        self.size = size
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairQueue:
    """At most `slots` requests run; a free slot goes to the sessions in turn, oldest request first.

    At most `most` requests wait, with `most_bytes` together, each for `timeout_s`. A full queue
    refuses the newest request of the session with the most, if another session has fewer.
    """

    def __init__(self, slots: int, *, most: int, most_bytes: int, timeout_s: float) -> None:
        """No request runs or waits; for the tasks of one event loop."""
        self.running = 0
        self._slots = slots
        self._most = most
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._sessions: OrderedDict[Hashable, deque[_Waiter]] = OrderedDict()
        self._count = 0
        self._bytes = 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._count

    async def enter(self, session: Hashable, size: int = 0) -> None:
        """Take a slot, at once or after a wait; raises RateLimited when there is none in time."""
        if self.running < self._slots:
            self.running += 1
        else:
            await self._wait(session, size)

    def leave(self) -> None:
        """Give the slot to the next session that waits, or keep it free."""
        while self._sessions:
            session, queue = next(iter(self._sessions.items()))
            self._sessions.move_to_end(session)
            waiter = queue[0]
            self._remove(waiter)
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                return
        self.running -= 1

    async def _wait(self, session: Hashable, size: int) -> None:
        self._make_room(session, size)
        waiter = _Waiter(session, size)
        self._sessions.setdefault(session, deque()).append(waiter)
        self._count += 1
        self._bytes += size
        try:
            async with asyncio.timeout(self._timeout_s):
                await waiter.turn
        except TimeoutError:
            if _has_turn(waiter):
                return  # in the last moment
            self._remove(waiter)
            raise RateLimited(
                f"{self._slots} requests of this server are under way, and none ended within "
                f"{self._timeout_s:g} s: ask again later, or ask for less at once"
            ) from None
        except asyncio.CancelledError:
            if _has_turn(waiter):
                self.leave()
            else:
                self._remove(waiter)
            raise

    def _make_room(self, session: Hashable, size: int) -> None:
        """Refuse requests of longer sessions; raises RateLimited where no session is longer."""
        while self._count >= self._most or (self._count and self._bytes + size > self._most_bytes):
            own = len(self._sessions.get(session, ()))
            longest = max(self._sessions.values(), key=len, default=deque[_Waiter]())
            if len(longest) <= own + 1:
                raise self._full()
            last = longest[-1]
            self._remove(last)
            last.turn.set_exception(self._full())

    def _full(self) -> RateLimited:
        return RateLimited(
            f"{self._slots} requests of this server are under way and {self._count} wait, and more "
            "are not taken: wait for one to end"
        )

    def _remove(self, waiter: _Waiter) -> None:
        queue = self._sessions.get(waiter.session)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        if not queue:
            del self._sessions[waiter.session]
        self._count -= 1
        self._bytes -= waiter.size


def _has_turn(waiter: _Waiter) -> bool:
    turn = waiter.turn
    return turn.done() and not turn.cancelled() and turn.exception() is None
