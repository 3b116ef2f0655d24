"""Entries are found by their time through runs of hours, whatever clocks do."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.budget.ledger import Ledger
from penstock.budget.reports import HistoryFilter
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite.hour_index import numbers
from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.storage.sqlite.connect import connect, prepare
from tests.budget.support import NOON, books
from tests.support.clock import ManualClock

HOUR = 3600.0


def runs(path: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT first, hour FROM ledger_hours ORDER BY first").fetchall()


async def test_an_hour_costs_one_row_however_many_entries_it_has(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    clock = ManualClock(NOON)
    async with books(path, clock) as at:
        for _ in range(3):
            for _ in range(5):
                await at.spend(1)
            clock.now += HOUR
    first = int(NOON // HOUR)
    assert runs(path) == [(1, first), (11, first + 1), (21, first + 2)]


@pytest.mark.parametrize("seed", range(5))
async def test_every_time_finds_exactly_its_entries_though_clocks_are_set(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    clock = ManualClock(NOON)
    async with books(tmp_path / "x.db", clock) as at:
        for number in range(60):
            clock.now += chance.choice([0.5, 900.0, 4000.0, -3000.0, -9000.0, HOUR - 0.25])
            await at.spend(number)
        entries = await at.entries()
        moments = sorted({entry.at for entry in entries})
        for _ in range(200):
            since, until = sorted(chance.choices([*moments, NOON - HOUR, NOON + 10 * HOUR], k=2))
            chosen = HistoryFilter(since=since, until=until)
            page = await at.ledger.history(chosen, limit=1000, oldest_first=True)
            expected = [entry for entry in entries if since <= entry.at < until]
            assert list(page.entries) == expected
            settled = sum(one.amount_nanos for one in expected if one.kind == "settle")
            found = await at.ledger.usage(since=since, until=until)
            assert sum(row.amount_nanos for row in found) == settled


async def test_a_later_process_goes_on_with_the_hour(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for seconds in (0.0, 60.0, HOUR):
        async with books(path, ManualClock(NOON + seconds)) as at:
            await at.spend(1)
    assert [hour for _, hour in runs(path)] == [NOON // HOUR, NOON // HOUR + 1]


async def test_an_older_file_is_given_its_hours(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    times = [NOON, NOON + 1, NOON + HOUR, NOON - 5, NOON + HOUR, NOON + HOUR + 1]
    with closing(connect(path, "normal")) as connection:
        prepare(connection, path, MIGRATIONS[:2], LEDGER_META)
        connection.executemany(
            "INSERT INTO ledger_entries (kind, at, amount_nanos, estimated) "
            "VALUES ('adjust', ?, 7, 0)",
            [(time,) for time in times],
        )
    async with books(path, ManualClock(NOON + HOUR + 2)) as at:
        (row,) = await at.ledger.usage(since=NOON, until=NOON + HOUR)
        assert row.amount_nanos == 14
        # A budget that is new counts what its hour has used, and nothing before.
        await at.ledger.set_budget(Budget(name="hourly", limit_nanos=100, period="hour"))
        assert (await at.balance("hourly")).used_nanos == 21
    noon = int(NOON // HOUR)
    assert runs(path) == [(1, noon), (3, noon + 1), (4, noon - 1), (5, noon + 1)]


async def test_a_time_reads_no_entries_of_other_hours(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    clock = ManualClock(NOON)
    async with books(path, clock) as at:
        for _ in range(4):
            await at.spend(1)
            clock.now += HOUR
    with closing(sqlite3.connect(path)) as connection:
        assert numbers(connection, NOON + HOUR, NOON + 2 * HOUR - 1) == (3, 5)
        assert numbers(connection, NOON + 4 * HOUR + 1, None) == (0, 0)


async def test_entries_that_their_time_would_not_find_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with books(path) as at:
        await at.spend(1)
    for change in ("DELETE FROM ledger_hours", "INSERT INTO ledger_hours VALUES (1, 5)"):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(change)
        async with await Ledger.open(path) as ledger:
            (difference,) = await ledger.verify()
        assert "hour" in difference.subject
