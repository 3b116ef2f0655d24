"""The order in which targets are tried, and the reasons; pure, so that it can be explained.

`order` decides as far as health, size, hints and sessions do, and a strategy among those that they
leave equal. `explained` puts that into words: so no explanation differs from what is done, and a
request that nobody asks about does not pay for words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Health, Target
from penstock.routing.catalogue import equivalent
from penstock.routing.strategies import Opinion, Strategy


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
    tight: bool
    """Whether it may be too small for the request."""
    hint: int
    """The number of the first hint that is a part of its name; after all those, of the first whose
    equivalent it is; and after all of those, for none."""
    strayed: bool
    """Whether another one has served this session."""
    badness: float
    """What the strategy says."""
    number: int
    """Keeps equals in the given order."""
    candidate: Candidate
    notes: tuple[str, str] = ("", "")
    """Why it is not available, and why it may be too small."""
    opinion: Opinion | None = None


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
    *,
    tight: Mapping[Target, str] | None = None,
    session: Target | None = None,
) -> list[Placed]:
    """The candidates in the order in which they are tried, and those that are not at the end.

    A target that may not be asked just now ranks behind all that may, and one that may be too small
    (`tight`, with the reason) behind all others. Then the one that matches the earlier hint goes
    first; then the one that has served this session; and then the given order holds.
    """
    hints = hints_of(preferences)
    levels = _levels([each.target for each in candidates], hints) if hints else None
    ranked: list[Placed] = []
    for number, candidate in enumerate(candidates):
        target = candidate.target
        available, why = health.available(target)
        small = tight.get(target, "") if tight else ""
        level = levels[number] if levels else 0
        strayed = session is not None and target != session
        ranked.append(
            Placed(not available, bool(small), level, strayed, 0.0, number, candidate, (why, small))
        )
    ranked.sort()
    return ranked


async def judged(
    strategy: Strategy,
    ranked: Sequence[Placed],
    request: SamplingRequest,
    *,
    request_id: str | None,
    key: str | None,
) -> list[Placed]:
    """The same, with equals in the order that the strategy gives them.

    It decides among the first of them if the request has an id; of all others it is only asked.
    """
    none = none_of(hints_of(request.model_preferences))
    chosen = [each for each in ranked if not is_left_out(each, none)]
    deciding = request_id is not None
    found: list[Placed] = []
    for _, equals in groupby(chosen, key=lambda each: each[:4]):
        group = list(equals)
        opinions = await strategy.judge(
            request,
            [each.candidate.target for each in group],
            deciding=deciding,
            request_id=request_id if deciding else None,
            key=key,
        )
        if found:
            # They stand behind those already, whatever the strategy would have done.
            opinions = [msgspec.structs.replace(each, propensity=None) for each in opinions]
        found += [
            each._replace(badness=opinion.place, opinion=opinion)
            for each, opinion in zip(group, opinions, strict=True)
        ]
        deciding = False
    found.sort()
    found += [each for each in ranked if is_left_out(each, none)]
    return found


def tried(ranked: Iterable[Placed], preferences: ModelPreferences | None) -> tuple[Target, ...]:
    """The targets that are tried."""
    none = none_of(hints_of(preferences))
    return tuple(each.candidate.target for each in ranked if not is_left_out(each, none))


def hints_of(preferences: ModelPreferences | None) -> list[str]:
    """The hints that say something."""
    if preferences is None or not preferences.hints:
        return []
    return [hint.strip() for hint in preferences.hints if hint.strip()]


def none_of(hints: Sequence[str]) -> int:
    """The level of a target that matches no hint, nor is like any."""
    return 2 * len(hints)


def is_left_out(placed: Placed, none: int) -> bool:
    """Whether it is not tried."""
    return placed.candidate.only_if_hinted and placed.hint == none


def _levels(targets: Sequence[Target], hints: Sequence[str]) -> list[int]:
    """Which hint each target matches: what a hint names goes before what is merely like it."""
    names = [str(target).casefold() for target in targets]
    folded = [hint.casefold() for hint in hints]
    unmatched = [
        number for number, hint in enumerate(folded) if not any(hint in name for name in names)
    ]
    return [
        _level(target, name, folded, unmatched) for target, name in zip(targets, names, strict=True)
    ]


def _level(target: Target, name: str, hints: Sequence[str], unmatched: Collection[int]) -> int:
    for number, hint in enumerate(hints):
        if hint in name:
            return number
    # Nothing here has that name, so a model of its class does, whoever made it.
    for number in unmatched:
        if equivalent(hints[number], target.model):
            return len(hints) + number
    return none_of(hints)
