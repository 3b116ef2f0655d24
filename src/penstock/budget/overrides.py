"""Where the budgets that are in force are not those of the configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.budget.pricing.amounts import dollars
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget


def remarks(balances: Sequence[Balance], declared: Sequence[Budget], source: str) -> Iterator[str]:
    """Where what is in force is not what configurations say."""
    own = {budget.name: budget for budget in declared}
    for each in balances:
        name = each.budget.name
        if not each.in_force:
            yield (
                f"budget {name!r} of {source} is not in force yet: serve, ask, chat and embed "
                "declare it"
            )
        for one in each.overrides:
            was = "" if one.budget is None else f" ({limit_text(one.budget)})"
            yield (
                f"budget {name!r} ({limit_text(each.budget)}) was set by hand and overrides "
                f"[budgets.{name}] of {one.source}{was}; to end that: penstock budget remove {name}"
            )
        if each.declared_by and own.get(name, each.budget) != each.budget:
            yield (
                f"budget {name!r} is {limit_text(each.budget)} as {', '.join(each.declared_by)} "
                f"declares it; {source} says {limit_text(own[name])}, which is not in force"
            )
        for gone in each.declared_by:
            if Path(gone).is_absolute() and not Path(gone).exists():
                yield (
                    f"budget {name!r} is declared by {gone}, which does not exist any more; if it "
                    f"is not needed: penstock budget remove {name}"
                )


def limit_text(budget: Budget) -> str:
    """The limit and its period, such as `$5.00 a day`."""
    each = "" if budget.period == "forever" else f" a {budget.period}"
    return f"{dollars(budget.limit_nanos)}{each}{'' if budget.hard else ', soft'}"
