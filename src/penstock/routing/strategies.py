"""What orders targets that are equal otherwise: of a model, `routing` names one of these.

A strategy judges targets; it does not filter them, and neither hints nor health are its business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.routing.outlook import Forecast, Outlook

ORDERED = "ordered"


class Opinion(msgspec.Struct, frozen=True):
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


class Cheapest:
    """The least expected cost first; targets without a price last."""

    name = "cheapest"

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
        """By price and the expected number of tokens."""
        return _by(self._outlook(request, targets), lambda each: each.cost_usd, _cost_note)


class Fastest:
    """The least expected time to the whole answer first."""

    name = "fastest"

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
        """By what its answers took, or by the catalogue."""
        return _by(self._outlook(request, targets), lambda each: each.latency_ms, _time_note)


def money(usd: float) -> str:
    """An amount that may be tiny."""
    return f"${usd:.2g}" if usd < 0.01 else f"${usd:.2f}"


def _by(
    forecasts: Sequence[Forecast],
    least: Callable[[Forecast], float | None],
    note: Callable[[Forecast, bool], str],
) -> list[Opinion]:
    best = min((v for each in forecasts if (v := least(each)) is not None), default=None)
    opinions: list[Opinion] = []
    for forecast in forecasts:
        value = least(forecast)
        opinions.append(
            Opinion(
                place=float("inf") if value is None else value,
                quality=forecast.quality,
                cost_usd=forecast.cost_usd,
                latency_ms=forecast.latency_ms,
                note=note(forecast, len(forecasts) > 1 and value == best),
            )
        )
    return opinions


def _cost_note(forecast: Forecast, best: bool) -> str:
    if forecast.cost_usd is None:
        return "has no known price"
    least = ", the least" if best else ""
    return f"is expected to cost {money(forecast.cost_usd)}{least}"


def _time_note(forecast: Forecast, best: bool) -> str:
    least = ", the least," if best else ""
    by = "its last answers" if forecast.seen else "the catalogue"
    return f"is expected to take {forecast.latency_ms:.0f} ms{least} by {by}"
