"""What budgets and circuit breakers are at the moment of a scrape, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import Balance
from penstock.server.admin.responses import TargetInfo
from penstock.telemetry.label_guard import OVERFLOW

MOST_LABELS = 200
"""Budgets, and targets, that have a label of their own; the others are one."""
_SEVERITY = ("closed", "half_open", "open")
_AMOUNTS = (
    ("limit", "What the budget allows in its present period, in US dollars."),
    ("used", "What is used of the budget in its present period, in US dollars."),
    ("held", "What is reserved in the budget for requests that run, in US dollars."),
    ("remaining", "What is left of the budget, in US dollars; below 0 when it is overdrawn."),
)


class StateMetrics(Collector):
    """A collector of what it was made with."""

    def __init__(self, budgets: Sequence[Balance] | None, targets: Sequence[TargetInfo]) -> None:
        """`budgets`: None when they cannot be read now; then nothing is said of them."""
        self._budgets = budgets
        self._targets = targets

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        if self._budgets is not None:
            yield from _budget_families(self._budgets)
        yield _breaker_family(self._targets)


def _budget_families(budgets: Sequence[Balance]) -> Iterable[Metric]:
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for number, each in enumerate(budgets):
        name = each.budget.name if number < MOST_LABELS else OVERFLOW
        period = each.budget.period if number < MOST_LABELS else ""
        limit = each.budget.limit_nanos
        amounts = (limit, each.used_nanos, each.held_nanos, each.remaining_nanos)
        before = found.get((name, period), (0, 0, 0, 0))
        found[name, period] = tuple(map(sum, zip(before, amounts, strict=True)))
    for place, (what, documentation) in enumerate(_AMOUNTS):
        family = GaugeMetricFamily(
            f"penstock_budget_{what}_usd", documentation, labels=("budget", "period")
        )
        for labels, amounts in found.items():
            family.add_metric(labels, amounts[place] / NANOS)
        yield family


def _breaker_family(targets: Sequence[TargetInfo]) -> Metric:
    family = GaugeMetricFamily(
        "penstock_breaker_state",
        "1 for the state in which the circuit breaker of a target is, 0 for the others; the worst "
        "of all workers.",
        labels=("provider", "upstream_model", "state"),
    )
    states: dict[tuple[str, str], str] = {}
    for number, each in enumerate(targets):
        provider, _, model = each.target.partition("/")
        place = (provider, model) if number < MOST_LABELS else (OVERFLOW, OVERFLOW)
        states[place] = max(states.get(place, "closed"), each.state, key=_SEVERITY.index)
    for place, state in states.items():
        for each in _SEVERITY:
            family.add_metric((*place, each), float(each == state))
    return family
