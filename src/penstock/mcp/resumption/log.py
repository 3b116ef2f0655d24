"""The events of streams in an SQLite file, for all processes of one machine that open it.

A stream belongs to an owner, which alone reads it. The process that writes one renews its time; a
stream that is not renewed is over, whatever became of that process, and is deleted later.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.contract.errors import ConfigurationError
from penstock.storage.sqlite.connect import connect, patiently, prepare
from penstock.storage.sqlite.errors import translated

T = TypeVar("T")
State: TypeAlias = Literal["running", "ended", "too_large"]

RENEW_S = 2.0
"""How often a process renews the streams that it writes."""
STALE_S = 15.0
"""A running stream that was not renewed for so long has lost its process."""
_READ_BYTES = 1_000_000
_WHAT = "the file of MCP events"
_META = "mcp_events_meta"
_MIGRATIONS = (
    (
        """CREATE TABLE mcp_streams (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            account TEXT NOT NULL,
            state TEXT NOT NULL,
            renewed REAL NOT NULL,
            wanted REAL NOT NULL,
            size INTEGER NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX mcp_streams_account ON mcp_streams (account, renewed, size)",
        "CREATE INDEX mcp_streams_renewed ON mcp_streams (renewed, size)",
        """CREATE TABLE mcp_events (
            stream TEXT NOT NULL,
            seq INTEGER NOT NULL,
            event BLOB NOT NULL,
            PRIMARY KEY (stream, seq)
        ) WITHOUT ROWID""",
    ),
)


class EventLimits(msgspec.Struct, frozen=True):
    """How much is kept, and for how long."""

    ttl_s: float = 300.0
    """After the last event of a stream."""
    max_stream_bytes: int = 8_000_000
    """A stream that grows above it cannot be resumed any more."""
    max_streams: int = 100
    """Of one account: a key, or a session where there are no keys."""
    max_account_bytes: int = 64_000_000
    max_total_bytes: int = 256_000_000


class Events(NamedTuple):
    """What is kept behind an event."""

    events: Sequence[tuple[int, bytes]]
    state: State


