"""Files that cannot be used are named with what to do, and nothing in them is lost."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite import SqliteStore
from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.contract.errors import ConfigurationError, PenstockError, StorageUnavailable
from penstock.storage.sqlite.connect import connect, patiently, prepare
from penstock.storage.sqlite.errors import translated
from tests.budget.support import books
from tests.support.disks import Disk, mounted, mounts_allowed, read_only, read_only_disks

ROOT = Path(__file__).parents[2]
EXTRA = ("ALTER TABLE ledger_entries ADD COLUMN region TEXT",)


def worker(*arguments: str, within: tuple[str, ...] = ()) -> object:
    done = subprocess.run(
        [*within, sys.executable, "-m", "tests.budget.worker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def filled(path: Path, requests: int = 50) -> None:
    async with books(path) as at:
        await at.ledger.set_budget(Budget(name="total", limit_nanos=10**9))
        for _ in range(requests):
            await at.spend(10)


async def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        async with books(path) as at:
            await at.spend(10)
    assert str(path) in str(caught.value)
    return str(caught.value)


async def test_a_new_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    await filled(tmp_path / "x.db", 1)
    assert stat.S_IMODE((tmp_path / "x.db").stat().st_mode) == 0o600


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    content = b"Dear diary, today I have spent too much.\n" * 200
    path.write_bytes(content)
    assert "is damaged or is not an SQLite database" in await refusal(path)
    assert path.read_bytes() == content


async def test_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, 300)
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = os.urandom(200)
    path.write_bytes(content)
    assert "restore it from a backup" in await refusal(path)
    assert path.read_bytes()[4096:] == content[4096:]


async def test_damage_that_does_not_stop_requests_is_found_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, 300)
    content = bytearray(path.read_bytes())
    place = content.index(b"input 1, output 2") // 4096 * 4096
    content[place + 8 : place + 40] = b"\xff" * 32
    path.write_bytes(content)
    ledger = await Ledger.open(path)
    differences = await ledger.verify()
    await ledger.aclose()
    assert "the file" in {each.subject for each in differences}


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = await refusal(tmp_path / "nowhere" / "x.db")
    assert "its folder must exist and be writable" in said
    assert "cannot be opened" in await refusal(tmp_path)


@pytest.mark.parametrize("disk", read_only_disks())
async def test_a_read_only_disk_is_named(tmp_path: Path, disk: Disk) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    await filled(folder / "x.db", 3)
    before = (folder / "x.db").read_bytes()
    with read_only(folder, disk) as within:
        answer = worker("try_to_open", str(folder / "x.db"), within=within)
        assert (folder / "x.db").read_bytes() == before
    assert isinstance(answer, list)
    assert answer[0] == "ConfigurationError"
    assert "read-only" in answer[1] or "writable" in answer[1]
    async with books(folder / "x.db") as at:
        assert (await at.balance()).used_nanos == 30


class FullDisk(msgspec.Struct):
    errors: list[tuple[str, bool, str]]
    answered: int
    used: int
    held: int
    differences: list[str]


def check_full_disk(answer: object) -> None:
    report = msgspec.convert(answer, FullDisk)
    for kind, retryable, said in report.errors:
        assert (kind, retryable) == ("StorageUnavailable", True)
        assert "full" in said or "no room" in said
    # Every settlement is there, also those that met no room at first.
    assert report.answered > 10
    assert report.used == 7 * report.answered
    assert (report.held, report.differences) == (0, [])


@pytest.mark.parametrize("full", ["mount", "limit"] if mounts_allowed() else ["limit"])
def test_what_meets_a_full_disk_is_written_when_there_is_room(tmp_path: Path, full: str) -> None:
    """A small disk where one may be mounted, and a limit of the file's size everywhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    small = 'mount -t tmpfs -o size=1m tmpfs "$0"'
    within = mounted(small, folder) if full == "mount" else ()
    check_full_disk(worker("fill_the_disk", str(folder / "x.db"), full, within=within))


async def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE ledger_meta SET value = 99 WHERE name = 'version'")
    other.close()
    before = path.read_bytes()
    said = await refusal(path)
    assert "has version 99" in said
    assert "update Penstock" in said
    assert path.read_bytes() == before


async def test_a_file_that_becomes_newer_is_refused_by_those_who_have_it_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    await filled(path)
    ledger = await Ledger.open(path)
    connection = connect(path, "normal")
    prepare(connection, path, [*MIGRATIONS, EXTRA], LEDGER_META)
    connection.close()
    with pytest.raises(ConfigurationError, match="update Penstock"):
        await ledger.sweep()
    await ledger.aclose()


