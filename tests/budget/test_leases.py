"""Holds of the living are renewed; those of the dead become estimates, and the truth may follow."""

import asyncio
import gc
from pathlib import Path

import pytest

from penstock.budget.calendar import Period
from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite import SqliteStore
from penstock.contract.errors import BudgetExceeded
from tests.budget.support import NOON, A, B, Books, asleep, books, charge
from tests.support.background import Timers

TOTAL = Budget(name="total", limit_nanos=1000, period="day")


async def test_a_hold_past_its_lease_becomes_an_estimate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.ledger.reserve("lost", [(A, 200), (B, 900)], key="ci", tags={"t": "1"})
        at.clock.now += 59
        assert (await at.ledger.sweep()).expired == ()
        assert (await at.balance()).held_nanos == 900
        at.clock.now += 1
        swept = await at.ledger.sweep()
        assert [(one.hold, one.request_id) for one in swept.expired] == [(hold.id, "lost")]
        assert [warning.used_nanos for warning in at.warnings] == [900]
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (900, 0)
        _, entry = await at.entries()
        assert (entry.kind, entry.amount_nanos, entry.estimated) == ("expire", 900, True)
        assert (entry.provider, entry.key, entry.tags) == ("b", "ci", {"t": "1"})
        assert (entry.hold, entry.held_at, entry.at) == (hold.id, NOON, NOON + 60)
        assert (await at.ledger.sweep()).expired == ()
    said = "1 requests were never settled: $0.0000009 are counted for them as an estimate: lost"
    assert said in caplog.text


async def test_a_renewed_hold_lives_on(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(500)
        for _ in range(5):
            at.clock.now += 50
            await at.ledger.tend()
        assert (await at.balance()).held_nanos == 500
        assert (await at.ledger.settle(hold, [charge(400)])).recorded
        at.clock.now += 100
        await at.ledger.tend()
        assert (await at.balance()).used_nanos == 400


async def test_a_hold_that_was_dropped_is_not_renewed(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        kept, dropped = await at.hold(500), await at.hold(300)
        del dropped
        gc.collect()
        for _ in range(4):
            at.clock.now += 40
            await at.ledger.tend()
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (300, 500)
        await at.ledger.settle(kept)


async def test_another_process_sweeps_what_a_dead_one_left(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as dead:
        await dead.ledger.set_budget(TOTAL)
        await dead.hold(1000)
    async with books(tmp_path / "x.db", dead.clock, lease_s=60) as living:
        with pytest.raises(BudgetExceeded):
            await living.hold(1)
        living.clock.now += 61
        assert len((await living.ledger.sweep()).expired) == 1


async def test_a_settlement_that_comes_late_replaces_the_estimate(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        await at.ledger.set_budget(Budget(name="of b", limit_nanos=1000, provider="b"))
        hold = await at.ledger.reserve("slept", [(A, 200), (B, 900)])
        at.clock.now += 3600
        await at.ledger.sweep()
        assert (await at.balance("of b")).used_nanos == 900
        settlement = await at.ledger.settle(hold, [charge(150)])
        assert (settlement.recorded, settlement.late) == (True, True)
        assert (await at.balance()).used_nanos == 150
        assert (await at.balance("of b")).used_nanos == 0
        (usage,) = await at.ledger.usage()
        assert (usage.requests, usage.amount_nanos, usage.estimated_nanos) == (1, 150, 0)
        assert not (await at.ledger.settle(hold, [charge(150)])).recorded
        kinds = [entry.kind for entry in await at.entries()]
        assert kinds == ["hold", "expire", "adjust", "settle"]


async def test_what_was_reset_meanwhile_is_not_given_back_twice(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(900)
        at.clock.now += 61
        await at.ledger.sweep()
        await at.ledger.reset("total")
        await at.ledger.settle(hold, [charge(150)])
        assert (await at.balance()).used_nanos == 150


async def test_a_settlement_is_too_late_after_a_week(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        hold = await at.hold(900)
        at.clock.now += 61
        await at.ledger.sweep()
        at.clock.now += 8 * 86400
        await at.ledger.sweep()
        assert not (await at.ledger.settle(hold, [charge(150)])).recorded


async def test_a_clock_that_was_set_back_does_not_lengthen_leases(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db", lease_s=60) as at:
        await at.ledger.set_budget(TOTAL)
        hold = await at.hold(900)
        at.clock.now -= 10 * 86400
        await at.ledger.sweep()
        at.clock.now += 61
        swept = await at.ledger.sweep()
        assert [one.hold for one in swept.expired] == [hold.id]


async def test_the_keeper_tends_by_itself(tmp_path: Path) -> None:
    timers = Timers()
    store = await SqliteStore.open(tmp_path / "x.db")
    ledger = Ledger(store, clock=timers.clock, lease_s=60, sleep=timers.sleep)
    async with ledger:
        at = Books(ledger, timers, [])  # pyright: ignore[reportArgumentType]
        await ledger.set_budget(TOTAL)
        kept, dropped = await at.hold(500), await at.hold(300)
        del dropped
        gc.collect()
        for number in range(1, 7):
            await asleep(timers, number)
            timers.wake()
        await asleep(timers, 7)
        assert set(timers.delays) == {15}
        balance = await at.balance()
        assert (balance.used_nanos, balance.held_nanos) == (300, 500)
        await ledger.settle(kept)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("period", ["day", "week"])
async def test_a_budget_that_came_meanwhile_is_charged_for_what_expires(
    tmp_path: Path, period: Period
) -> None:
    """Also one that has another period by now than when the hold was made."""
    async with books(tmp_path / "x.db") as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=1000, period="day"))
        hold = await at.hold(500)
        await at.ledger.set_budget(Budget(name="total", limit_nanos=1000, period=period))
        await at.ledger.set_budget(Budget(name="new", limit_nanos=900, provider="a"))
        await at.ledger.set_budget(Budget(name="other", limit_nanos=900, provider="b"))
        at.clock.now += 121
        await at.ledger.sweep()
        used = {each.budget.name: each.used_nanos for each in await at.ledger.balances()}
        assert used == {"total": 500, "new": 500, "other": 0}
        assert (await at.ledger.settle(hold, [charge(30)])).late
        used = {each.budget.name: each.used_nanos for each in await at.ledger.balances()}
        assert used == {"total": 30, "new": 30, "other": 0}
