"""A task may be cancelled at any moment: nothing stays held, and nothing that was used is lost."""

import asyncio
import random
from pathlib import Path

import pytest

from penstock.budget.entries import Hold
from penstock.budget.ledger import Ledger
from penstock.budget.ports import Reservation, Told
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite import SqliteStore
from penstock.contract.errors import BudgetExceeded
from tests.budget.support import A, Books, books, charge
from tests.support.background import cycles

TOTAL = Budget(name="total", limit_nanos=10**9)


async def settled_down(at: Books) -> None:
    """Until nothing is held any more; fails when something is for ever."""
    async with asyncio.timeout(30):
        while (await at.balance()).held_nanos:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0)


@pytest.mark.parametrize("moments", range(4))
async def test_a_reservation_that_nobody_waits_for_is_released(
    tmp_path: Path, moments: int
) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        task = asyncio.create_task(at.hold(700))
        await cycles(moments)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled_down(at)
        assert (await at.balance()).used_nanos == 0


async def test_a_reservation_is_released_when_its_task_is_cancelled_in_the_moment_it_is_there(
    tmp_path: Path,
) -> None:
    class LastMoment(SqliteStore):
        """Cancels the task that waits, when its hold is there and before it can go on."""

        def reserve(
            self, asked: Reservation, told: Told[Hold | BudgetExceeded]
        ) -> asyncio.Future[Hold | BudgetExceeded]:
            reserving = super().reserve(asked, told)
            reserving.add_done_callback(lambda _: task.cancel())
            return reserving

    store = await LastMoment.open(tmp_path / "x.db")
    ledger = Ledger(store)
    await ledger.set_budget(TOTAL)
    task = asyncio.create_task(ledger.reserve("r", [(A, 700)]))
    with pytest.raises(asyncio.CancelledError):
        await task
    # What is released is written before what is asked for now.
    await ledger.sweep()
    (balance,) = await ledger.balances()
    assert (balance.held_nanos, balance.used_nanos) == (0, 0)
    page = await ledger.history()
    assert [entry.kind for entry in page.entries] == ["release", "hold"]
    await ledger.aclose()


async def test_a_settlement_that_nobody_waits_for_is_written(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(700)
        task = asyncio.create_task(at.ledger.settle(hold, [charge(600)]))
        await cycles(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settled_down(at)
        assert (await at.balance()).used_nanos == 600


async def test_closing_finishes_what_has_begun(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        holds = [await at.hold(10) for _ in range(50)]
        tasks = [asyncio.create_task(at.ledger.settle(hold, [charge(9)])) for hold in holds]
        await cycles(1)
        await at.ledger.aclose()
        assert all(each.recorded for each in await asyncio.gather(*tasks))
        assert (await at.balance()).used_nanos == 450


async def test_closing_releases_what_nobody_claims_any_more(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        tasks = [asyncio.create_task(at.hold(10)) for _ in range(50)]
        await cycles(1)
        for task in tasks:
            task.cancel()
        await at.ledger.aclose()
        assert all(task.cancelled() for task in tasks)
        assert (await at.balance()).held_nanos == 0
        kinds = [entry.kind for entry in await at.entries()]
        assert (kinds.count("hold"), kinds.count("release")) == (50, 50)


@pytest.mark.parametrize("seed", range(5))
async def test_requests_cancelled_at_random_moments_add_up(tmp_path: Path, seed: int) -> None:
    luck = random.Random(seed)
    answered = 0

    async def request(at: Books, number: int) -> None:
        nonlocal answered
        hold = await at.ledger.reserve(f"r{number}", [(A, 100)])
        charges = []
        try:
            await cycles(luck.randrange(5))
            answered += 1
            charges = [charge(70)]
            await cycles(luck.randrange(5))
        finally:
            await at.ledger.settle(hold, charges)

    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(TOTAL)
        tasks = [asyncio.create_task(request(at, number)) for number in range(200)]
        while not all(task.done() for task in tasks):
            luck.choice(tasks[::2]).cancel()
            await cycles(luck.randrange(3))
        await settled_down(at)
        assert (await at.balance()).used_nanos == 70 * answered
        assert answered > 0
        assert any(task.cancelled() for task in tasks)
