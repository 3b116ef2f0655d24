"""Our series read as the library's own, which count the same beside them."""

import random

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from penstock.telemetry.series import Counted, Observed

BUCKETS = (0.05, 0.5, 1.0, 10.0)


def shown(registry: CollectorRegistry) -> list[str]:
    """What a scraper reads, but for the times at which the library's series began."""
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


def test_they_are_shown_as_those_of_the_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = Counted("things", "How many.", ("kind", "way"), ours)
    counter = Counter("things", "How many.", ("kind", "way"), registry=theirs)
    level = Counted("level", "How high.", ("place",), ours, gauge=True)
    gauge = Gauge("level", "How high.", ("place",), registry=theirs)
    observed = Observed("wait_seconds", "How long.", ("kind",), ours, buckets=BUCKETS)
    histogram = Histogram("wait_seconds", "How long.", ("kind",), registry=theirs, buckets=BUCKETS)
    chance = random.Random(7)
    for _ in range(200):
        kind = chance.choice(["one", "two", 'a "quoted" \\ name'])
        way = chance.choice(["up", "down"])
        amount = chance.randrange(5)
        counted.add(amount, kind, way)
        counter.labels(kind, way).inc(amount)
        level.add(amount - 2, way)
        gauge.labels(way).inc(amount - 2)
        # The bounds themselves are among them: they belong to the bucket below.
        waited = chance.choice([*BUCKETS, 0.0, 0.2, 20.0])
        observed.observe(waited, kind)
        histogram.labels(kind).observe(waited)
    assert shown(ours) == shown(theirs)


def test_what_was_never_counted_is_named_all_the_same() -> None:
    registry = CollectorRegistry()
    Counted("things", "How many.", ("kind",), registry)
    Observed("wait_seconds", "How long.", ("kind",), registry, buckets=BUCKETS)
    assert "# TYPE things_total counter" in shown(registry)
    assert "# TYPE wait_seconds histogram" in shown(registry)
