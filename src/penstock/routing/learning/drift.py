"""Noticing that a target is no longer what it was."""

from __future__ import annotations

SLACK = 0.25
"""Deviations, in standard deviations, that are no sign of a change."""
ALARM = 25.0
"""What deviations beyond the slack must add up to.

By chance that happens once in some million observations. A fall from four right answers in five to
one in five is noticed after about 20, a loss of one in four after about 60.
"""
_SPREAD = 0.4
"""The usual standard deviation of a score that is mostly 0 or 1."""


class Drift:
    """Adds up by how much a target's scores differ from what was expected, in both directions."""

    __slots__ = ("_above", "_below")

    def __init__(self) -> None:
        """Nothing has changed."""
        self._above = self._below = 0.0

    def add(self, surprise: float, weight: float = 1.0) -> bool:
        """One more difference of score and expectation; whether the target must have changed.

        After a yes it starts afresh.
        """
        deviation = surprise / _SPREAD
        self._above = max(0.0, self._above + weight * (deviation - SLACK))
        self._below = max(0.0, self._below + weight * (-deviation - SLACK))
        if max(self._above, self._below) < ALARM:
            return False
        self._above = self._below = 0.0
        return True
