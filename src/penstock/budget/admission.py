"""Whether a request fits: pure, so that every store judges alike.

Each target is judged by itself: it is admitted when every hard budget that covers it has its cost
left. A budget then holds the cost of the dearest admitted target that it covers. That one fits,
so the hold does, and no target is left out that would have fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.budget.calendar import Span, at_text
from penstock.budget.entries import LeftOut, Posting
from penstock.budget.ports import Reservation
from penstock.budget.pricing.amounts import dollars
from penstock.budget.rules import Budget, Rule, Rules
from penstock.contract.errors import BudgetExceeded
from penstock.contract.ports import Target


class Admission(msgspec.Struct, frozen=True, gc=False):
    """What may be tried, and what is held for it."""

    targets: tuple[Target, ...]
    left_out: tuple[LeftOut, ...]
    dearest: Target
    amount_nanos: int
    postings: tuple[Posting, ...]


class _Refusal(msgspec.Struct, frozen=True):
    rule: Rule
    span: Span
    target: Target
    asked: int | None
    """None: nobody knows what it may cost."""
    remaining: int

    @property
    def wait_until(self) -> float | None:
        """When it may fit; None: never, for a whole period is too little, or there is but one."""
        if self.asked is None or self.asked > self.rule.budget.limit_nanos:
            return None
        return self.span.end


def judge(
    asked: Reservation, rules: Rules, taken: Callable[[int, int], int]
) -> Admission | BudgetExceeded:
    """Admit what fits; `taken(budget, period)` is what is used and held there together."""
    at, key, tags = asked.at, asked.key, asked.tags
    admitted: list[Target] = []
    left_out: list[_Refusal] = []
    held: dict[tuple[int, int], int] = {}
    dearest, most = None, -1
    for target, most_it_costs in asked.candidates:
        matching = rules.matching(target, key, tags)
        places: list[tuple[int, int]] = []
        for rule in matching:
            place = (rule.id, rule.span(at).start)
            if most_it_costs != 0 and rule.budget.hard:
                remaining = rule.budget.limit_nanos - taken(*place)
                if most_it_costs is None or most_it_costs > remaining:
                    left_out.append(_refusal(matching, at, target, most_it_costs, taken))
                    break
            places.append(place)
        else:
            admitted.append(target)
            cost = most_it_costs or 0
            if cost > most:
                dearest, most = target, cost
            for place in places:
                if cost > held.get(place, -1):
                    held[place] = cost
    if dearest is None:
        return _exceeded(left_out, at)
    return Admission(
        tuple(admitted),
        tuple(map(_told, left_out)) if left_out else (),
        dearest,
        most,
        tuple([Posting(*place, 0, nanos) for place, nanos in held.items()]),
    )


def _refusal(
    matching: Sequence[Rule],
    at: float,
    target: Target,
    cost: int | None,
    taken: Callable[[int, int], int],
) -> _Refusal:
    """The budget that refuses longest: the others being free would not help."""
    refusals: list[_Refusal] = []
    for rule in matching:
        span = rule.span(at)
        remaining = rule.budget.limit_nanos - taken(rule.id, span.start)
        if rule.budget.hard and (cost is None or cost > remaining):
            refusals.append(_Refusal(rule, span, target, cost, remaining))
    worst = refusals[0]
    for refusal in refusals:
        if _later(refusal.wait_until, worst.wait_until):
            worst = refusal
    return worst


def _later(one: float | None, other: float | None) -> bool:
    return other is not None and (one is None or one > other)


def _told(refusal: _Refusal) -> LeftOut:
    return LeftOut(
        refusal.target,
        refusal.rule.budget.name,
        refusal.asked or 0,
        refusal.remaining,
        refusal.span.end,
        _reason(refusal),
    )


def _reason(refusal: _Refusal) -> str:
    budget, span = refusal.rule.budget, refusal.span
    return refusal_reason(budget, refusal.target, refusal.asked, refusal.remaining, span.end)


def refusal_reason(
    budget: Budget, target: Target, asked: int | None, remaining: int, resets_at: float | None
) -> str:
    """Why a hard budget refuses a call, and what to do; `asked` None: no price is known."""
    if asked is None:
        return (
            f"no price for {target}; the hard budget {budget.name!r} requires one: give it in "
            "penstock.toml, or one for all such targets in [prices] default"
        )
    left = max(0, remaining)
    said = (
        f"budget {budget.name!r} has {dollars(left)} left of {dollars(budget.limit_nanos)} "
        f"({budget.period}), and {target} may cost {dollars(asked)}"
    )
    if asked > budget.limit_nanos:
        return f"{said}, which is more than its whole limit: ask for fewer tokens, or raise it"
    if resets_at is None:
        return f"{said}; it is never reset: raise its limit, or reset it"
    return f"{said}; it resets at {at_text(resets_at)}"


def _exceeded(refusals: Sequence[_Refusal], at: float) -> BudgetExceeded:
    """The refusal of the target that will be free first; of the cheapest, when none will be."""
    if not refusals:
        raise ValueError("candidates is empty: give at least one target")
    first = min(
        refusals,
        key=lambda one: (
            one.wait_until is None,
            one.wait_until or 0.0,
            one.asked is None,
            one.asked or 0,
        ),
    )
    others = len(refusals) - 1
    more = f" (and {others} other target{'s' * (others > 1)} did not fit either)" if others else ""
    until = first.wait_until
    return BudgetExceeded(
        _reason(first) + more,
        budget=first.rule.budget.name,
        limit_nanos=first.rule.budget.limit_nanos,
        remaining_nanos=first.remaining,
        asked_nanos=first.asked or 0,
        resets_at=first.span.end,
        retry_after=None if until is None else max(0.0, until - at),
    )
