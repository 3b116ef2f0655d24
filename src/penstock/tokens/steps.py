"""The limit on the work of measuring the media of one request."""

from __future__ import annotations

MOST_STEPS = 400_000
"""Two hours of Opus have 360,000 packets."""


class Steps:
    """Steps that all pictures and sounds of one request share; an iterator of what is left."""

    __slots__ = ("left",)

    def __init__(self, most: int = MOST_STEPS) -> None:
        """All of them are left."""
        self.left = most

    def __iter__(self) -> Steps:
        """One step for each round of a loop."""
        return self

    def __next__(self) -> None:
        """Raise StopIteration when no step is left."""
        if self.left <= 0:
            raise StopIteration
        self.left -= 1

    def take(self, count: int) -> None:
        """Charge work that takes as long as so many steps."""
        self.left -= count
