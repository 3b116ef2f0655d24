"""Whatever the clock does, a budget holds in each period of its calendar, and in each alone."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.budget.calendar import Period
from penstock.budget.entries import Hold
from penstock.budget.rules import Budget
from penstock.contract.errors import BudgetExceeded
from tests.budget.support import books, charge
from tests.support.clock import ManualClock

ZONES = ("UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu")
EDGES = tuple(
    datetime.fromisoformat(text).timestamp()
    for text in (
        "2026-03-29T01:00+00:00",  # summer begins in Berlin
        "2026-10-25T01:00+00:00",  # and ends
        "2026-11-01T05:00+00:00",  # midnight comes twice in Havana
        "2026-04-04T15:00+00:00",  # half an hour is had twice on Lord Howe Island
        "2026-10-03T15:30+00:00",  # and left out
        "2026-01-31T23:00+00:00",  # the end of a month in Berlin
        "2026-12-31T18:15+00:00",  # of a year in Kathmandu
        "2028-02-29T00:00+00:00",  # a leap day
        "2028-03-01T00:00+00:00",
        "2026-11-16T00:00+00:00",  # a Monday
    )
)
LIMIT = 100
MOMENTS = st.tuples(
    st.sampled_from(EDGES), st.sampled_from([-90_000, -3601, -1800, -1, 0, 1, 1799, 3600, 90_000])
).map(sum)
STEPS = st.lists(
    st.tuples(MOMENTS, st.integers(0, 70), st.booleans(), st.floats(0, 1)), min_size=1, max_size=25
)


def label(period: Period, zone: str, at: float) -> object:
    """What a person would say the period is, looking at a calendar and a clock on the wall."""
    now = datetime.fromtimestamp(at, ZoneInfo(zone))
    if period == "hour":
        # An hour that is shown twice is two.
        return now.date(), now.hour, now.utcoffset()
    if period == "day":
        return now.date()
    if period == "week":
        return now.date() - timedelta(days=now.weekday())
    return date(now.year, now.month, 1) if period == "month" else None


@settings(max_examples=60)
@given(
    steps=STEPS,
    zone=st.sampled_from(ZONES),
    period=st.sampled_from(["hour", "day", "week", "month", "forever"]),
)
def test_each_period_of_the_wall_calendar_has_its_own_limit(
    steps: list[tuple[float, int, bool, float]], zone: str, period: Period
) -> None:
    async def tell(folder: str) -> None:
        clock = ManualClock(EDGES[0])
        async with books(Path(folder) / "x.db", clock) as at:
            budget = Budget(name="total", limit_nanos=LIMIT, period=period, timezone=zone)
            await at.ledger.set_budget(budget)
            taken: dict[object, int] = {}
            open_holds: list[tuple[Hold, object]] = []
            for moment, nanos, settles, share in steps:
                # Forward or back: nothing says that a clock only goes on.
                clock.now = moment
                here = label(period, zone, moment)
                if taken.get(here, 0) + nanos <= LIMIT or not nanos:
                    open_holds.append((await at.hold(nanos), here))
                    taken[here] = taken.get(here, 0) + nanos
                else:
                    with pytest.raises(BudgetExceeded) as refused:
                        await at.hold(nanos)
                    assert refused.value.remaining_nanos == LIMIT - taken.get(here, 0)
                if settles and open_holds:
                    hold, there = open_holds.pop(int(share * (len(open_holds) - 1)))
                    cost = int(hold.amount_nanos * share)
                    await at.ledger.settle(hold, [charge(cost)])
                    # Charged where it was admitted, whatever the clock says by now.
                    taken[there] += cost - hold.amount_nanos
                balance = await at.balance()
                used = balance.used_nanos + balance.held_nanos
                assert used == taken.get(here, 0) <= LIMIT
                assert balance.period_start <= moment
                assert balance.resets_at is None or moment < balance.resets_at
            for moment, *_ in steps:
                clock.now = moment
                balance = await at.balance()
                used = balance.used_nanos + balance.held_nanos
                assert used == taken.get(label(period, zone, moment), 0)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(tell(folder))


@pytest.mark.parametrize("hours", [-1, -24, -24 * 40])
async def test_a_clock_that_steps_back_refuses_nothing_for_ever_and_lets_nothing_slip(
    tmp_path: Path, hours: int
) -> None:
    """A request is under way when the clock is set back, and both periods stay right."""
    clock = ManualClock(EDGES[5] + 7200.0)  # the first of February in Berlin
    async with books(tmp_path / "x.db", clock, lease_s=120) as at:
        budget = Budget(name="total", limit_nanos=LIMIT, period="month", timezone="Europe/Berlin")
        await at.ledger.set_budget(budget)
        held = await at.hold(60)
        clock.now += hours * 3600
        same_month = label("month", "Europe/Berlin", clock.now) == date(2026, 2, 1)
        if same_month:
            with pytest.raises(BudgetExceeded):
                await at.hold(41)
        else:
            await at.spend(LIMIT)
        # Its owner still lives, and its lease counts from now on.
        await at.ledger.tend()
        assert (await at.ledger.settle(held, [charge(50)])).recorded
        clock.now = EDGES[5] + 7200.0
        assert (await at.balance()).used_nanos == 50
        await at.spend(50)
        with pytest.raises(BudgetExceeded):
            await at.hold(1)
