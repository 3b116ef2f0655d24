"""Budgets by name, and everything that can be asked about the money."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from penstock.budget.entries import NO_TAGS, Charge, Entry
from penstock.budget.ports import Adjustment, LedgerStore
from penstock.budget.pricing.amounts import MOST
from penstock.budget.reports import (
    EVERYTHING,
    Balance,
    BudgetWarning,
    Difference,
    HistoryFilter,
    Page,
    Settlement,
    UsageBy,
    UsageRow,
)
from penstock.budget.rules import Budget
from penstock.contract.ports import Target

CODE = "code"
"""Who declares budgets that are in no configuration file."""
_log = logging.getLogger(__name__)
_PAGE = 100
_MOST_A_PAGE = 10_000


class Accounts:
    """The part of a ledger that has to do with no single request."""

    def __init__(
        self,
        store: LedgerStore,
        clock: Callable[[], float],
        on_warning: Callable[[BudgetWarning], object] | None,
    ) -> None:
        """Made as a part of `Ledger`."""
        self._store = store
        self._clock = clock
        self._on_warning = on_warning

    # -- budgets

    async def set_budget(self, budget: Budget) -> None:
        """Set by hand, also in place of one of that name, whose balance it keeps.

        A new one, or one that covers other things than before, counts what its period has used
        already. Requests that are under way are charged to it, though it holds nothing for them.
        """
        await self._store.set_budget(budget, self._clock())

    async def declare_budgets(
        self,
        budgets: Sequence[Budget],
        *,
        source: str = CODE,
        prune: bool = True,
        exclusive: bool = False,
    ) -> None:
        """Make the declared budgets be these: for a configuration, at each start and change.

        `source` names the configuration, for several may share a ledger: of the budgets that only
        this one has declared before, those that are not among them go, unless `prune` is False.
        Those that others declare stay, and so do those set by hand, also under a name that is
        declared here. Raises ConfigurationError, and changes nothing, when another configuration
        declares the same name with another definition, and, with `exclusive`, when another one
        declares budgets and this one has declared none here before.
        """
        declaring = self._store.declare_budgets(
            budgets, self._clock(), source=source, prune=prune, exclusive=exclusive
        )
        for one in await declaring:
            _log.warning(
                "budget %r was declared by %s, which does not exist any more; now it is as %s "
                "declares it",
                one.budget,
                ", ".join(one.declared_by),
                source,
            )

    async def remove_budget(self, name: str) -> bool:
        """Forget a budget; False when there is none of that name.

        Where it was set by hand over a declared one, the declared one is in force again.
        """
        return await self._store.remove_budget(name, self._clock())

    async def reset(self, budget: str) -> None:
        """Let the present period of a budget begin anew; what is held for requests stays held."""
        await self._store.reset(budget, self._clock())

    async def adjust(
        self,
        amount_nanos: int,
        note: str,
        *,
        budget: str | None = None,
        target: Target | None = None,
        key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> None:
        """Correct what is used, up or down: of one budget, or of all that cover what is named."""
        if type(amount_nanos) is not int or not -MOST <= amount_nanos <= MOST:
            raise ValueError(f"amount_nanos={amount_nanos!r}: give whole nano-dollars up to {MOST}")
        correction = Adjustment(
            amount_nanos=amount_nanos,
            at=self._clock(),
            note=note,
            budget=budget,
            target=target,
            key=key,
            tags=tags,
        )
        self._warn(await self._store.adjust(correction))

    async def record(
        self,
        request_id: str,
        charge: Charge,
        *,
        key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> Settlement:
        """Count a call that was made elsewhere, in every budget that covers it, exceeded or not."""
        settlement = await self._store.record(request_id, charge, self._clock(), key, dict(tags))
        if settlement.overdrawn:
            names = ", ".join(settlement.overdrawn)
            _log.warning("the recorded call %s has overdrawn: %s", request_id, names)
        self._warn(settlement.warnings)
        return settlement

    # -- questions

    async def balances(self, preview: Sequence[Budget] = ()) -> Sequence[Balance]:
        """Every budget in its present period, by name.

        Those of `preview` that are not in the ledger are added as they would begin.
        """
        return await self._store.balances(self._clock(), preview)

    async def probe(self) -> None:
        """Raise StorageUnavailable when nothing can be written to the store."""
        await self._store.probe(self._clock())

    async def swept_at(self) -> float | None:
        """When holds were last swept, by any process, in Unix seconds; None: never."""
        return await self._store.swept_at()

    async def usage(
        self,
        by: UsageBy | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        tag: str | None = None,
        key: str | None = None,
    ) -> Sequence[UsageRow]:
        """What was used between two moments, most expensive first; without `by` in one row.

        With `tag` instead of `by` there is a row for each value of the tag of this name. With
        `key`, only what the key of this id has used.
        """
        if by not in (None, "provider", "model", "key"):
            raise ValueError(f"by={by!r}: give 'provider', 'model', 'key' or None")
        if tag is not None and by is not None:
            raise ValueError(f"by={by!r} and tag={tag!r}: give one of them")
        return await self._store.usage(by, since, until, tag=tag, key=key)

    async def history(
        self,
        chosen: HistoryFilter = EVERYTHING,
        *,
        cursor: int | None = None,
        limit: int = _PAGE,
        oldest_first: bool = False,
    ) -> Page:
        """A page of entries; give its `next` as `cursor` for the page that follows."""
        if not 1 <= limit <= _MOST_A_PAGE:
            raise ValueError(f"limit={limit}: give 1 to {_MOST_A_PAGE}")
        return await self._store.history(chosen, cursor, limit, oldest_first=oldest_first)

    async def entries(self, chosen: HistoryFilter = EVERYTHING) -> AsyncGenerator[Entry, None]:
        """All entries that are chosen, oldest first, page by page."""
        page = await self.history(chosen, limit=_MOST_A_PAGE, oldest_first=True)
        while True:
            for entry in page.entries:
                yield entry
            if page.next is None:
                return
            page = await self.history(
                chosen, cursor=page.next, limit=_MOST_A_PAGE, oldest_first=True
            )

    async def verify(self) -> Sequence[Difference]:
        """Compute all balances from the entries; what differs from the recorded ones."""
        return await self._store.verify()

    def _warn(self, warnings: Sequence[BudgetWarning]) -> None:
        for warning in warnings:
            _log.warning("%s", warning)
            if self._on_warning is not None:
                try:
                    self._on_warning(warning)
                except Exception:  # noqa: BLE001 - requests outlive watchers
                    _log.exception("on_warning failed")
