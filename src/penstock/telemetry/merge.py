"""The counters of several processes as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NewType

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

Samples = NewType("Samples", list[Any])
"""A registry as JSON: `[[name, help, type, unit, [[sample, labels, value], ...]], ...]`."""

_CREATED = "_created"


def samples_of(registry: CollectorRegistry) -> Samples:
    """All that this registry holds now."""
    return Samples(
        [
            [
                family.name,
                family.documentation,
                family.type,
                family.unit,
                [[sample.name, sample.labels, sample.value] for sample in family.samples],
            ]
            for family in registry.collect()
        ]
    )


class Merged:
    """A collector whose counts are the sums of those that it is made of."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        """The first says in which order they are told."""
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """Each family once, with a sample for each set of labels."""
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for name, documentation, kind, unit, samples in _families(self._parts):
            if name not in families:
                families[name] = Metric(name, documentation, kind, unit)
                values[name] = {}
            for sample, labels, value in samples:
                place = (sample, tuple(labels.items()))
                before = values[name].get(place)
                if before is None:
                    values[name][place] = value
                elif sample.endswith(_CREATED):
                    # A moment, of which the first counts.
                    values[name][place] = min(before, value)
                else:
                    values[name][place] = before + value
        for name, family in families.items():
            for (sample, labels), value in values[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family


def _families(parts: Iterable[Samples]) -> Iterator[tuple[str, str, str, str, list[Any]]]:
    for part in parts:
        yield from part
