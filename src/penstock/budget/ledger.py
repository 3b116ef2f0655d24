"""The ledger: holds what a request may cost, settles what it did cost, and answers questions.

```python
async with await Ledger.open("penstock.db") as ledger:
    await ledger.set_budget(Budget(name="total", limit_nanos=100 * NANOS))
    hold = await ledger.reserve("request-1", [(target, most_nanos)])  # or BudgetExceeded
    try:
        ...  # call hold.targets
    finally:
        await ledger.settle(hold, charges)  # none: nothing was used
```

A call is cancelled at any moment without harm: a hold that nobody got is released, and a settlement
that nobody waits for is written all the same. Every request has a hold in the store before its
provider is called, also when no budget applies: only so is a call that was answered in the ledger
when the process is killed in the next moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.budget.entries import NO_TAGS, Charge, Hold, check_amount
from penstock.budget.ports import LedgerStore, Reservation
from penstock.budget.pricing.amounts import dollars
from penstock.budget.queries import Accounts
from penstock.budget.reports import BudgetWarning, Settlement, Swept
from penstock.contract.errors import BudgetExceeded, PenstockError
from penstock.contract.ports import Target

if TYPE_CHECKING:
    from penstock.storage.sqlite.guard import StoreGuard

_log = logging.getLogger(__name__)
_NAMED = 5
"""A crash may leave hundreds of requests; the history has them all."""


class Ledger(Accounts):
    """One ledger, for the tasks of one event loop."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Callable[[], float] = time.time,
        lease_s: float = 120.0,
        on_warning: Callable[[BudgetWarning], object] | None = None,
        sleep: Callable[[float], Coroutine[Any, Any, object]] = asyncio.sleep,
    ) -> None:
        """`clock` gives Unix seconds; `on_warning` is called in the event loop, and beside the log.

        `lease_s`: so long the money of a request whose process has died stays blocked.
        """
        if not lease_s > 0:
            raise ValueError(f"lease_s={lease_s}: give seconds above 0")
        super().__init__(store, clock, on_warning)
        self._lease_s = lease_s
        self._sleep = sleep
        self._held: dict[int, weakref.ref[Hold]] = {}
        self._unwritten: dict[int, tuple[Hold, Sequence[Charge], float, int]] = {}
        self._retrying = False
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        synchronous: Literal["normal", "full"] = "normal",
        clock: Callable[[], float] = time.time,
        lease_s: float = 120.0,
        on_warning: Callable[[BudgetWarning], object] | None = None,
        guard: StoreGuard | None = None,
    ) -> Ledger:
        """A ledger in this SQLite file; `SqliteStore` says what `synchronous` promises.

        `guard` refuses a file that is not the expected one.
        """
        from penstock.budget.stores.sqlite import SqliteStore

        store = await SqliteStore.open(path, synchronous=synchronous, guard=guard)
        return cls(store, clock=clock, lease_s=lease_s, on_warning=on_warning)

    async def __aenter__(self) -> Ledger:
        """Begin to renew leases and to sweep, four times a lease."""
        self._keeper = asyncio.create_task(self._keep(), name="penstock-ledger-keeper")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is to be written, and close the store; what is held expires in time."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.write_again()
        # Behind everything that was begun: a hold that nobody claims any more is released by then.
        with contextlib.suppress(PenstockError):
            await self._store.renew((), self._clock())
        if self._unwritten:
            _log.error(
                "%d settlements could not be written: their holds expire as estimates",
                len(self._unwritten),
            )
        await self._store.aclose()

    # -- requests

    async def reserve(
        self,
        request_id: str,
        candidates: Sequence[tuple[Target, int | None]],
        *,
        key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        lease_s: float | None = None,
    ) -> Hold:
        """Hold the cost of the dearest target that fits, in every budget that applies, or raise.

        `candidates` are the targets that may be tried, each with the most it may cost; None is for
        what nobody knows, which hard budgets refuse. Those that
        do not fit are in `left_out`; raises BudgetExceeded when none fits. `tags` are stored with
        the entries: give those that budgets or reports may ask for. `lease_s` may be longer than
        the ledger's own.
        """
        if not candidates:
            raise ValueError("candidates is empty: give at least one target")
        for target, nanos in candidates:
            if nanos is not None:
                check_amount(nanos, "the cost of", target)
        lease = self._lease_s if lease_s is None else lease_s
        if lease < self._lease_s:
            raise ValueError(
                f"lease_s={lease_s}: give {self._lease_s} or more, for leases are renewed at the "
                "pace that this needs"
            )
        asked = Reservation(request_id, candidates, key, dict(tags), self._clock(), lease)
        reserving = self._store.reserve(asked, self._reserved)
        try:
            verdict = await reserving
        except asyncio.CancelledError:
            # Cancelled when the hold was there, and before this task could go on.
            if not reserving.cancelled() and reserving.exception() is None:
                self._reserved(reserving.result(), unclaimed=True)
            raise
        if isinstance(verdict, BudgetExceeded):
            raise verdict.located(request_id=request_id)
        return verdict

    def _reserved(self, verdict: Hold | BudgetExceeded | Exception, unclaimed: bool) -> None:
        if isinstance(verdict, Hold):
            if unclaimed:
                self.settle_soon(verdict)
            else:
                self._held[verdict.id] = weakref.ref(verdict)

    async def settle(
        self, hold: Hold, charges: Sequence[Charge] = (), *, beside_nanos: int = 0
    ) -> Settlement:
        """Replace a hold by what was used, exactly; without charges it is released.

        The first settlement of a hold counts; a further one writes nothing, and says so in
        `recorded`. What is above the hold is recorded too, for it was spent, and logged. When the
        store fails, that is raised, and the settlement is kept and tried again until it is written.
        `beside_nanos` is what further holds have for the same charges.
        """
        return await self._settle(hold, charges, self._clock(), beside_nanos)

    def settle_soon(
        self, hold: Hold, charges: Sequence[Charge] = (), beside_nanos: int = 0
    ) -> None:
        """The same, for those who do not wait: it is written with what is written next.

        Reports of this ledger count it from now on.
        """
        at = self._clock()
        # A failure is logged, and tried again; here nobody waits for it.
        told = partial(self._settled, hold, charges, at, beside_nanos)
        self._store.settle_soon(hold, charges, at, told)

    def _settle(
        self, hold: Hold, charges: Sequence[Charge], at: float, beside_nanos: int = 0
    ) -> asyncio.Future[Settlement]:
        told = partial(self._settled, hold, charges, at, beside_nanos)
        return self._store.settle(hold, charges, at, told)

    def _settled(
        self,
        hold: Hold,
        charges: Sequence[Charge],
        at: float,
        beside_nanos: int,
        settlement: Settlement | Exception,
        _unclaimed: bool,
    ) -> None:
        if isinstance(settlement, Exception):
            # Once: it is tried again each second.
            _log.log(
                logging.DEBUG if hold.id in self._unwritten else logging.ERROR,
                "request %s: its settlement is not written yet and will be tried again: %s",
                hold.request_id,
                settlement,
            )
            self._unwritten[hold.id] = (hold, charges, at, beside_nanos)
            return
        self._unwritten.pop(hold.id, None)
        self._held.pop(hold.id, None)
        held_nanos = hold.amount_nanos + beside_nanos
        if settlement.amount_nanos > held_nanos:
            _log.warning(
                "request %s has cost %s, and %s were held for it",
                hold.request_id,
                dollars(settlement.amount_nanos),
                dollars(held_nanos),
            )
        if settlement.overdrawn:
            names = ", ".join(settlement.overdrawn)
            _log.warning("request %s has overdrawn: %s", hold.request_id, names)
        if settlement.warnings:
            self._warn(settlement.warnings)

    # -- leases

    async def renew(self) -> None:
        """Begin the leases anew of all holds that somebody here keeps."""
        # One that nobody keeps any more is left to expire.
        self._held = {id: hold for id, hold in self._held.items() if hold() is not None}
        if self._held:
            await self._store.renew(list(self._held), self._clock())

    async def sweep(self) -> Swept:
        """Turn the holds whose leases are over into estimates, whoever made them."""
        swept = await self._store.sweep(self._clock())
        if swept.expired:
            _log.warning(
                "%d requests were never settled: %s are counted for them as an estimate: %s",
                len(swept.expired),
                dollars(sum(one.amount_nanos for one in swept.expired)),
                ", ".join([one.request_id for one in swept.expired[:_NAMED]]),
            )
        self._warn(swept.warnings)
        return swept

    async def tend(self) -> None:
        """Renew, sweep, and write what could not be written; the keeper does it by itself."""
        await self.renew()
        await self.write_again()
        await self.sweep()

    async def write_again(self) -> None:
        """Try once more to write the settlements that could not be written."""
        if self._retrying:
            # A locked file may take half a minute, and each attempt waits for it.
            return
        self._retrying = True
        try:
            await self._settle_again()
        finally:
            self._retrying = False

    async def _settle_again(self) -> None:
        again = [self._settle(*one) for one in self._unwritten.values()]
        await asyncio.gather(*again, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await self._sleep(self._lease_s / 4)
            try:
                await self.tend()
            except PenstockError as error:
                _log.error("the ledger could not be tended: %s", error)
