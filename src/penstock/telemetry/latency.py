"""Durations in little memory: how long most requests took, to within a few per cent."""

from __future__ import annotations

import math

import msgspec

_GROWTH = 1.05
"""Each bucket is so much wider than the one before: the middle of one is off by 2.5 % at most."""
_LOG_GROWTH = math.log(_GROWTH)


class Latency(msgspec.Struct, frozen=True):
    """How long requests took, in milliseconds; the quantiles are within 3 % of the true ones."""

    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: int


class Latencies:
    """Counts durations in buckets, of which an hour has about 300."""

    __slots__ = ("_buckets", "_max", "_sum", "count")

    def __init__(self) -> None:
        """Start empty."""
        self.count = 0
        self._sum = 0
        self._max = 0
        self._buckets: dict[int, int] = {}

    def add(self, milliseconds: int) -> None:
        """One more request took so long."""
        bucket = round(math.log(milliseconds) / _LOG_GROWTH) if milliseconds > 0 else -1
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self._sum += milliseconds
        self._max = max(self._max, milliseconds)

    def merge(self, other: Latencies) -> None:
        """Take in what the other has counted."""
        for bucket, number in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + number
        self.count += other.count
        self._sum += other._sum
        self._max = max(self._max, other._max)

    def summary(self) -> Latency | None:
        """Mean and quantiles; None while there is nothing to tell."""
        if not self.count:
            return None
        p50, p90, p99 = (self._quantile(share) for share in (0.5, 0.9, 0.99))
        return Latency(self._sum / self.count, p50, p90, p99, self._max)

    def _quantile(self, share: float) -> float:
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return 0.0 if bucket < 0 else min(_GROWTH**bucket, float(self._max))
        raise AssertionError("the buckets hold as many durations as were counted")
