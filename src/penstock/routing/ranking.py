"""The order in which targets are tried, and the reasons; pure, so that it can be explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Health, RankedTarget, RouteDecision, Target

Scorer: TypeAlias = Callable[[Target, ModelPreferences], tuple[float, str] | None]
"""How well a target fits the priorities, more is better, and why; None when nothing is known."""


class Candidate(NamedTuple):
    """A target that may serve the request, and where it comes from."""

    target: Target
    origin: str
    only_if_hinted: bool = False


class AllAvailable:
    """The health of targets that nobody watches."""

    def available(self, target: Target) -> tuple[bool, str]:
        """Always."""
        return True, ""


def in_order(target: Target, preferences: ModelPreferences) -> tuple[float, str] | None:
    """Knows nothing of cost, speed or intelligence, and so leaves the configured order."""
    return None


def decide(
    asked: str | None,
    candidates: Sequence[Candidate],
    preferences: ModelPreferences,
    health: Health,
    scorer: Scorer = in_order,
) -> RouteDecision:
    """Rank the candidates, each target once, in the place where it comes first.

    A target that may not be asked just now ranks behind all that may. Among equals, the one that
    matches the earlier hint goes first; then the better score, and then the given order.
    """
    hints = [hint for hint in preferences.hints if hint.strip()]
    ranked: list[tuple[tuple[bool, int, float], RankedTarget]] = []
    left_out: list[RankedTarget] = []
    seen: set[Target] = set()
    for candidate in candidates:
        if candidate.target in seen:
            continue
        seen.add(candidate.target)
        place = _first_match(candidate.target, hints)
        score = scorer(candidate.target, preferences)
        entry = _entry(candidate, _about_hints(place, hints), health, score)
        if candidate.only_if_hinted and place == len(hints):
            left_out.append(entry)
        else:
            ranked.append(((not entry.available, place, -entry.score), entry))
    # A stable sort keeps the given order of equals.
    ranked.sort(key=lambda each: each[0])
    return RouteDecision(asked, tuple(entry for _, entry in ranked), tuple(left_out))


def _first_match(target: Target, hints: Sequence[str]) -> int:
    """The number of the first hint that is a part of the name; one past the last for none."""
    name = str(target).casefold()
    matches = (index for index, hint in enumerate(hints) if hint.strip().casefold() in name)
    return next(matches, len(hints))


def _about_hints(place: int, hints: Sequence[str]) -> list[str]:
    if place < len(hints):
        return [f"matches hint {place + 1}, {hints[place]!r}"]
    return ["matches no hint"] if hints else []


def _entry(
    candidate: Candidate, reasons: list[str], health: Health, score: tuple[float, str] | None
) -> RankedTarget:
    available, why = health.available(candidate.target)
    value, fitness = (0.0, []) if score is None else (score[0], [score[1]])
    down = [] if available else [f"not available: {why}"]
    told = (*down, *reasons, *fitness, candidate.origin)
    return RankedTarget(candidate.target, available, told, value)
