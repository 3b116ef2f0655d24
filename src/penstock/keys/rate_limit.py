"""How much was taken in the last minute, and when there is room again.

The minute slides: it is the last 60 seconds, whenever somebody asks. Amounts are kept by the second
and leave together when the whole of their second is a minute old. So in no 60 seconds whatever is
more taken than the limit, room comes back up to a second late, and a window has at most 61 numbers,
however high its limit is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

WINDOW_S = 60
_STEPS = 60
_STEP_S = WINDOW_S / _STEPS


class Step:
    """What was taken in one second."""

    __slots__ = ("amount", "number", "window")

    def __init__(self, window: AnyWindow, number: int) -> None:
        """Made by `take`."""
        self.window: AnyWindow | None = window
        self.number = number
        self.amount = 0


class AnyWindow(Protocol):
    """One limit of one key, whoever counts in it."""

    limit: int

    def take(self, amount: int) -> Step | None:
        """Take so much, or nothing when there is no room; what was taken can be corrected."""
        ...

    def correct(self, step: Step, difference: int) -> None:
        """It was more than was taken, or less; what has left the window is not called back."""
        ...

    @property
    def remaining(self) -> int:
        """What may be taken now."""
        ...

    def left(self) -> tuple[int, float]:
        """What may be taken now, and the seconds until nothing of what was taken is left."""
        ...

    def wait_s(self, amount: int) -> float:
        """Seconds until so much can be taken, if nobody else takes any; 0: now."""
        ...


WindowOf: TypeAlias = Callable[[str, int, AnyWindow | None], AnyWindow]
"""The window of this name and limit, and what was used in its place until now."""


class Window:
    """One limit of one key, for the tasks of one event loop."""

    __slots__ = ("_clock", "_steps", "limit", "used")

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is taken yet; `limit` may be changed at any time."""
        self.limit = limit
        self.used = 0
        self._clock = clock
        self._steps: deque[Step] = deque()

    def take(self, amount: int) -> Step | None:
        """Take so much, or nothing when there is no room; what was taken can be corrected."""
        number = self._forget()
        if self.used + amount > self.limit:
            return None
        return self._add(number, amount)

    def correct(self, step: Step, difference: int) -> None:
        """It was more than was taken, or less; what has left the window is not called back."""
        if step.window is self:
            # Read anew, for the step may have left since it was looked at last.
            self._forget()
        if step.window is self:
            step.amount += difference
            self.used += difference
        elif difference > 0:
            self._add(self._forget(), difference)

    @property
    def remaining(self) -> int:
        """What may be taken now."""
        return self.left()[0]

    def left(self) -> tuple[int, float]:
        """What may be taken now, and the seconds until nothing of what was taken is left."""
        self._forget()
        steps = self._steps
        reset = max(0.0, _leaves(steps[-1].number) - self._clock()) if steps else 0.0
        return max(0, self.limit - self.used), reset

    def wait_s(self, amount: int) -> float:
        """Seconds until so much can be taken, if nobody else takes any; 0: now."""
        self._forget()
        missing = self.used + amount - self.limit
        if missing <= 0:
            return 0.0
        now = self._clock()
        for step in self._steps:
            missing -= step.amount
            if missing <= 0:
                return max(0.0, _leaves(step.number) - now)
        return float(WINDOW_S)

    def _add(self, number: int, amount: int) -> Step:
        # A clock that stands still, or goes back, has no step before its last one.
        if not self._steps or self._steps[-1].number < number:
            self._steps.append(Step(self, number))
        step = self._steps[-1]
        step.amount += amount
        self.used += amount
        return step

    def _forget(self) -> int:
        """Let go of what is too old; the number of the present step."""
        now = self._clock()
        steps = self._steps
        while steps and _leaves(steps[0].number) <= now:
            old = steps.popleft()
            old.window = None
            self.used -= old.amount
        return int(now // _STEP_S)


def _leaves(number: int) -> float:
    """When a step is out of the window: a minute after its last moment."""
    return (number + 1) * _STEP_S + WINDOW_S


def window_of(name: str, limit: int, before: AnyWindow | None = None) -> AnyWindow:
    """A window of this process alone; what was counted `before` stays counted."""
    if before is None:
        return Window(limit)
    before.limit = limit
    return before
