"""How long a target has lately taken, for deciding when it is late."""

from __future__ import annotations

from collections import deque

_KEPT = 128
_ENOUGH = 20
"""Fewer say nothing about what is usual."""


class Waits:
    """The last times of one target, in seconds."""

    __slots__ = ("_lately",)

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lately: deque[float] = deque(maxlen=_KEPT)

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self._lately.append(seconds)

    def quantile(self, share: float) -> float | None:
        """What this share of the calls stayed within; None while too few are known."""
        if len(self._lately) < _ENOUGH:
            return None
        return sorted(self._lately)[min(int(share * len(self._lately)), len(self._lately) - 1)]
