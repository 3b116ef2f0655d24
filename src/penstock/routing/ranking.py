"""The order in which targets are tried, and the reasons; pure, so that it can be explained.

`order` decides, and `explained` puts its decision into words: so no explanation differs from what
is done, and a request that nobody asks about does not pay for words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Health, RankedTarget, RouteDecision, Target

Scorer: TypeAlias = Callable[[Target, ModelPreferences], tuple[float, str] | None]
"""How well a target fits the priorities, more is better, and why; None when nothing is known."""


class Candidate(NamedTuple):
    """A target that may serve the request, and whose it is."""

    target: Target
    model: str
    place: int
    """Which of the model's targets it is; the first is 1."""
    only_if_hinted: bool = False


class Placed(NamedTuple):
    """What decides the place of a candidate; less goes first."""

    unavailable: bool
    hint: int
    """The number of the first hint that is a part of its name; one past the last for none."""
    badness: float
    number: int
    """Keeps equals in the given order."""
    candidate: Candidate
    notes: tuple[str, str]
    """Why it is not available, and what the score means."""


class AllAvailable:
    """The health of targets that nobody watches."""

    def available(self, target: Target) -> tuple[bool, str]:
        """Always."""
        return True, ""


def distinct(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each target once, in the place where it comes first."""
    found: dict[Target, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.target, candidate)
    return tuple(found.values())


def order(
    candidates: Sequence[Candidate],
    preferences: ModelPreferences | None,
    health: Health,
    scorer: Scorer | None = None,
) -> list[Placed]:
    """The candidates in the order in which they are tried, and those that are not at the end.

    A target that may not be asked just now ranks behind all that may. Among equals, the one that
    matches the earlier hint goes first; then the better score, and then the given order.
    """
    hints = _hints(preferences)
    ranked: list[Placed] = []
    for number, candidate in enumerate(candidates):
        target = candidate.target
        available, why = health.available(target)
        score = None if scorer is None or preferences is None else scorer(target, preferences)
        value, meaning = score or (0.0, "")
        hint = _first_match(target, hints) if hints else 0
        ranked.append(Placed(not available, hint, -value, number, candidate, (why, meaning)))
    ranked.sort()
    return ranked


def tried(ranked: Iterable[Placed], preferences: ModelPreferences | None) -> tuple[Target, ...]:
    """The targets that are tried."""
    none = len(_hints(preferences))
    return tuple(each.candidate.target for each in ranked if not _left_out(each, none))


def explained(
    asked: str | None, ranked: Iterable[Placed], preferences: ModelPreferences | None
) -> RouteDecision:
    """The same in words."""
    hints = _hints(preferences)
    shown: list[RankedTarget] = []
    left_out: list[RankedTarget] = []
    for each in ranked:
        target = RankedTarget(
            each.candidate.target, not each.unavailable, tuple(_reasons(each, hints)), -each.badness
        )
        (left_out if _left_out(each, len(hints)) else shown).append(target)
    return RouteDecision(asked, tuple(shown), tuple(left_out))


def _hints(preferences: ModelPreferences | None) -> list[str]:
    if preferences is None or not preferences.hints:
        return []
    return [hint.strip() for hint in preferences.hints if hint.strip()]


def _first_match(target: Target, hints: Sequence[str]) -> int:
    name = str(target).casefold()
    matches = (index for index, hint in enumerate(hints) if hint.casefold() in name)
    return next(matches, len(hints))


def _left_out(placed: Placed, no_hint: int) -> bool:
    return placed.candidate.only_if_hinted and placed.hint == no_hint


def _reasons(placed: Placed, hints: Sequence[str]) -> Iterable[str]:
    why, meaning = placed.notes
    if placed.unavailable:
        yield f"not available: {why}"
    if placed.hint < len(hints):
        yield f"matches hint {placed.hint + 1}, {hints[placed.hint]!r}"
    elif hints:
        yield "matches no hint"
    if meaning:
        yield meaning
    yield f"target {placed.candidate.place} of {placed.candidate.model!r}"
