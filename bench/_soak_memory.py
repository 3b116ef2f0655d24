"""How much memory this process has in use, and how fast that grows."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from _engine_load import rss_bytes


class Memory(NamedTuple):
    """What is held, seen from three sides."""

    blocks: int
    """Small objects of Python."""
    heap_kb: float
    """What the C library has given out; 0 where it does not tell."""
    rss_kb: float
    """What the system has given us, free memory that cannot be given back included."""


class Slope(NamedTuple):
    """Growth for a thousand callers."""

    growth: float
    noise: float
    """Its standard error."""

    @property
    def surely(self) -> float:
        """What is left of it beyond three times the noise."""
        return max(0.0, self.growth - 3 * self.noise)

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Slope:
        """By least squares."""
        xs, ys = zip(*points, strict=True)
        slope, start = statistics.linear_regression(xs, ys)
        middle = statistics.fmean(xs)
        spread = sum((x - middle) ** 2 for x in xs)
        missed = sum((y - start - slope * x) ** 2 for x, y in points)
        return cls(1000 * slope, 1000 * math.sqrt(missed / (len(points) - 2) / spread))


class _MallInfo(ctypes.Structure):
    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def memory() -> Memory:
    """What is in use now, when all that can be freed is."""
    gc.collect()
    library = ctypes.CDLL(None)
    # Of the GNU C library only. A reserve of free memory is no leak, and so is given back.
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    heap = 0
    if hasattr(library, "mallinfo2"):
        tell = library.mallinfo2
        tell.restype = _MallInfo
        told = tell()
        heap = told.uordblks + told.hblkhd
    return Memory(sys.getallocatedblocks(), heap / 1000, rss_bytes() / 1000)
