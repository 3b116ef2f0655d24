"""The port of the ledger, filled by one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from penstock.budget.entries import Charge, Hold
from penstock.budget.ports import Adjustment, Reservation, Told
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
from penstock.budget.stores.sqlite import queries
from penstock.budget.stores.sqlite.budgets import DeclareBudgets, RemoveBudget, SetBudget
from penstock.budget.stores.sqlite.maintenance import Adjust, NotedSweep, Probe, RecordCall, Reset
from penstock.budget.stores.sqlite.requests import Renew, Reserve, Settle
from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.budget.stores.sqlite.writer import Writer
from penstock.contract.errors import BudgetExceeded, ConfigurationError
from penstock.storage.sqlite.connect import Synchronous, connect, connect_to_read, prepare
from penstock.storage.sqlite.errors import translated
from penstock.storage.sqlite.guard import StoreGuard

_T = TypeVar("_T")


class SqliteStore:
    """A ledger in one file, for any number of tasks, event loops and processes of one machine.

    `synchronous` says what a power failure may take. A killed process never loses what was
    committed, with either.

    - `normal`: SQLite writes to the disk when it is time for it. The last transactions before a
      power failure or a crash of the system may be missing, holds and settlements alike; what is
      there is whole and adds up.
    - `full`: each group commit waits for the disk. Nothing that was answered to is missing, as far
      as the disk keeps what it says is written; each commit takes as long as the disk needs.

    Open it after a fork, not before.
    """

    def __init__(self, path: Path, writer: Writer, guard: StoreGuard) -> None:
        """Made by `open`."""
        self._path = path
        self._guard = guard
        self._writer = writer
        # One that is dropped unclosed, as with a generator that nobody closes, ends its thread.
        weakref.finalize(self, writer.end).atexit = False

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        synchronous: Synchronous = "normal",
        guard: StoreGuard | None = None,
    ) -> Self:
        """Open the file or make it; an older one is backed up beside itself, then brought up.

        `guard` refuses a file that is not the expected one, with StorageUnavailable. Raises
        ConfigurationError when it cannot be used: damaged, read-only, newer than this code.
        """
        if synchronous not in ("normal", "full"):
            raise ConfigurationError(f"synchronous={synchronous!r}: give 'normal' or 'full'")
        # Absolute, for SQLite takes `:memory:` and the empty name for something else than files.
        file = Path(path).absolute()  # noqa: ASYNC240 - it asks for the working folder only
        known = guard or StoreGuard(file)

        def connection() -> sqlite3.Connection:
            known.verify()
            opened = connect(file, synchronous)
            try:
                prepare(opened, file, MIGRATIONS, LEDGER_META)
                known.adopt(opened)
            except BaseException:
                opened.close()
                raise
            return opened

        writer = Writer(file, connection, known)
        await writer.start()
        return cls(file, writer, known)

    def reserve(
        self, asked: Reservation, told: Told[Hold | BudgetExceeded]
    ) -> asyncio.Future[Hold | BudgetExceeded]:
        """Judged by what the file says, so that it holds for all processes."""
        return self._writer.submit(Reserve(asked), told)

    def settle(
        self,
        hold: Hold,
        charges: Sequence[Charge],
        at: float,
        told: Told[Settlement],
    ) -> asyncio.Future[Settlement]:
        """The first settlement of a hold counts."""
        return self._writer.submit(Settle(hold, charges, at), told)

    def settle_soon(
        self, hold: Hold, charges: Sequence[Charge], at: float, told: Told[Settlement]
    ) -> None:
        """Within a moment, with what is written next."""
        self._writer.submit_soon(Settle(hold, charges, at), told)

    def renew(self, holds: Sequence[int], at: float) -> asyncio.Future[None]:
        """Begin leases anew."""
        return self._writer.submit(Renew(holds, at))

    def sweep(self, at: float) -> asyncio.Future[Swept]:
        """Turn holds whose leases are over into estimates, whichever process made them."""
        return self._writer.submit(NotedSweep(at))

    def probe(self, at: float) -> asyncio.Future[None]:
        """A transaction of one row."""
        return self._writer.submit(Probe(at))

    async def swept_at(self) -> float | None:
        """As of the last commit."""
        return await self._read(queries.swept_at)

    def set_budget(self, budget: Budget, at: float) -> asyncio.Future[None]:
        """Other processes know it with their next transaction."""
        return self._writer.submit(SetBudget(budget, at))

    def declare_budgets(
        self,
        budgets: Sequence[Budget],
        at: float,
        *,
        source: str,
        prune: bool = True,
        exclusive: bool = False,
    ) -> asyncio.Future[tuple[Replaced, ...]]:
        """Processes that declare the same do so once."""
        return self._writer.submit(
            DeclareBudgets(budgets, at, source, prune, exclusive, self._path)
        )

    def remove_budget(self, name: str, at: float) -> asyncio.Future[bool]:
        """False when there is none of that name."""
        return self._writer.submit(RemoveBudget(name, at))

    def reset(self, name: str, at: float) -> asyncio.Future[None]:
        """Reset the present period."""
        return self._writer.submit(Reset(name, at))

    def adjust(self, adjustment: Adjustment) -> asyncio.Future[tuple[BudgetWarning, ...]]:
        """Correct what is used."""
        return self._writer.submit(Adjust(adjustment))

    def record(
        self, request_id: str, charge: Charge, at: float, key: str | None, tags: Mapping[str, str]
    ) -> asyncio.Future[Settlement]:
        """One entry, without a hold."""
        return self._writer.submit(RecordCall(request_id, charge, at, key, tags))

    async def balances(self, at: float, preview: Sequence[Budget] = ()) -> Sequence[Balance]:
        """As of the last commit."""
        return await self._read(lambda connection: queries.balances(connection, at, preview))

    async def usage(
        self,
        by: UsageBy | None,
        since: float | None,
        until: float | None,
        *,
        tag: str | None = None,
        key: str | None = None,
    ) -> Sequence[UsageRow]:
        """Reads the entries of that time, and no others."""
        chosen = HistoryFilter(since=since, until=until, key=key)
        return await self._read(lambda connection: queries.usage(connection, by, chosen, tag))

    async def history(
        self, chosen: HistoryFilter, cursor: int | None, limit: int, *, oldest_first: bool
    ) -> Page:
        """Pages stay right while entries are added."""
        return await self._read(
            lambda connection: queries.history(connection, chosen, cursor, limit, oldest_first)
        )

    async def verify(self) -> Sequence[Difference]:
        """As of one moment, while others go on writing."""
        return await self._read(queries.verify)

    async def aclose(self) -> None:
        """Write what was submitted, and close the file."""
        await self._writer.aclose()

    async def _read(self, question: Callable[[sqlite3.Connection], _T]) -> _T:
        def ask() -> _T:
            self._guard.check()
            try:
                connection = connect_to_read(self._path)
                try:
                    return question(connection)
                finally:
                    connection.close()
            except sqlite3.Error as error:
                raise translated(error, self._path) from error

        await self._writer.catch_up()
        return await asyncio.to_thread(ask)
