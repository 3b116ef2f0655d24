"""Keeps background work running: each child is restarted on its own, and nobody falls with it.

```
running ──ends, may restart──▶ restarting ──back-off──▶ running
   │                               └──too many restarts──▶ failed
   └──ends for good──▶ stopped, or failed after an error
```
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Literal, TypeAlias

import msgspec

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
"""Always, after an error only, or never."""
State: TypeAlias = Literal["running", "restarting", "stopped", "failed"]
Work: TypeAlias = Callable[[], Awaitable[None]]

LAST_WORDS_S = 1.0
"""What is left to children when the grace period is over, before and after the last cancel."""
_ERROR_CHARACTERS = 500
_log = logging.getLogger(__name__)


class ChildStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one child is, for health."""

    name: str
    state: State
    restarts: int = 0
    last_error: str | None = None


class Backoff(msgspec.Struct, frozen=True):
    """The pause before a restart: doubling from `base_s` to `cap_s`, less up to `jitter` of it."""

    base_s: float = 0.1
    cap_s: float = 30.0
    jitter: float = 0.5

    def delay(self, restarts: int, chance: float) -> float:
        """Seconds after so many restarts; `chance` is from 0 up to 1."""
        # The exponent is bounded, for a float is not able to hold any power of two.
        whole = min(self.cap_s, self.base_s * 2.0 ** min(restarts, 64))
        return whole * (1 - self.jitter * chance)


class _Child:
    """One piece of work with what has become of it."""

    def __init__(self, name: str, work: Work, restart: Restart) -> None:
        self.name = name
        self.work = work
        self.restart = restart
        self.state: State = "stopped"
        self.restarts = 0
        self.last_error: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.recent: deque[float] = deque()
        """When the restarts of the last period were, by the time that the child has run."""
        self.ran_s = 0.0
        self.told = False
        """Whether it was told to stop."""

    @property
    def alive(self) -> bool:
        return self.task is not None and not self.task.done()

    def ended(self, task: asyncio.Task[None]) -> None:
        """A callback, for a task that is cancelled before its first step runs no code of ours."""
        if task.cancelled():
            self.state = "stopped"
        elif (error := task.exception()) is not None:
            self.state, self.last_error = "failed", _said(error)

    def status(self) -> ChildStatus:
        return ChildStatus(self.name, self.state, self.restarts, self.last_error)


