"""How long a target has lately taken, for deciding when it is late."""

from __future__ import annotations

from collections import deque

_KEPT = 128
_ENOUGH = 20
"""Fewer say nothing about what is usual."""
_NEARLY_ALL = 0.99
_TIMES = 4.0
"""So many times what nearly all calls stayed within is more than a bad day."""


class Waits:
    """The last times of one target, in seconds."""

    __slots__ = ("_lately",)

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lately: deque[float] = deque(maxlen=_KEPT)

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self._lately.append(seconds)

    def silence_s(self, bound_s: float) -> float:
        """Seconds of silence after which another target is asked, by what is usual.

        Never more than `bound_s`, and never less than a third of it: a long prompt takes longer
        than most.
        """
        usual = self.quantile(_NEARLY_ALL)
        return bound_s if usual is None else min(bound_s, max(bound_s / 3, _TIMES * usual))

    def quantile(self, share: float) -> float | None:
        """What this share of the calls stayed within; None while too few are known."""
        if len(self._lately) < _ENOUGH:
            return None
        return sorted(self._lately)[min(int(share * len(self._lately)), len(self._lately) - 1)]