class EventLog:
    """One file; calls run in a thread of its own."""

    def __init__(
        self,
        path: Path,
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """The file is made with the first stream."""
        self.path = path
        self.limits = limits or EventLimits()
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "penstock-events")
        self._connection: sqlite3.Connection | None = None

    async def open(self, stream: str, owner: str, account: str = "") -> None:
        """Begin a stream, and delete the oldest ones above the limits.

        `account` is what the limits of one caller count for, if it is not the owner.
        """
        account = account or owner

        def begin(file: sqlite3.Connection) -> None:
            now = self._clock()
            _delete(file, "renewed <= ?", (now - max(self.limits.ttl_s, STALE_S),))
            _delete(
                file,
                "id IN (SELECT id FROM mcp_streams WHERE account = ? "
                "ORDER BY renewed DESC LIMIT -1 OFFSET ?)",
                (account, max(0, self.limits.max_streams - 1)),
            )
            _make_room(file, self.limits.max_account_bytes, "account = ?", (account,))
            _make_room(file, self.limits.max_total_bytes, "1 = 1", ())
            file.execute(
                "INSERT INTO mcp_streams VALUES (?, ?, ?, 'running', ?, ?, 0)",
                (stream, owner, account, now, now),
            )

        await self._run(begin, changes=True)

    async def append(self, stream: str, events: Sequence[tuple[int, bytes]]) -> bool:
        """Keep these; False when the stream is too large now, or was deleted for others."""
        size = sum(len(event) for _, event in events)

        def keep(file: sqlite3.Connection) -> bool:
            row = file.execute(
                "UPDATE mcp_streams SET size = size + ?, renewed = ? "
                "WHERE id = ? AND state = 'running' RETURNING size",
                (size, self._clock(), stream),
            ).fetchone()
            if row is None:
                return False
            if row[0] > self.limits.max_stream_bytes:
                file.execute("DELETE FROM mcp_events WHERE stream = ?", (stream,))
                file.execute(
                    "UPDATE mcp_streams SET state = 'too_large', size = 0 WHERE id = ?", (stream,)
                )
                return False
            file.executemany(
                "INSERT INTO mcp_events VALUES (?, ?, ?)",
                [(stream, seq, event) for seq, event in events],
            )
            return True

        return await self._run(keep, changes=True)

    async def end(self, stream: str) -> None:
        """Nothing more comes."""
        await self._run(
            lambda file: file.execute(
                "UPDATE mcp_streams SET state = 'ended', renewed = ? "
                "WHERE id = ? AND state = 'running'",
                (self._clock(), stream),
            ),
            changes=True,
        )

    async def renew(self, streams: Sequence[str]) -> dict[str, float]:
        """Say that they are still written; when each was last asked for."""

        def renew(file: sqlite3.Connection) -> dict[str, float]:
            now = self._clock()
            found: dict[str, float] = {}
            for stream in streams:
                row = file.execute(
                    "UPDATE mcp_streams SET renewed = ? WHERE id = ? RETURNING wanted",
                    (now, stream),
                ).fetchone()
                if row is not None:
                    found[stream] = row[0]
            return found

        return await self._run(renew, changes=True)

    async def want(self, stream: str, owner: str) -> bool:
        """Say that a client reads it; whether this owner has such a stream, and all of it."""
        return await self._run(
            lambda file: (
                file.execute(
                    "UPDATE mcp_streams SET wanted = ? WHERE id = ? AND owner = ? "
                    "AND state != 'too_large' AND renewed > ? RETURNING 1",
                    (self._clock(), stream, owner, self._clock() - self.limits.ttl_s),
                ).fetchone()
                is not None
            ),
            changes=True,
        )

    async def after(self, stream: str, seq: int) -> Events:
        """The events behind this one, up to a bound."""

        def read(file: sqlite3.Connection) -> Events:
            # The state first: what is written meanwhile is read with the next call.
            row = file.execute(
                "SELECT state, renewed FROM mcp_streams WHERE id = ?", (stream,)
            ).fetchone()
            if row is None:
                return Events((), "ended")
            state: State = row[0]
            if state == "running" and row[1] <= self._clock() - STALE_S:
                state = "ended"
            found: list[tuple[int, bytes]] = []
            size = 0
            query = "SELECT seq, event FROM mcp_events WHERE stream = ? AND seq > ? ORDER BY seq"
            for number, event in file.execute(query, (stream, seq)):
                found.append((number, event))
                size += len(event)
                if size > _READ_BYTES:
                    return Events(found, "running")  # there may be more
            return Events(found, state)

        return await self._run(read)

    async def aclose(self) -> None:
        """Close the file."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, changes: bool = False) -> T:
        def run() -> T:
            try:
                file = self._opened()
                return _in_transaction(file, work) if changes else work(file)
            except sqlite3.Error as error:
                raise translated(error, self.path, _WHAT) from error

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, run))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigurationError(
                    f"{_WHAT} {self.path} cannot be opened: its folder cannot be made: {error}"
                ) from error
            connection = connect(self.path, "normal", _WHAT)
            try:
                connection.execute("PRAGMA secure_delete = FAST")
                prepare(connection, self.path, _MIGRATIONS, _META, _WHAT)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _make_room(file: sqlite3.Connection, most: int, where: str, values: tuple[object, ...]) -> None:
    """Delete the oldest of these streams until the others have so many bytes."""
    query = f"SELECT id, size FROM mcp_streams WHERE {where} ORDER BY renewed"  # noqa: S608
    found: list[tuple[str, int]] = file.execute(query, values).fetchall()
    excess = sum(size for _, size in found) - most
    for id, size in found:
        if excess <= 0:
            return
        _delete(file, "id = ?", (id,))
        excess -= size


def _delete(file: sqlite3.Connection, where: str, values: tuple[object, ...]) -> None:
    rows = file.execute(f"SELECT id FROM mcp_streams WHERE {where}", values).fetchall()  # noqa: S608
    file.executemany("DELETE FROM mcp_events WHERE stream = ?", rows)
    file.executemany("DELETE FROM mcp_streams WHERE id = ?", rows)


def _in_transaction(file: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    patiently(lambda: file.execute("BEGIN IMMEDIATE"))
    try:
        done = work(file)
        file.execute("COMMIT")
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    return done
