"""Time and work that move only when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until this is so; fails when it never is."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - any condition, not one that has an event
            await asyncio.sleep(0)


async def cycles(number: int = 20) -> None:
    """Let everything run that could, to see that something does not happen."""
    for _ in range(number):
        await asyncio.sleep(0)


class Timers:
    """A clock that stands still, and sleeps that end by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.delays: list[float] = []
        self.sleepers: list[asyncio.Future[None]] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, delay: float) -> None:
        self.delays.append(delay)
        sleeper = asyncio.get_running_loop().create_future()
        self.sleepers.append(sleeper)
        try:
            await sleeper
        finally:
            self.sleepers.remove(sleeper)
        self.now += delay

    async def instant(self, delay: float) -> None:
        """A sleep that is over at once, though its time has passed."""
        self.delays.append(delay)
        self.now += delay
        await asyncio.sleep(0)

    def wake(self) -> None:
        """The time of the sleeper that waits longest has come."""
        self.sleepers[0].set_result(None)


class Job:
    """Work whose every run ends when and how the test says."""

    def __init__(self, diary: list[str] | None = None, name: str = "") -> None:
        self.runs = 0
        self.running = False
        self.diary = diary if diary is not None else []
        self.name = name
        self._end: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        self.runs += 1
        self.running = True
        self.diary.append(f"start {self.name}")
        self._end = asyncio.get_running_loop().create_future()
        try:
            await self._end
        finally:
            self.running = False
            self.diary.append(f"end {self.name}")

    def finish(self) -> None:
        assert self._end is not None
        self._end.set_result(None)

    def crash(self, error: BaseException) -> None:
        assert self._end is not None
        self._end.set_exception(error)

    def lose(self) -> None:
        """What it waits for is cancelled, though nobody has cancelled the work."""
        assert self._end is not None
        self._end.cancel()
