"""Tasks in an SQLite file: they survive the server.

A process holds a lock on a file of its own as long as it lives, so that the others can tell: the
system takes the lock away with the process, however it ends. Expired tasks are swept away by
whoever creates one, and are invisible before that: no timer has to be met.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.contract.errors import ConfigurationError
from penstock.mcp.tasks.ports import Change, Position
from penstock.mcp.tasks.records import TaskLimits, TaskRecord, TooManyTasks, stopped
from penstock.storage.sqlite.connect import connect, patiently, prepare
from penstock.storage.sqlite.errors import translated

_WHAT = "the task store"
_META = "mcp_tasks_meta"
_MIGRATIONS = (
    (
        """CREATE TABLE mcp_tasks (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            created INTEGER NOT NULL,
            expires INTEGER NOT NULL,
            runner TEXT,
            record BLOB NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX mcp_tasks_owner ON mcp_tasks (owner, created, id)",
        "CREATE INDEX mcp_tasks_expires ON mcp_tasks (expires)",
        # Of those that have not ended alone: there are few.
        "CREATE INDEX mcp_tasks_runner ON mcp_tasks (runner) WHERE runner IS NOT NULL",
    ),
)
_RECORD = msgspec.json.Decoder(TaskRecord)
_LIMIT_OF_SQLITE = 2**63 - 1
T = TypeVar("T")


class SqliteTasks:
    """The tasks of one file, for all processes of one machine that open it."""

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is opened before it is needed; `clock` gives seconds since 1970."""
        self.path = Path(path)
        self._clock = clock
        self._runner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        # One thread: a connection stays where it was made, and changes come one after another.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mcp-tasks")

    @property
    def runner(self) -> str:
        """The number of this process, and something that no other has."""
        return self._runner

    async def create(self, task: TaskRecord, limits: TaskLimits) -> None:
        """Keep a new task, and sweep away those whose time is over."""

        def create(connection: sqlite3.Connection) -> None:
            now = self._now()
            connection.execute("DELETE FROM mcp_tasks WHERE expires <= ?", (now,))
            self._fail_the_abandoned(connection, now)
            query = "SELECT count(*), count(runner) FROM mcp_tasks WHERE owner = ?"
            kept, running = connection.execute(query, (task.owner,)).fetchone()
            if running >= limits.running:
                raise TooManyTasks("running", limits.running)
            if kept >= limits.kept:
                raise TooManyTasks("kept", limits.kept)
            _write(connection, task)

        await self._in_thread(create, changes=True)

    async def get(self, id: str) -> TaskRecord | None:
        """The task, unless there is none, or no more."""
        task = await self._in_thread(lambda connection: self._find(connection, id))
        if task is not None and self._is_abandoned(task):
            return await self.change(id, lambda _, __: None)
        return task

    async def page(self, owner: str, after: Position | None, size: int) -> Sequence[TaskRecord]:
        """The tasks of this client from the oldest to the newest."""

        def read(connection: sqlite3.Connection) -> list[TaskRecord]:
            now = self._now()
            self._fail_the_abandoned(connection, now)
            rows = connection.execute(
                "SELECT record FROM mcp_tasks WHERE owner = ? AND expires > ?"
                " AND (created, id) > (?, ?) ORDER BY created, id LIMIT ?",
                (owner, now, *(after or (-1, "")), size),
            )
            return [_RECORD.decode(record) for (record,) in rows]

        return await self._in_thread(read, changes=True)

    async def change(self, id: str, change: Change) -> TaskRecord | None:
        """The task as it is now, after the change."""

        def apply(connection: sqlite3.Connection) -> TaskRecord | None:
            task = self._find(connection, id)
            if task is None:
                return None
            now = self._now()
            if self._is_abandoned(task) and (failed := stopped(task, now)) is not None:
                _write(connection, failed)
                return failed
            changed = change(task, now)
            if changed is not None:
                _write(connection, changed)
            return changed or task

        return await self._in_thread(apply, changes=True)

    async def aclose(self) -> None:
        """Close the file, and let the others know that this process works on nothing."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._lock is not None:
                self._lock_file(self._runner).unlink(missing_ok=True)
                os.close(self._lock)
                self._lock = None

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown()

    async def _in_thread(
        self, work: Callable[[sqlite3.Connection], T], *, changes: bool = False
    ) -> T:
        def run() -> T:
            try:
                connection = self._opened()
                return _in_transaction(connection, work) if changes else work(connection)
            except sqlite3.Error as error:
                raise translated(error, self.path, _WHAT) from error

        # Not given up half-way: what was begun is known to have happened, or not to.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, run))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigurationError(
                    f"{_WHAT} {self.path} cannot be opened: its folder cannot be made: {error}"
                ) from error
            # A task must be there after a power failure when its client was told of it.
            connection = connect(self.path, "full", _WHAT)
            try:
                prepare(connection, self.path, _MIGRATIONS, _META, _WHAT)
                self._lock = self._take_lock()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _take_lock(self) -> int:
        try:
            descriptor = os.open(self._lock_file(self._runner), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"{_WHAT} {self.path} cannot be used: no file can be made beside it: {error}"
            ) from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _lock_file(self, runner: str) -> Path:
        return self.path.with_name(f"{self.path.name}.runner-{runner}")

    def _find(self, connection: sqlite3.Connection, id: str) -> TaskRecord | None:
        query = "SELECT record FROM mcp_tasks WHERE id = ? AND expires > ?"
        row = connection.execute(query, (id, self._now())).fetchone()
        return None if row is None else _RECORD.decode(row[0])

    def _is_abandoned(self, task: TaskRecord) -> bool:
        return task.is_open and task.runner != self._runner and not self._lives(task.runner)

    def _fail_the_abandoned(self, connection: sqlite3.Connection, now: int) -> None:
        query = "SELECT DISTINCT runner FROM mcp_tasks WHERE runner IS NOT NULL AND runner != ?"
        for (runner,) in connection.execute(query, (self._runner,)).fetchall():
            if self._lives(runner):
                continue
            rows = connection.execute("SELECT record FROM mcp_tasks WHERE runner = ?", (runner,))
            for (record,) in rows.fetchall():
                if (failed := stopped(_RECORD.decode(record), now)) is not None:
                    _write(connection, failed)
            self._lock_file(runner).unlink(missing_ok=True)

    def _lives(self, runner: str) -> bool:
        try:
            descriptor = os.open(self._lock_file(runner), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        done = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done


def _write(connection: sqlite3.Connection, task: TaskRecord) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO mcp_tasks VALUES (?, ?, ?, ?, ?, ?)",
        (
            task.id,
            task.owner,
            task.created,
            min(task.expires, _LIMIT_OF_SQLITE),
            task.runner if task.is_open else None,
            msgspec.json.encode(task),
        ),
    )