async def test_an_older_file_is_backed_up_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path)
    connection = connect(path, "normal")
    backup = prepare(connection, path, [*MIGRATIONS, EXTRA], LEDGER_META)
    assert backup == tmp_path / f"x.db.v{len(MIGRATIONS)}-1.backup"
    columns = [row[1] for row in connection.execute("PRAGMA table_info(ledger_entries)")]
    assert columns[-1] == "region"
    assert connection.execute("SELECT count(*) FROM ledger_entries").fetchone() == (100,)
    assert prepare(connection, path, [*MIGRATIONS, EXTRA], LEDGER_META) is None
    connection.close()
    assert backup is not None
    async with books(backup) as at:
        assert (await at.balance()).used_nanos == 500


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path)
    connection = connect(path, "normal")
    with pytest.raises(sqlite3.OperationalError):
        prepare(
            connection,
            path,
            [*MIGRATIONS, (*EXTRA, "ALTER TABLE nothing ADD COLUMN x")],
            LEDGER_META,
        )
    connection.close()
    async with books(path) as at:
        await at.spend(1)
        assert (await at.balance()).used_nanos == 501


async def test_a_backup_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, 1)
    connection = connect(path, "normal")
    backup = prepare(connection, path, [*MIGRATIONS, EXTRA], LEDGER_META)
    connection.close()
    assert backup is not None
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("killed_at", ["copying", "changing", "done"])
async def test_a_process_killed_while_it_migrates_leaves_the_file_as_it_was(
    tmp_path: Path, killed_at: str
) -> None:
    path = tmp_path / "x.db"
    connection = connect(path, "normal")
    prepare(connection, path, MIGRATIONS[:1], LEDGER_META)
    connection.execute(
        "INSERT INTO ledger_entries (kind, at, amount_nanos, estimated) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        "SELECT 'adjust', i, i, 0 FROM n"
    )
    connection.close()
    killed = subprocess.run(
        [sys.executable, "-m", "tests.budget.worker", "migrate_and_die", str(path), killed_at],
        cwd=ROOT,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    if killed_at == "copying":
        assert not list(tmp_path.glob("*.backup"))
    async with books(path) as at:
        (row,) = await at.ledger.usage()
        assert row.amount_nanos == 20000 * 20001 // 2
    # Every backup that is there is whole.
    backups = list(tmp_path.glob("*.backup"))
    assert backups
    for backup in backups:
        copy = sqlite3.connect(backup)
        assert copy.execute("SELECT count(*) FROM ledger_entries").fetchone() == (20000,)
        assert copy.execute("SELECT value FROM ledger_meta WHERE name = 'version'").fetchone() == (
            1,
        )
        copy.close()
    assert not list(tmp_path.glob("*.part"))


async def test_processes_that_open_an_older_file_at_once_migrate_it_once(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connection = connect(path, "normal")
    prepare(connection, path, MIGRATIONS[:1], LEDGER_META)
    connection.close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.budget.worker", "reserve_at_once", str(path), "3", "5"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(4)
    ]
    answers = [process.communicate("go\n")[0] for process in processes]
    assert answers == ["ready\n3"] * 4
    assert len(list(tmp_path.glob("*.backup"))) == 1
    async with books(path) as at:
        (row,) = await at.ledger.usage()
        assert (row.requests, row.amount_nanos) == (12, 60)


async def test_other_tables_in_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE diary (day TEXT)")
        other.execute("INSERT INTO diary VALUES ('monday')")
    await filled(path, 1)
    assert other.execute("SELECT day FROM diary").fetchone() == ("monday",)
    other.close()


async def test_a_file_that_stays_locked_is_named_and_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await filled(path, 1)
    one, other = connect(path, "normal"), connect(path, "normal")
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as caught:
        patiently(lambda: other.execute("BEGIN IMMEDIATE"), limit_s=0.01)
    told = translated(caught.value, path)
    assert isinstance(told, StorageUnavailable)
    assert (told.retryable, told.retry_after) == (True, 5)
    assert "is locked by another process" in str(told)
    one.execute("ROLLBACK")
    patiently(lambda: other.execute("BEGIN IMMEDIATE"), limit_s=0.01)
    one.close()
    other.close()


async def test_a_name_that_sqlite_takes_for_something_else_is_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await filled(Path(":memory:"), 1)
    async with books(tmp_path / ":memory:") as at:
        assert (await at.balance()).used_nanos == 10


async def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        hold = await at.hold(1)
    with pytest.raises(PenstockError, match="is closed: open it again"):
        await at.ledger.settle(hold)
    await at.ledger.aclose()


async def test_the_durability_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="synchronous='off': give 'normal' or 'full'"):
        await SqliteStore.open(tmp_path / "x.db", synchronous="off")  # pyright: ignore[reportArgumentType]
    ledger = await Ledger.open(tmp_path / "x.db", synchronous="full")
    await ledger.set_budget(Budget(name="total", limit_nanos=1))
    await ledger.aclose()
