"""A ranking in words: the reasons of each target, and one sentence for the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.contract.options import ModelPreferences
from penstock.contract.ports import RankedTarget, RouteDecision, Target
from penstock.routing.forecast import Forecast
from penstock.routing.ranking import Candidate, Placed, hints_of, is_left_out, none_of
from penstock.routing.strategies import ORDERED

_SERVED = "has served this session"


class Dropped(NamedTuple):
    """A candidate that is not in the ranking at all, and why."""

    candidate: Candidate
    available: bool
    why: str


def explained(
    asked: str | None,
    ranked: Sequence[Placed],
    preferences: ModelPreferences | None,
    *,
    strategy: str = ORDERED,
    dropped: Iterable[Dropped] = (),
    forecasts: Mapping[Target, Forecast] | None = None,
    session: Target | None = None,
    unused: str = "",
) -> RouteDecision:
    """What `order` and a strategy have decided; `forecasts` tell what the strategy did not.

    `session` is the target that has served the request's session. `unused` says why the request's
    priorities were not used.
    """
    hints = hints_of(preferences)
    none = none_of(hints)
    shown: list[RankedTarget] = []
    left_out: list[RankedTarget] = []
    for each in ranked:
        reasons = tuple(_reasons(each, hints, session))
        told = _told(each, reasons, hints, (forecasts or {}).get(each.candidate.target))
        (left_out if is_left_out(each, none) else shown).append(told)
    for candidate, available, why in dropped:
        reasons = (why, _whose(candidate))
        left_out.append(RankedTarget(candidate.target, available, reasons))
    first = next((each for each in ranked if not is_left_out(each, none)), None)
    return RouteDecision(
        asked,
        tuple(shown),
        tuple(left_out),
        strategy,
        first is not None and first.opinion is not None and first.opinion.explored,
        ""
        if first is None
        else _sentence(first, hints, session, _among(len(shown), strategy))
        + (
            f" The request's priorities are not used: {unused}."
            if unused and len(shown) > 1
            else ""
        ),
    )


def _told(
    placed: Placed, reasons: tuple[str, ...], hints: Sequence[str], forecast: Forecast | None
) -> RankedTarget:
    target = placed.candidate.target
    hint = hints[placed.hint % len(hints)] if placed.hint < none_of(hints) else None
    opinion = placed.opinion
    if opinion is not None:
        return RankedTarget(
            target,
            not placed.unavailable,
            reasons,
            opinion.utility or 0.0,
            quality=opinion.quality,
            uncertainty=opinion.uncertainty,
            neighbours=opinion.neighbours,
            cost_usd=opinion.cost_usd,
            latency_ms=opinion.latency_ms,
            hint=hint,
            propensity=opinion.propensity,
        )
    return RankedTarget(
        target,
        not placed.unavailable,
        reasons,
        quality=None if forecast is None else forecast.quality,
        cost_usd=None if forecast is None else forecast.cost_usd,
        latency_ms=None if forecast is None else forecast.latency_ms,
        hint=hint,
    )


def _reasons(placed: Placed, hints: Sequence[str], session: Target | None) -> Iterable[str]:
    why, small = placed.notes
    if placed.unavailable:
        yield f"not available: {why}"
    if placed.tight:
        yield f"may be too small: {small}"
    if hints:
        yield _hinted(placed, hints) or "matches no hint"
    if placed.candidate.target == session:
        yield _SERVED
    if placed.opinion is not None and placed.opinion.note:
        yield placed.opinion.note
    yield _whose(placed.candidate)


def _hinted(placed: Placed, hints: Sequence[str]) -> str:
    if placed.hint < len(hints):
        return f"matches hint {placed.hint + 1}, {hints[placed.hint]!r}"
    if placed.hint < none_of(hints):
        number = placed.hint - len(hints)
        return f"is of the class of hint {number + 1}, {hints[number]!r}"
    return ""


def _whose(candidate: Candidate) -> str:
    return f"target {candidate.place} of {candidate.model!r}"


def _sentence(first: Placed, hints: Sequence[str], session: Target | None, among: str) -> str:
    facts: list[str] = []
    if first.unavailable:
        facts.append(f"is not available ({first.notes[0]}), but neither is any other")
    if hinted := _hinted(first, hints):
        facts.append(hinted)
    if first.candidate.target == session:
        facts.append(_SERVED)
    if first.opinion is None:
        facts.append(f"is {_whose(first.candidate)}")
    else:
        if first.opinion.explored:
            facts.append("is tried to learn about it")
        if first.opinion.note:
            facts.append(first.opinion.note)
    return f"{first.candidate.target} {among}: it {' and '.join(facts)}."


def _among(count: int, strategy: str) -> str:
    return "is the only target" if count == 1 else f"is first of {count} targets ({strategy})"