class Supervisor:
    """Runs children from `async with` to its end, in the order in which they were added.

    A child that ends is started again after a back-off, as its `restart` says. One that needs more
    than `intensity` restarts within `period_s` is given up: its state is `failed`, and all others
    go on. Time spent in back-off does not count to the period, or no child could ever restart often
    enough. A child is stopped by cancelling it; the grace period is for what it still has to do.
    """

    def __init__(
        self,
        *,
        intensity: int = 10,
        period_s: float = 60.0,
        backoff: Backoff | None = None,
        grace_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`clock`, `sleep` and `chance` are time and luck, which tests bring along."""
        if intensity < 0 or period_s <= 0:
            raise ValueError(
                f"intensity {intensity} and period_s {period_s:g} allow nothing: "
                "give at least 0 restarts in more than 0 seconds"
            )
        self._intensity = intensity
        self._period_s = period_s
        self._backoff = backoff or Backoff()
        self._grace_s = grace_s
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._children: dict[str, _Child] = {}
        self._started = False
        self._stopper: asyncio.Task[None] | None = None

    def add(self, name: str, work: Work, restart: Restart = "permanent") -> None:
        """Look after this work: from the start, or from now on when that has been.

        Raises ValueError for a name that is taken, and RuntimeError after the end.
        """
        if self._stopper is not None:
            raise RuntimeError(f"{name!r} comes too late: this supervisor has been closed")
        if name in self._children:
            raise ValueError(f"there is a child {name!r} already; names tell children apart")
        child = self._children[name] = _Child(name, work, restart)
        if self._started:
            self._start(child)

    def children(self) -> list[ChildStatus]:
        """How each child is, in the order of their start."""
        return [child.status() for child in self._children.values()]

    async def aclose(self, grace_s: float | None = None) -> None:
        """Stop the children, last one first, each when the one after it has ended.

        When the grace period is over, the rest is cancelled at once. Safe to call twice. If this
        call is cancelled, the children are too, all at once, and it ends after them.
        """
        if self._stopper is None:
            grace_s = self._grace_s if grace_s is None else grace_s
            self._stopper = asyncio.create_task(self._stop(grace_s), name="penstock-supervisor")
        try:
            await asyncio.shield(self._stopper)
        except asyncio.CancelledError:
            self._cancel_all()
            await asyncio.wait({self._stopper})
            raise

    async def __aenter__(self) -> Supervisor:
        """Start the children in their order."""
        if self._started or self._stopper is not None:
            raise RuntimeError("a supervisor runs once; make another one")
        self._started = True
        for child in self._children.values():
            self._start(child)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the children in the reverse order."""
        await self.aclose()

    def _start(self, child: _Child) -> None:
        child.state = "running"
        child.task = asyncio.create_task(self._run(child), name=f"penstock-{child.name}")
        child.task.add_done_callback(child.ended)

    async def _run(self, child: _Child) -> None:
        while await self._once(child):
            child.state = "restarting"
            await self._sleep(self._backoff.delay(len(child.recent) - 1, self._chance()))
            child.restarts += 1
            child.state = "running"

    async def _once(self, child: _Child) -> bool:
        """Run the work to its end; whether it is to be started again."""
        began = self._clock()
        failed = True
        try:
            await child.work()
            failed = False
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            # Without a cancellation of ours it comes from something that the work had waited for.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            child.last_error = _said(error)
            _log.warning("background work %r failed", child.name, exc_info=error)
        if _is_cancelled():
            # It caught its cancellation, or failed while it put things in order: do not go on.
            child.state = "stopped"
            return False
        child.ran_s += max(0.0, self._clock() - began)
        if child.restart == "temporary" or (child.restart == "transient" and not failed):
            child.state = "failed" if failed else "stopped"
            return False
        return self._may_restart(child)

    def _may_restart(self, child: _Child) -> bool:
        recent = child.recent
        while recent and child.ran_s - recent[0] >= self._period_s:
            recent.popleft()
        recent.append(child.ran_s)
        if len(recent) <= self._intensity:
            return True
        child.state = "failed"
        child.last_error = child.last_error or "it ended without an error, again and again"
        _log.error(
            "background work %r is given up: more than %d restarts in %g s; last error: %s",
            child.name,
            self._intensity,
            self._period_s,
            child.last_error,
        )
        return False

    async def _stop(self, grace_s: float) -> None:
        deadline = self._clock() + grace_s
        for child in reversed(self._children.values()):
            left = deadline - self._clock()
            if left <= 0:
                break
            if child.task is not None and child.alive:
                # Once is enough: a second time would cut short what it still has to do. The task's
                # own count would not do, for a time-out within the work counts there too.
                if not child.told:
                    child.told = True
                    child.task.cancel()
                await self._ended_within(left, child)
        late = [child for child in self._children.values() if child.alive]
        for child in late:
            _log.warning("background work %r did not end within %g s", child.name, grace_s)
        # The first round cancels those whose turn never came, the second those that pay no heed.
        for _ in range(2):
            self._cancel_all()
            await self._ended_within(LAST_WORDS_S, *late)
        for child in late:
            if child.alive:
                child.state = "failed"
                child.last_error = f"it did not stop within {grace_s:g} s, though cancelled"
                _log.error("background work %r does not stop, and is left behind", child.name)

    def _cancel_all(self) -> None:
        for child in reversed(self._children.values()):
            if child.task is not None:
                child.told = True
                child.task.cancel()

    async def _ended_within(self, limit_s: float, *children: _Child) -> None:
        tasks = {child.task for child in children if child.task is not None and child.alive}
        if not tasks:
            return
        timer = asyncio.ensure_future(self._sleep(limit_s))
        ending = asyncio.ensure_future(asyncio.wait(tasks))
        try:
            await asyncio.wait({ending, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            ending.cancel()
            await asyncio.gather(timer, ending, return_exceptions=True)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _said(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[:_ERROR_CHARACTERS]} ..."
