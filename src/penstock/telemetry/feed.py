"""What happens, for those who watch while it does.

All listeners read from one ring, each from its own place. So telling costs the same with one and
with many of them, and whoever is slow loses the oldest and holds up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import Record

KEPT = 1000
LINGER_S = 60.0
"""For so long records are kept for somebody who has gone, and may come back."""


class Told(NamedTuple):
    """One record with its number; the numbers of a feed have no gaps."""

    number: int
    record: Record


class Heard(NamedTuple):
    """What a listener has not heard yet."""

    told: Sequence[Told]
    missed: int
    """How many went by before these, because the listener was too slow."""


class Feed:
    """Passes records on to listeners; while there are none, requests pay nothing for it.

    From the first listener on the last records are kept, and for some time after the last one has
    gone, so that a listener whose connection broke can go on where it was.
    """

    def __init__(self, kept: int = KEPT, linger_s: float = LINGER_S) -> None:
        """`kept` is how many records a listener may be behind."""
        if kept < 1:
            raise ValueError(f"kept={kept}: give 1 or more")
        self._ring: deque[Told] = deque(maxlen=kept)
        self._number = 0
        self._linger_s = linger_s
        self._listeners = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._sources: list[Hooks] = []
        self._leave: list[Callable[[], None]] = []
        self._leaving: asyncio.TimerHandle | None = None
        self.closed = False

    def __call__(self, record: Record) -> None:
        """Pass it on."""
        self._number += 1
        self._ring.append(Told(self._number, record))
        if self._waiting:
            self._wake()

    def follow(self, hooks: Hooks) -> None:
        """Pass on what these hooks tell, while somebody listens."""
        self._sources.append(hooks)
        if self._leave:
            self._leave.append(hooks.subscribe(self))

    @contextlib.contextmanager
    def listen(self, after: int | None = None) -> Generator[Listener]:
        """A listener to what happens from now on, or to what came after this number."""
        self._listeners += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if not self._leave:
            self._leave = [hooks.subscribe(self) for hooks in self._sources]
        # A number that was never told is one of another process, or of none.
        known = after is not None and 0 <= after <= self._number
        try:
            yield Listener(self, after if after is not None and known else self._number)
        finally:
            self._listeners -= 1
            if not self._listeners:
                loop = asyncio.get_running_loop()
                self._leaving = loop.call_later(self._linger_s, self._rest)

    def _rest(self) -> None:
        leave, self._leave = self._leave, []
        for each in leave:
            each()
        # Whoever comes back now has missed something; its number must not look as if not.
        self._number += 1
        self._ring.clear()

    def close(self) -> None:
        """Let every listener come to its end."""
        self.closed = True
        self._wake()
        if self._leaving is not None:
            self._leaving.cancel()

    def since(self, number: int) -> Heard:
        """What was told after this number."""
        told = list(islice(reversed(self._ring), self._number - number))
        told.reverse()
        return Heard(told, self._number - number - len(told))

    async def wait(self, seconds: float) -> None:
        """Until something is told, or this time has passed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            if not each.done():
                each.set_result(None)


class Listener:
    """One who watches, and how far."""

    def __init__(self, feed: Feed, number: int) -> None:
        """Made by `Feed.listen`."""
        self._feed = feed
        self._number = number

    async def next(self, patience_s: float) -> Heard | None:
        """What has been told meanwhile; empty after so long without any, None at the end."""
        feed = self._feed
        heard = feed.since(self._number)
        if not heard.told and not feed.closed:
            await feed.wait(patience_s)
            heard = feed.since(self._number)
        if not heard.told and feed.closed:
            return None
        if heard.told:
            self._number = heard.told[-1].number
        return heard
