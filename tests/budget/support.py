"""A ledger on a real file, with time that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.budget.entries import Charge, Entry, Hold
from penstock.budget.ledger import Ledger
from penstock.budget.reports import Balance, BudgetWarning
from penstock.contract.errors import BudgetExceeded
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from tests.support.background import Timers, until
from tests.support.clock import ManualClock

NOON = 1_777_636_800.0
"""2026-05-01 12:00 UTC, a Friday."""
A, B = Target("a", "m"), Target("b", "m")


def charge(nanos: int, target: Target = A, *, estimated: bool = False) -> Charge:
    """A call that cost this much."""
    usage = Usage(100, 20, 30, 4, 5, estimated)
    return Charge(target, usage, nanos, "test", estimated, "input 1, output 2")


class Books:
    """A ledger, its clock, and the warnings that it gave."""

    def __init__(self, ledger: Ledger, clock: ManualClock, warnings: list[BudgetWarning]) -> None:
        self.ledger = ledger
        self.clock = clock
        self.warnings = warnings

    async def hold(self, nanos: int, target: Target = A, request_id: str = "r") -> Hold:
        return await self.ledger.reserve(request_id, [(target, nanos)])

    async def spend(self, nanos: int, target: Target = A, request_id: str = "r") -> None:
        hold = await self.hold(nanos, target, request_id)
        await self.ledger.settle(hold, [charge(nanos, target)])

    async def balance(self, name: str = "total") -> Balance:
        (found,) = [each for each in await self.ledger.balances() if each.budget.name == name]
        return found

    async def entries(self) -> list[Entry]:
        return [entry async for entry in self.ledger.entries()]


@asynccontextmanager
async def books(
    path: Path, clock: ManualClock | None = None, lease_s: float = 120.0
) -> AsyncGenerator[Books]:
    """Open it without a keeper: the test says when it is tended; in the end it adds up."""
    time = clock or ManualClock(NOON)
    warnings: list[BudgetWarning] = []
    ledger = await Ledger.open(path, clock=time, lease_s=lease_s, on_warning=warnings.append)
    try:
        yield Books(ledger, time, warnings)
        assert await ledger.verify() == []
    finally:
        await ledger.aclose()


async def asleep(timers: Timers, number: int) -> None:
    """Until the keeper has gone to sleep for this time."""
    await until(lambda: len(timers.delays) == number and bool(timers.sleepers))


async def admitted(ledger: Ledger, number: int, nanos: int) -> Sequence[Hold]:
    """How many of so many concurrent requests get a hold."""
    answers = await asyncio.gather(
        *(ledger.reserve(f"r{each}", [(A, nanos)]) for each in range(number)),
        return_exceptions=True,
    )
    for answer in answers:
        assert isinstance(answer, Hold | BudgetExceeded), answer
    return [answer for answer in answers if isinstance(answer, Hold)]
