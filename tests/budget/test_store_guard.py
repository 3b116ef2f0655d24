"""A store that is not the one it was is refused, in the process that has it and in the next."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, StorageUnavailable
from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from penstock.storage.sqlite import guard as guard_module
from penstock.storage.sqlite.guard import StoreGuard, StoreGuards
from penstock.storage.sqlite.identity import Mark, read_mark
from penstock.storage.sqlite.record import read_record, record_file
from tests.budget.support import A, charge

BUDGET = Budget(name="total", limit_nanos=1000)


class Store:
    """A file, what is remembered of it, and a copy that was made early."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "x.db"
        self.copy = folder / "copy.db"
        self.records = folder / "stores"

    @property
    def guard(self) -> StoreGuard:
        """As another process would have it."""
        return StoreGuards(self.records, durable=True).of(self.path)

    async def open(self, guard: StoreGuard | None = None) -> Ledger:
        return await Ledger.open(self.path, guard=guard or self.guard)

    async def spend(self, ledger: Ledger, nanos: int = 10) -> None:
        await ledger.settle(await ledger.reserve("r", [(A, nanos)]), [charge(nanos)])

    def sql(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    def back_up(self) -> None:
        source, target = sqlite3.connect(self.path), sqlite3.connect(self.copy)
        source.backup(target)
        source.close()
        target.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


async def known(store: Store) -> tuple[Ledger, StoreGuard]:
    """A store with a budget and some requests, of which there is a record."""
    guard = store.guard
    ledger = await store.open(guard)
    await ledger.set_budget(BUDGET)
    store.back_up()
    await store.spend(ledger)
    guard.remember()
    return ledger, guard


def missing(store: Store) -> None:
    store.path.rename(store.path.with_name("away.db"))


def empty_file(store: Store) -> None:
    missing(store)
    store.path.touch()


def another(store: Store) -> None:
    other = store.path.with_name("other.db")
    KeyStore(other).add(Key(name="x", hashes=(KeyHash(hash_of(new_text())),)))
    missing(store)
    other.rename(store.path)


def older(store: Store) -> None:
    missing(store)
    shutil.copy2(store.copy, store.path)


def truncated(store: Store) -> None:
    with store.path.open("wb"):
        pass


def cut(store: Store) -> None:
    os.truncate(store.path, store.path.stat().st_size // 2)


def overwritten(store: Store) -> None:
    with store.path.open("r+b") as file:
        file.write(store.copy.read_bytes())


def nonsense(store: Store) -> None:
    missing(store)
    store.path.write_bytes(b"Dear diary, " * 1000)


def deleted(*tables: str) -> Callable[[Store], None]:
    def delete(store: Store) -> None:
        store.sql(*[f"DELETE FROM {table}" for table in tables])

    delete.__name__ = "no_rows_in_" + "_".join(tables)
    return delete


def dropped(store: Store) -> None:
    store.sql("DROP TABLE ledger_entries")


DAMAGES: list[Callable[[Store], None]] = [
    missing,
    empty_file,
    another,
    older,
    nonsense,
    truncated,
    cut,
    overwritten,
    deleted("ledger_entries", "ledger_balances", "ledger_holds", "ledger_hours"),
    deleted("ledger_meta"),
    deleted("ledger_balances"),
    dropped,
]
LASTING = [missing, empty_file, another, older, nonsense]
"""Of which nothing remains in the file itself when the right one is back."""


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_process_that_has_the_store_open_refuses_another(
    store: Store, damage: Callable[[Store], None]
) -> None:
    ledger, _ = await known(store)
    hold = await ledger.reserve("before", [(A, 10)])
    damage(store)
    for _ in range(2):
        with pytest.raises(StorageUnavailable) as caught:
            await ledger.reserve("r", [(A, 10)])
        assert (caught.value.retryable, caught.value.retry_after) == (True, 5)
    with pytest.raises(StorageUnavailable):
        await ledger.settle(hold, [charge(10)])
    if damage in LASTING:
        with pytest.raises(StorageUnavailable):
            await ledger.balances()
        store.path.with_name("away.db").rename(store.path)
        await ledger.write_again()
        (balance,) = await ledger.balances()
        assert (balance.used_nanos, balance.held_nanos) == (20, 0)
    await ledger.aclose()


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_next_process_refuses_another(
    store: Store, damage: Callable[[Store], None]
) -> None:
    ledger, guard = await known(store)
    await ledger.aclose()
    guard.remember()
    damage(store)
    before = sorted(file.name for file in store.path.parent.iterdir())
    with pytest.raises(StorageUnavailable, match="is protected"):
        await store.open()
    with pytest.raises(StorageUnavailable, match="penstock storage accept"):
        KeyStore(store.path, guard=store.guard).keys()
    after = sorted(file.name for file in store.path.parent.iterdir())
    assert [name for name in after if not name.endswith(("-wal", "-shm"))] == before


@pytest.mark.parametrize("damage", [missing, empty_file, another, older])
async def test_another_worker_refuses_another(
    store: Store, damage: Callable[[Store], None]
) -> None:
    """It knows the open file from its parent, also when the record is gone as well."""
    ledger, guard = await known(store)
    shutil.rmtree(store.records)
    record = guard.handed_over()
    assert record is not None
    damage(store)
    worker = StoreGuards(store.records, expected=record).of(store.path)
    with pytest.raises(StorageUnavailable, match="is protected"):
        await store.open(worker)
    store.path.with_name("away.db").rename(store.path)
    other = await store.open(worker)
    await store.spend(other)
    await other.aclose()
    await ledger.aclose()


async def test_a_worker_that_has_not_seen_the_newest_mark_refuses_an_older_copy(
    store: Store,
) -> None:
    guard = store.guard
    first = await store.open(guard)
    await first.set_budget(BUDGET)
    second = await store.open()
    await store.spend(second)
    store.back_up()
    await store.spend(first)
    guard.remember()
    overwritten(store)
    with pytest.raises(StorageUnavailable, match="was overwritten by another one"):
        await second.reserve("r", [(A, 10)])
    await second.aclose()
    await first.aclose()


@pytest.mark.parametrize("damage", [missing, empty_file, another, older])
async def test_what_is_at_the_path_may_be_accepted(
    store: Store, damage: Callable[[Store], None]
) -> None:
    ledger, guard = await known(store)
    await ledger.aclose()
    guard.remember()
    damage(store)
    store.guard.accept()
    ledger = await store.open()
    await store.spend(ledger)
    await ledger.aclose()


async def test_a_log_of_the_lost_store_is_not_mixed_with_another(store: Store) -> None:
    ledger, _ = await known(store)
    another(store)
    with pytest.raises(ConfigurationError, match="SQLite would mix them"):
        store.guard.accept()
    await ledger.aclose()


async def test_a_complete_copy_is_the_store(store: Store) -> None:
    ledger, guard = await known(store)
    await ledger.aclose()
    guard.remember()
    store.back_up()
    older(store)
    ledger = await store.open()
    (balance,) = await ledger.balances()
    assert balance.used_nanos == 10
    await ledger.aclose()


async def test_a_store_with_nothing_to_protect_may_disappear(store: Store) -> None:
    guard = store.guard
    ledger = await store.open(guard)
    await store.spend(ledger)
    guard.remember()
    missing(store)
    await store.spend(ledger)
    await ledger.aclose()
    ledger = await store.open()
    await store.spend(ledger)
    await ledger.aclose()
    assert not store.records.exists()


async def test_a_record_that_cannot_be_read_refuses(store: Store) -> None:
    ledger, _ = await known(store)
    await ledger.aclose()
    file = record_file(store.records, store.path)
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"{")
    with pytest.raises(StorageUnavailable, match=r"the record .* cannot be read"):
        await store.open()


async def test_a_record_that_cannot_be_written_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.records.write_text("no folder")
    guard = StoreGuard(store.path, store.records / "x.json", durable=True)
    ledger = await store.open(StoreGuard(store.path))
    await ledger.aclose()
    guard.protect()
    for _ in range(2):
        guard.remember()
    assert len([each for each in caplog.records if "is not written" in each.message]) == 1


async def test_the_record_is_as_new_as_what_the_disk_has(store: Store) -> None:
    ledger, guard = await known(store)
    file = record_file(store.records, store.path)
    first = read_record(file)
    guard.remember()
    assert read_record(file) == first
    await store.spend(ledger)
    guard.remember()
    second = read_record(file)
    assert first is not None
    assert second is not None
    assert second.progress.entries == first.progress.entries + 2
    assert second.synced > first.synced
    await ledger.aclose()


async def test_a_mark_of_another_worker_is_not_recorded_before_it_is_in_the_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, guard = await known(store)
    await store.spend(ledger)
    own = guard_module.get_mark

    def overtaken(connection: sqlite3.Connection) -> Mark | None:
        """Another worker raises the mark just before this one reads it."""
        other = sqlite3.connect(store.path, isolation_level=None, timeout=0)
        with contextlib.closing(other), contextlib.suppress(sqlite3.OperationalError):
            guard_module.raise_mark(other)
        return own(connection)

    monkeypatch.setattr(guard_module, "get_mark", overtaken)
    guard.remember()
    monkeypatch.undo()
    record = read_record(record_file(store.records, store.path))
    mark = read_mark(store.path)
    assert record is not None
    assert mark is not None
    assert mark.synced >= record.synced
    store.guard.verify()
    await ledger.aclose()


async def test_a_request_costs_one_stat_at_most(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = await known(store)
    await store.spend(ledger)
    calls = 0
    stat = os.stat

    def counting(path: str) -> os.stat_result:
        nonlocal calls
        calls += 1
        return stat(path)

    monkeypatch.setattr(guard_module.os, "stat", counting)
    for _ in range(20):
        hold = await ledger.reserve("r", [(A, 1)])
        ledger.settle_soon(hold, [charge(1)])
    # A settlement goes with the next reservation: one transaction a request, one look each.
    assert calls <= 21
    await ledger.aclose()


async def test_reading_the_mark_keeps_the_locks_of_the_process(store: Store) -> None:
    """To open and close the file without SQLite would take them away."""
    ledger, guard = await known(store)
    guard.check()
    # Another connection that closes would delete the log if nobody had the file open.
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM ledger_meta')"
    subprocess.run([sys.executable, "-c", code, str(store.path)], check=True)
    assert store.path.with_name("x.db-wal").exists()
    await store.spend(ledger)
    await ledger.aclose()
