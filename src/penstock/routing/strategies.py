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
from penstock.contract.ports import Target
from penstock.routing.forecast import Forecast, Outlook

ORDERED = "ordered"


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


def money(usd: float) -> str:
    """An amount that may be tiny."""
    return f"${usd:.2g}" if usd < 0.01 else f"${usd:.2f}"
