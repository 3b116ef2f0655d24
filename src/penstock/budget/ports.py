"""What a ledger asks of the place where it is kept.

Methods that return a future have begun when they return it, and cancelling the future ends the
waiting, not the work. Those that write are atomic, and have happened for good (as far as the
store's durability goes) when the future is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from penstock.budget.entries import NO_TAGS, Charge, Hold
from penstock.budget.reports import (
    Balance,
    BudgetWarning,
    Difference,
    HistoryFilter,
    Page,
    Replaced,
    Settlement,
    Swept,
    UsageBy,
    UsageRow,
)
from penstock.budget.rules import Budget
from penstock.contract.errors import BudgetExceeded
from penstock.contract.ports import Target

_T = TypeVar("_T")


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """What is asked for before a request."""

    request_id: str
    candidates: Sequence[tuple[Target, int | None]]
    """The targets that may be tried, each with the most it may cost, in nano-dollars.

    None: nobody knows, so that a hard budget has no room for it.
    """
    key: str | None
    tags: Mapping[str, str]
    at: float
    lease_s: float


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """A correction by hand: of one budget, or of all that cover what it names."""

    amount_nanos: int
    """Added to what is used; negative: taken from it."""
    at: float
    note: str
    budget: str | None = None
    target: Target | None = None
    key: str | None = None
    tags: Mapping[str, str] = NO_TAGS


Told = Callable[[_T | Exception, bool], object]
"""Is called in the event loop with what has come out, just before the future is done, if there is
one, and whether it was cancelled meanwhile, so that nobody else will know."""


class LedgerStore(Protocol):
    """Keeps the entries and the balances that follow from them.

    `penstock.budget.admission` decides what is admitted, in every store; the store ensures what
    it was judged on is still so when the entry is written.
    """

    def reserve(
        self, asked: Reservation, told: Told[Hold | BudgetExceeded]
    ) -> asyncio.Future[Hold | BudgetExceeded]:
        """Hold for every budget that applies, or for none; a refusal is returned, not raised."""
        ...

    def settle(
        self,
        hold: Hold,
        charges: Sequence[Charge],
        at: float,
        told: Told[Settlement],
    ) -> asyncio.Future[Settlement]:
        """Replace a hold by what was used; the first settlement of a hold counts."""
        ...

    def settle_soon(
        self, hold: Hold, charges: Sequence[Charge], at: float, told: Told[Settlement]
    ) -> None:
        """The same where nobody waits: it may be written together with what comes next."""
        ...

    def renew(self, holds: Sequence[int], at: float) -> asyncio.Future[None]:
        """Begin the leases of these holds anew; those that are closed stay so."""
        ...

    def sweep(self, at: float) -> asyncio.Future[Swept]:
        """Turn the holds whose leases are over into estimates, and note when that was."""
        ...

    def probe(self, at: float) -> asyncio.Future[None]:
        """Write something that changes nothing; raises StorageUnavailable when that fails."""
        ...

    async def swept_at(self) -> float | None:
        """When holds were last swept, by whomever, in Unix seconds; None: never."""
        ...

    def set_budget(self, budget: Budget, at: float) -> asyncio.Future[None]:
        """Set by hand; it stays until it is removed, whatever is declared."""
        ...

    def declare_budgets(
        self, budgets: Sequence[Budget], at: float, *, source: str, prune: bool, exclusive: bool
    ) -> asyncio.Future[tuple[Replaced, ...]]:
        """Make the budgets that this source declares be these.

        Those that are set by hand stay as they are. So do those that another source declares, and,
        without `prune`, those that this one has declared before. Raises ConfigurationError, and
        changes nothing, when another source declares one of these names with another definition;
        with `exclusive`, also when another source declares any budget and this one has none here.
        A source that is the path of a file is ignored when there is no such file; the budgets that
        were taken over from such sources are returned.
        """
        ...

    def remove_budget(self, name: str, at: float) -> asyncio.Future[bool]:
        """Forget a budget; False when there is none of that name.

        Where it was set by hand over a declared one, the declared one is in force again.
        """
        ...

    def reset(self, name: str, at: float) -> asyncio.Future[None]:
        """Count what the present period has used as nothing; raises ConfigurationError."""
        ...

    def adjust(self, adjustment: Adjustment) -> asyncio.Future[tuple[BudgetWarning, ...]]:
        """Record a correction; raises ConfigurationError for a budget that does not exist."""
        ...

    def record(
        self, request_id: str, charge: Charge, at: float, key: str | None, tags: Mapping[str, str]
    ) -> asyncio.Future[Settlement]:
        """Count a call that was made elsewhere, in every budget that covers it, exceeded or not."""
        ...

    async def balances(self, at: float, preview: Sequence[Budget] = ()) -> Sequence[Balance]:
        """Every budget in its period at this moment, by name.

        Those of `preview` that are not there are added as they would begin, `in_force` False.
        """
        ...

    async def usage(
        self,
        by: UsageBy | None,
        since: float | None,
        until: float | None,
        *,
        tag: str | None = None,
        key: str | None = None,
    ) -> Sequence[UsageRow]:
        """What was used, most expensive first; without `by` one row for all of it.

        With `tag` instead of `by` there is a row for each value of that tag. With `key`, only what
        the key of this id has used.
        """
        ...

    async def history(
        self, chosen: HistoryFilter, cursor: int | None, limit: int, *, oldest_first: bool
    ) -> Page:
        """The entries after this cursor."""
        ...

    async def verify(self) -> Sequence[Difference]:
        """Compute every balance from the entries, and return what differs."""
        ...

    async def aclose(self) -> None:
        """Finish what has begun, and let go of everything."""
        ...
