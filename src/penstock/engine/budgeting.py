"""The calls of an engine that are about money."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from decimal import Decimal

from penstock.budget.accounting import Books
from penstock.budget.calendar import Period
from penstock.budget.entries import NO_TAGS
from penstock.budget.ledger import Ledger
from penstock.budget.pricing.amounts import nanos_of
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget, covered_key
from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.errors import ConfigurationError, PenstockError

_log = logging.getLogger(__name__)
TOTAL = "total"
"""What `set_budget` calls a budget that is given no name."""


@methods_suggest_names
class Budgeting:
    """What an engine offers to those who watch what it spends."""

    def __init__(self, books: Books) -> None:
        """All money goes through these books."""
        self._books = books

    async def set_budget(
        self,
        limit_usd: float | Decimal | None,
        *,
        name: str = TOTAL,
        period: Period = "month",
        timezone: str = "UTC",
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        hard: bool = True,
        warn_at: Sequence[float] = (0.8,),
    ) -> None:
        """Let no more than this be spent in a period, by what it narrows to; None: no such limit.

        It is kept in the ledger and goes before one of the same name in penstock.toml. What was
        spent in the period already counts. None takes back what was set so, and one that
        penstock.toml declares holds again; without such it takes away the declared one, until that
        file is read the next time. Raises ConfigurationError for nonsense, and when the engine
        keeps no ledger.
        """
        if limit_usd is None:
            await self._books.remove_budget(name)
            return
        budget = Budget(
            name=name,
            limit_nanos=_limit(name, limit_usd),
            period=period,
            timezone=timezone,
            provider=provider,
            model=model,
            key=covered_key(name, key),
            tags=dict(tags),
            hard=hard,
            warn_at=tuple(warn_at),
        )
        await (await self._books.ledger()).set_budget(budget)

    async def budgets(self) -> Sequence[Balance]:
        """Every budget in its present period: its limit, what is used and held, what is left."""
        return await self._books.balances()

    @property
    def keeps_ledger(self) -> bool:
        """Whether usage is recorded; without it `ledger()` raises ConfigurationError."""
        return self._books.kept

    async def ledger(self) -> Ledger:
        """The ledger itself: history, export, corrections, verification."""
        return await self._books.ledger()

    async def remaining(self) -> dict[str, int] | None:
        """What each budget has left, in nano-dollars; None without a ledger that can be read."""
        if not self._books.kept:
            return None
        try:
            return {each.budget.name: each.remaining_nanos for each in await self.budgets()}
        except PenstockError as error:
            # Who asks how things are wants the rest of the answer all the same.
            _log.warning("what is left of the budgets cannot be told: %s", error)
            return None


def _limit(name: str, usd: float | Decimal) -> int:
    try:
        return nanos_of(usd)
    except (ValueError, ArithmeticError) as error:
        raise ConfigurationError(f"budget {name!r}: limit_usd: {error}") from None
