"""The store in SQLite: what is kept, for how long, for whom, and what happens when it cannot be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.contract.errors import ConfigurationError
from penstock.mcp.tasks.records import (
    STOPPED,
    TaskLimits,
    TaskRecord,
    TooManyTasks,
    cancelled,
    completed,
    new_id,
)
from penstock.mcp.tasks.sqlite import SqliteTasks
from tests.support.clock import ManualClock
from tests.support.disks import Disk, mounted, mounts_allowed, read_only, read_only_disks

LIMITS = TaskLimits(running=3, kept=5)


def task_of(
    store: SqliteTasks, owner: str = "me", *, at: float = 0, ttl_ms: int = 60_000
) -> TaskRecord:
    moment = int(at * 1000)
    return TaskRecord(
        id=new_id(),
        owner=owner,
        tool="add",
        runner=store.runner,
        created=moment,
        updated=moment,
        ttl_ms=ttl_ms,
        poll_ms=500,
    )


async def test_a_task_outlives_its_process(tmp_path: Path) -> None:
    first = SqliteTasks(tmp_path / "tasks.db")
    task = task_of(first, at=4e9)
    await first.create(task, LIMITS)
    await first.change(task.id, lambda it, now: completed(it, now, {"content": []}))
    await first.aclose()
    second = SqliteTasks(tmp_path / "tasks.db")
    kept = await second.get(task.id)
    assert kept is not None
    assert (kept.status, kept.result) == ("completed", {"content": []})
    await second.aclose()


async def test_a_task_of_a_process_that_is_gone_has_failed(tmp_path: Path) -> None:
    first, other = SqliteTasks(tmp_path / "tasks.db"), SqliteTasks(tmp_path / "tasks.db")
    task = task_of(first, at=4e9)
    await first.create(task, LIMITS)
    alive = await other.get(task.id)
    assert alive is not None
    assert alive.status == "working"
    await first.aclose()
    gone = await other.get(task.id)
    assert gone is not None
    assert (gone.status, gone.message) == ("failed", STOPPED)
    assert gone.error == {"code": -32603, "message": STOPPED}
    assert (await other.page("me", None, 9))[0] == gone
    await other.aclose()
    assert [path.name for path in tmp_path.iterdir() if "runner" in path.name] == []


async def test_what_has_ended_changes_no_more(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db")
    task = task_of(store, at=4e9)
    await store.create(task, LIMITS)
    ended = await store.change(task.id, lambda it, now: cancelled(it, now, "why"))
    again = await store.change(task.id, lambda it, now: completed(it, now, {}))
    assert again == ended
    await store.aclose()


async def test_an_expired_task_is_gone_at_once_and_swept_by_the_next(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    store = SqliteTasks(tmp_path / "tasks.db", clock=clock)
    task = task_of(store, at=1000, ttl_ms=5000)
    await store.create(task, LIMITS)
    clock.now += 4.999
    assert await store.get(task.id) is not None
    clock.now += 0.001
    assert await store.get(task.id) is None
    assert await store.page("me", None, 9) == []
    assert await store.change(task.id, lambda it, now: completed(it, now, {})) is None
    assert rows(tmp_path) == 1
    await store.create(task_of(store, at=clock.now), LIMITS)
    assert rows(tmp_path) == 1
    await store.aclose()


def rows(folder: Path) -> int:
    with sqlite3.connect(folder / "tasks.db") as connection:
        (count,) = connection.execute("SELECT count(*) FROM mcp_tasks").fetchone()
    connection.close()
    return count


async def test_each_client_has_limits_of_its_own(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db")
    running = [task_of(store, at=4e9) for _ in range(3)]
    for task in running:
        await store.create(task, LIMITS)
    with pytest.raises(TooManyTasks, match="3 tasks that have not ended is the most"):
        await store.create(task_of(store, at=4e9), LIMITS)
    await store.create(task_of(store, "you", at=4e9), LIMITS)
    for task in running:
        await store.change(task.id, lambda it, now: completed(it, now, {}))
    for _ in range(2):
        await store.create(task_of(store, at=4e9), LIMITS)
    with pytest.raises(TooManyTasks, match="5 tasks that are kept is the most"):
        await store.create(task_of(store, at=4e9), LIMITS)
    await store.aclose()


async def test_a_file_that_is_none_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    path.write_bytes(b"no database at all" * 1000)
    store = SqliteTasks(path)
    with pytest.raises(ConfigurationError, match=f"the task store {path} is damaged.*backup"):
        await store.create(task_of(store), LIMITS)
    assert path.read_bytes().startswith(b"no database")
    await store.aclose()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqliteTasks(tmp_path / "file" / "tasks.db")
    with pytest.raises(ConfigurationError, match="its folder cannot be made"):
        await store.get("any")
    await store.aclose()


_CREATE = """
import asyncio, sys
from pathlib import Path
from penstock.mcp.tasks.records import TaskLimits, completed
from penstock.mcp.tasks.sqlite import SqliteTasks
from tests.mcp.tasks.test_store import task_of

async def main():
    store = SqliteTasks(Path(sys.argv[1]) / "tasks.db")
    try:
        for number in range(int(sys.argv[2])):
            task = task_of(store, at=4e9)
            await store.create(task, TaskLimits(running=10**6, kept=10**6))
            result = {"content": [], "text": "x" * 100_000}
            await store.change(task.id, lambda it, now: completed(it, now, result))
    except Exception as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""


def said(front: tuple[str, ...], folder: Path, times: int) -> str:
    command = [*front, sys.executable, "-c", _CREATE, str(folder), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("disk", read_only_disks())
def test_a_read_only_disk_is_named(tmp_path: Path, disk: Disk) -> None:
    assert said((), tmp_path, 1) == ""
    with read_only(tmp_path, disk) as front:
        text = said(front, tmp_path, 1)
    assert text.startswith("ConfigurationError the task store")
    assert "read-only" in text or "cannot be" in text


@pytest.mark.skipif(not mounts_allowed(), reason="no disk can be mounted here")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    front = mounted('mount -t tmpfs -o size=1m tmpfs "$0"', tmp_path)
    text = said(front, tmp_path, 100)
    assert text.startswith("StorageUnavailable the task store")
    assert "the disk is full: make room" in text or "has no room" in text
