"""Windows that several processes of one machine count in together.

Each window has its place in one file that all of them map into their memory: what was taken in each
second of the last minute. To take is a lock on that place, a few numbers, and its release; a
process that dies with the lock in its hands loses it. The file has no name in a gateway:
no one can remove it, and it lives as long as the processes do.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from penstock.keys.rate_limit import WINDOW_S, AnyWindow, Step, window_of

_CELLS = 64
"""Seconds that a place has room for: those of the window, and some to spare."""
_ID, _USED, _NOW, _FIRST = 0, 2, 3, 4
_NUMBERS = _FIRST + _CELLS
_SIZE = 8 * _NUMBERS
PLACES = 16_384
_log = logging.getLogger(__name__)


class SharedWindows:
    """The windows of one file, by their names."""

    def __init__(
        self, file: Path | int, places: int = PLACES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A file by its path, which is made where it is missing, or by an open descriptor.

        The descriptor is closed with this. The clock must be the same for all processes.
        """
        self._clock = clock
        self._places = places
        self._descriptor = (
            file if isinstance(file, int) else os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        )
        # It is sparse: only places in use take memory.
        os.ftruncate(self._descriptor, places * _SIZE)
        self._memory = mmap.mmap(self._descriptor, places * _SIZE)
        self._numbers = memoryview(self._memory).cast("q")

    def __call__(self, name: str, limit: int, before: AnyWindow | None = None) -> AnyWindow:
        """The window of this name; `before` is what was used for it until now."""
        if isinstance(before, SharedWindow):
            before.limit = limit
            return before
        place = self._place(name)
        if place is None:
            _log.warning(
                "more than %d limits: this one each process counts by itself", self._places
            )
            return window_of(name, limit, before)
        return SharedWindow(self._numbers, self._descriptor, place, limit, self._clock)

    def close(self) -> None:
        """Forget the file; its windows are of no use any more."""
        self._numbers.release()
        self._memory.close()
        os.close(self._descriptor)

    def _place(self, name: str) -> int | None:
        identity = struct.unpack("qq", hashlib.blake2b(name.encode(), digest_size=16).digest())
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, self._places * _SIZE)
        try:
            for step in range(self._places):
                place = (identity[0] + step) % self._places * _NUMBERS
                found = (self._numbers[place + _ID], self._numbers[place + _ID + 1])
                if found == identity:
                    return place
                if found == (0, 0):
                    self._numbers[place + _ID], self._numbers[place + _ID + 1] = identity
                    return place
            return None
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, self._places * _SIZE)


class SharedWindow:
    """One limit of one key, for the event loops of several processes."""

    __slots__ = ("_clock", "_descriptor", "_numbers", "_place", "limit")

    def __init__(
        self,
        numbers: memoryview[int],
        descriptor: int,
        place: int,
        limit: int,
        clock: Callable[[], float],
    ) -> None:
        """Made by `SharedWindows`."""
        self._numbers = numbers
        self._descriptor = descriptor
        self._place = place
        self._clock = clock
        self.limit = limit

    def take(self, amount: int) -> Step | None:
        """Take so much, or nothing when there is no room; what was taken can be corrected."""
        now = self._lock()
        try:
            if self._numbers[self._place + _USED] + amount > self.limit:
                return None
            self._add(now, amount)
            return Step(self, now)
        finally:
            self._unlock()

    def correct(self, step: Step, difference: int) -> None:
        """It was more than was taken, or less; what has left the window is not called back."""
        now = self._lock()
        try:
            if step.number >= now - WINDOW_S:
                self._add(step.number, difference)
            elif difference > 0:
                self._add(now, difference)
        finally:
            self._unlock()

    @property
    def remaining(self) -> int:
        """What may be taken now."""
        return self.left()[0]

    def left(self) -> tuple[int, float]:
        """What may be taken now, and the seconds until nothing of what was taken is left."""
        seconds = self._seconds()
        used = sum(amount for _, amount in seconds)
        last = max((number for number, amount in seconds if amount), default=None)
        reset = 0.0 if last is None else max(0.0, _leaves(last) - self._clock())
        return max(0, self.limit - used), reset

    def wait_s(self, amount: int) -> float:
        """Seconds until so much can be taken, if nobody else takes any; 0: now."""
        seconds = self._seconds()
        missing = sum(taken for _, taken in seconds) + amount - self.limit
        if missing <= 0:
            return 0.0
        for number, taken in seconds:
            missing -= taken
            if missing <= 0:
                return max(0.0, _leaves(number) - self._clock())
        return float(WINDOW_S)

    def _seconds(self) -> list[tuple[int, int]]:
        """What was taken in each second of the window, the oldest first."""
        now = self._lock()
        try:
            first = self._place + _FIRST
            return [
                (number, self._numbers[first + number % _CELLS])
                for number in range(now - WINDOW_S, now + 1)
            ]
        finally:
            self._unlock()

    def _add(self, number: int, amount: int) -> None:
        self._numbers[self._place + _FIRST + number % _CELLS] += amount
        self._numbers[self._place + _USED] += amount

    def _lock(self) -> int:
        """Nobody else counts until `_unlock`, and what is too old is gone; the present second."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX, _SIZE, self._place * 8)
        numbers, place = self._numbers, self._place
        seen, now = numbers[place + _NOW], int(self._clock())
        if now <= seen:
            return seen
        first = place + _FIRST
        if now - seen >= _CELLS:
            for cell in range(_CELLS):
                numbers[first + cell] = 0
        else:
            for number in range(seen + 1, now + 1):
                numbers[first + (number - WINDOW_S - 1) % _CELLS] = 0
        # Added up anew, so that a process that died between two numbers is forgotten in a second.
        numbers[place + _USED] = sum(numbers[first : first + _CELLS])
        numbers[place + _NOW] = now
        return now

    def _unlock(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _SIZE, self._place * 8)


def _leaves(number: int) -> float:
    """When a second is out of the window: a minute after its last moment."""
    return float(number + 1 + WINDOW_S)
