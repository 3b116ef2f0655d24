"""Counters and histograms that cost next to nothing until somebody reads them.

The library's own take a lock and look at exemplars with every step, several times a request. These
are numbers in dictionaries, turned into the library's families when it collects. They belong to
one event loop; to collect from another thread is safe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector


class Counted(Collector):
    """A number for each combination of labels: what only grows, or with `gauge` also falls."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        *,
        gauge: bool = False,
    ) -> None:
        """All combinations are as many as there are names, which must have a limit."""
        self._family = GaugeMetricFamily if gauge else CounterMetricFamily
        self._said = (name, documentation)
        self._labels = labels
        self._values: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, amount: float, *labels: str) -> None:
        """So much more."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        family = self._family(*self._said, labels=self._labels)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family


class Current(Collector):
    """A gauge that is read when it is collected; equal labels are added up."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        """`read` gives the labels and the value of each sample."""
        self._said = (name, documentation)
        self._labels = labels
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        values: dict[tuple[str, ...], float] = {}
        for labels, value in self._read():
            values[labels] = values.get(labels, 0.0) + value
        family = GaugeMetricFamily(*self._said, labels=self._labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


class Observed(Collector):
    """A histogram for each combination of labels."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        *,
        buckets: Sequence[float],
    ) -> None:
        """`buckets` are the upper bounds, ascending, without the infinite one."""
        self._said = (name, documentation)
        self._labels = labels
        self._bounds = tuple(buckets)
        self._shown = (*(str(float(bound)) for bound in buckets), "+Inf")
        self._cells: dict[tuple[str, ...], list[float]] = {}
        registry.register(self)

    def observe(self, value: float, *labels: str) -> None:
        """One more, of this size."""
        cell = self._cells.get(labels)
        if cell is None:
            # A count for each bucket, and at last the sum.
            cell = self._cells[labels] = [0.0] * (len(self._shown) + 1)
        cell[bisect_left(self._bounds, value)] += 1
        cell[-1] += value

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        family = HistogramMetricFamily(*self._said, labels=self._labels)
        for labels, cell in list(self._cells.items()):
            counts = accumulate(cell[:-1])
            family.add_metric(labels, list(zip(self._shown, counts, strict=True)), cell[-1])
        yield family
