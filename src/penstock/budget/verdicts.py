"""Whether budgets have room for a call, by their balances, without reserving anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.budget.admission import refusal_reason
from penstock.budget.reports import Balance
from penstock.budget.rules import Rule, Rules
from penstock.contract.estimates import BudgetVerdict
from penstock.contract.ports import Target


def verdicts(
    balances: Sequence[Balance],
    candidates: Sequence[tuple[Target, int | None]],
    key: str | None,
    tags: Mapping[str, str],
) -> list[tuple[BudgetVerdict, ...]]:
    """What each budget that covers a target says of a call that costs so much at most.

    It is what `judge` would decide on these balances.
    """
    rules = Rules(Rule(number, each.budget) for number, each in enumerate(balances))
    return [
        tuple(
            _verdict(balances[rule.id], target, asked) for rule in rules.matching(target, key, tags)
        )
        for target, asked in candidates
    ]


def _verdict(balance: Balance, target: Target, asked: int | None) -> BudgetVerdict:
    budget, remaining = balance.budget, balance.remaining_nanos
    fits = not budget.hard or asked == 0 or (asked is not None and asked <= remaining)
    return BudgetVerdict(
        budget.name,
        fits,
        budget.hard,
        budget.limit_nanos,
        remaining,
        asked,
        balance.resets_at,
        "" if fits else refusal_reason(budget, target, asked, remaining, balance.resets_at),
    )
