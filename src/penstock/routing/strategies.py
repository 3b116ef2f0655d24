"""What orders targets that are equal otherwise: of a model, `routing` names one of these.

A strategy judges targets; it does not filter them, and neither hints nor health are its business.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Target
from penstock.routing.forecast import Forecast, Outlook

ORDERED = "ordered"
WORTH = 0.25
"""At equal priorities the most expensive target must be right in so many more of all cases than a
free one."""
FREE = 1e-9
"""USD below which nothing costs anything: the ledger knows no smaller amount."""


def has_priorities(preferences: ModelPreferences | None) -> bool:
    """Whether a request says what counts."""
    return preferences is not None and any(
        each is not None for each in (preferences.intelligence, preferences.cost, preferences.speed)
    )


class Weights(msgspec.Struct, frozen=True):
    """What counts, and how much."""

    intelligence: float = 1.0
    cost: float = 0.3
    speed: float = 0.1

    @classmethod
    def of(cls, preferences: ModelPreferences | None) -> Weights:
        """The priorities of a request; when it has any, those that are left out count nothing."""
        if preferences is None or not has_priorities(preferences):
            return cls()
        given = (preferences.intelligence, preferences.cost, preferences.speed)
        return cls(*(each or 0.0 for each in given))


class Opinion(msgspec.Struct, frozen=True, gc=False):
    """What a strategy says of one target; whatever is None it does not know."""

    place: float = 0.0
    """Less goes first; equals keep their configured order."""
    utility: float | None = None
    """Told as the target's score; more is better."""
    quality: float | None = None
    uncertainty: float | None = None
    neighbours: float | None = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    propensity: float | None = None
    explored: bool = False
    """Whether it is put first to learn about it, and another was expected to be better."""
    note: str = ""
    """Why it has its place, in a few words that follow on "it"."""


class Strategy(Protocol):
    """Judges the targets among which neither health nor hints have chosen."""

    @property
    def name(self) -> str:
        """As `routing` in the configuration has it."""
        ...

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        """An opinion on each, in their order.

        `deciding`: the one that it puts first is the one that will be asked, so it may throw dice,
        and may remember the choice under the `request_id`. Otherwise it does neither.
        """
        ...


class _Least(ABC):
    """The least of something first, of what is expected of each target."""

    def __init__(self, outlook: Outlook) -> None:
        """What to expect of targets."""
        self._outlook = outlook

    @abstractmethod
    def value(self, forecast: Forecast) -> float | None:
        """What must be little; None, when it is not known, goes last."""

    @abstractmethod
    def note(self, forecast: Forecast, *, best: bool) -> str:
        """The same in words."""

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        """By what is expected; priorities change nothing."""
        forecasts = await self._outlook(request, targets)
        values = [self.value(each) for each in forecasts]
        best = min((each for each in values if each is not None), default=None)
        return [
            Opinion(
                place=math.inf if value is None else value,
                quality=forecast.quality,
                cost_usd=forecast.cost_usd,
                latency_ms=forecast.latency_ms,
                note=self.note(forecast, best=len(values) > 1 and value == best),
            )
            for forecast, value in zip(forecasts, values, strict=True)
        ]


class Cheapest(_Least):
    """The least expected cost first; targets without a price last."""

    name = "cheapest"

    def value(self, forecast: Forecast) -> float | None:
        """Price by the expected number of tokens."""
        return forecast.cost_usd

    def note(self, forecast: Forecast, *, best: bool) -> str:
        """In dollars."""
        if forecast.cost_usd is None:
            return "has no known price"
        least = ", the least" if best else ""
        return f"is expected to cost {money(forecast.cost_usd)}{least}"


class Fastest(_Least):
    """The least expected time to the whole answer first."""

    name = "fastest"

    def value(self, forecast: Forecast) -> float | None:
        """What its answers took, or what the catalogue says."""
        return forecast.latency_ms

    def note(self, forecast: Forecast, *, best: bool) -> str:
        """In milliseconds."""
        least = ", the least," if best else ""
        by = "its last answers" if forecast.seen else "the catalogue"
        return f"is expected to take {forecast.latency_ms:.0f} ms{least} by {by}"


class Preferred:
    """The best utility by the request's priorities, from catalogue, prices and measured times.

    It replaces the configured order of an `ordered` model when a request has priorities.
    """

    name = "priorities"

    def __init__(self, outlook: Outlook) -> None:
        """What to expect of targets."""
        self._outlook = outlook

    async def judge(
        self,
        request: SamplingRequest,
        targets: Sequence[Target],
        *,
        deciding: bool,
        request_id: str | None,
        key: str | None,
    ) -> Sequence[Opinion]:
        """By utility; equals keep their configured order."""
        forecasts = await self._outlook(request, targets)
        weights = Weights.of(request.model_preferences)
        utilities = _utilities(forecasts, weights)
        best = max(utilities) if len(utilities) > 1 else math.inf
        return [
            Opinion(
                place=-utility,
                utility=utility,
                quality=forecast.quality,
                cost_usd=forecast.cost_usd,
                latency_ms=forecast.latency_ms,
                note=_preferred_note(forecast, utility, best=utility == best),
            )
            for forecast, utility in zip(forecasts, utilities, strict=True)
        ]


def ignores_priorities(strategy: Strategy | None) -> bool:
    """Whether a strategy has the same order whatever the priorities of a request are."""
    return isinstance(strategy, _Least)


def _utilities(forecasts: Sequence[Forecast], weights: Weights) -> list[float]:
    costs = [each.cost_usd for each in forecasts if each.cost_usd is not None]
    highest = max(costs, default=0.0)
    slowest = max(each.latency_ms for each in forecasts)
    per_usd = WORTH * weights.cost / highest if highest >= FREE else 0.0
    per_ms = WORTH * weights.speed / slowest if slowest > 0 else 0.0
    return [
        weights.intelligence * each.quality
        # An unknown price counts as the highest of the others.
        - per_usd * (highest if each.cost_usd is None else each.cost_usd)
        - per_ms * each.latency_ms
        for each in forecasts
    ]


def _preferred_note(forecast: Forecast, utility: float, *, best: bool) -> str:
    cost = "no known price" if forecast.cost_usd is None else money(forecast.cost_usd)
    by = "its last answers" if forecast.seen else "the catalogue"
    return (
        f"has {'the best' if best else 'a'} utility of {utility:.3f} by the request's priorities "
        f"(quality {forecast.quality:.2f} by the catalogue, {cost}, "
        f"{forecast.latency_ms:.0f} ms by {by})"
    )


def money(usd: float) -> str:
    """An amount that may be tiny."""
    return f"${usd:.2g}" if usd < 0.01 else f"${usd:.2f}"
