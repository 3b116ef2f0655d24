"""The recent latencies of one target: what is usual for it, and so what is late."""

from __future__ import annotations

import math
from collections import deque

LEAST_SAMPLES = 20
"""Below, a quantile says more about chance than about the target."""


class Latencies:
    """The last `size` latencies in seconds.

    Adding costs an append; they are sorted when a quantile is asked for and one came since.
    """

    __slots__ = ("_samples", "_sorted")

    def __init__(self, size: int = 128) -> None:
        """Begin without any."""
        if size < LEAST_SAMPLES:
            raise ValueError(f"size={size}: a quantile needs {LEAST_SAMPLES} samples or more")
        self._samples: deque[float] = deque(maxlen=size)
        self._sorted: list[float] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, seconds: float) -> None:
        """Keep one more, and forget the oldest when full."""
        self._samples.append(seconds)
        self._sorted = None

    def quantile(self, q: float) -> float | None:
        """The smallest sample that a share `q` of all do not exceed; None below twenty samples.

        It is one of the samples, never a number between two: `q=0.95` of a hundred is the 95th.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q={q}: give a share from 0 to 1, such as 0.95")
        if len(self._samples) < LEAST_SAMPLES:
            return None
        if self._sorted is None:
            self._sorted = sorted(self._samples)
        # The product of 0.07 and 100 is a hair above 7: rounded away before it counts as the 8th.
        rank = math.ceil(round(q * len(self._sorted), 9))
        return self._sorted[max(rank - 1, 0)]

    @property
    def mean(self) -> float | None:
        """Of the same samples; None without any."""
        return math.fsum(self._samples) / len(self._samples) if self._samples else None
