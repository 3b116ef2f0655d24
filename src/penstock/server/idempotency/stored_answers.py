"""Answers that are kept for repeated requests, in an SQLite file next to the ledger.

A row is claimed before the model is called, and completed with the answer. The claim has a lease
that its process renews, so that a process that was killed does not block the key for longer.
The file holds answers of models: only its owner can read it, and rows that end are overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.contract.errors import StorageUnavailable
from penstock.storage.sqlite.connect import connect, patiently, prepare
from penstock.storage.sqlite.errors import unavailable

T = TypeVar("T")
Header: TypeAlias = tuple[str, str]
LEASE_S = 15.0
_META = "answers_meta"
_WHAT = "the file of stored answers"
_MIGRATIONS = (
    (
        """CREATE TABLE answers (
            id BLOB PRIMARY KEY,
            scope TEXT NOT NULL,
            fingerprint BLOB NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            lease_until REAL NOT NULL,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            size INTEGER NOT NULL,
            status INTEGER,
            headers TEXT,
            body BLOB
        ) WITHOUT ROWID""",
        "CREATE INDEX answers_scope ON answers (scope, created, size)",
        "CREATE INDEX answers_created ON answers (created, size)",
        "CREATE INDEX answers_expires ON answers (expires)",
    ),
)
_HEADERS = msgspec.json.Decoder(list[Header])


class AnswerLimits(msgspec.Struct, frozen=True):
    """How much is kept, and for how long."""

    ttl_s: float = 86_400.0
    """0: nothing is kept."""
    max_bytes: int = 1_000_000
    """Of one answer."""
    max_answers: int = 10_000
    max_answers_per_key: int = 1_000
    max_total_bytes: int = 256_000_000


class StoredAnswer(NamedTuple):
    """What was answered, byte for byte."""

    status: int
    headers: Sequence[Header]
    body: bytes


class Claim(NamedTuple):
    """Whose turn it is; `answer` belongs to `done`."""

    verdict: Literal["mine", "running", "done", "different", "too_large"]
    answer: StoredAnswer | None = None


class AnswerStore:
    """One file, used by all workers of a gateway; calls run in a thread of its own."""

    def __init__(
        self, path: Path, limits: AnswerLimits, clock: Callable[[], float] = time.time
    ) -> None:
        """The file is made with the first claim."""
        self.path = path
        self.limits = limits
        self._clock = clock
        self._owner = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._thread = ThreadPoolExecutor(1, "penstock-answers")
        self._connection: sqlite3.Connection | None = None
        self._claimed: set[bytes] = set()
        self._renewing: asyncio.Task[None] | None = None

    @staticmethod
    def beside(ledger: Path) -> Path:
        """The file next to this ledger: `penstock.db` has `penstock-answers.db`."""
        return ledger.with_name(f"{ledger.stem}-answers{ledger.suffix}")

    async def claim(self, scope: str, key: str, fingerprint: bytes) -> Claim:
        """Take the request, or learn what became of it.

        Raises StorageUnavailable: without the file, a repeated request could be paid twice.
        """
        identity = identity_of(scope, key)
        claim = await self._run(lambda file: self._claim(file, identity, scope, fingerprint))
        if claim.verdict == "mine":
            self._claimed.add(identity)
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew())
        return claim

    async def complete(self, scope: str, key: str, answer: StoredAnswer | None) -> None:
        """Keep the answer of a request that was claimed; None: it was too large to keep."""
        identity = identity_of(scope, key)
        try:
            await self._run(lambda file: self._complete(file, identity, scope, answer))
        finally:
            self._claimed.discard(identity)

    async def release(self, scope: str, key: str) -> None:
        """Give up a claim: the next request of this key is a new one."""
        identity = identity_of(scope, key)
        self._claimed.discard(identity)
        await self._run(lambda file: self._delete(file, identity))

    async def aclose(self) -> None:
        """Close the file; what is claimed and not completed is given up when its lease is over."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _renew(self) -> None:
        while self._claimed:
            await asyncio.sleep(LEASE_S / 3)
            held = list(self._claimed)
            with contextlib.suppress(StorageUnavailable):
                await self._run(lambda file, held=held: self._extend(file, held))

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)

    # -- in the thread

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is not None and not self.path.exists():
                # It was removed: what is written to the old file is lost.
                self._close()
            if self._connection is None:
                self._connection = self._open()
            file = self._connection
            patiently(lambda: file.execute("BEGIN IMMEDIATE"))
            try:
                done = work(file)
                file.execute("COMMIT")
            except BaseException:
                file.execute("ROLLBACK")
                raise
            return done
        except (sqlite3.Error, OSError) as error:
            told = unavailable(error, self.path, _WHAT)
            if isinstance(told, StorageUnavailable):
                raise told from error
            raise StorageUnavailable(f"{_WHAT} {self.path} failed: {error}") from error

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = connect(self.path, "normal", _WHAT)
        try:
            # What is deleted is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
            prepare(connection, self.path, _MIGRATIONS, _META, _WHAT)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _claim(
        self, file: sqlite3.Connection, identity: bytes, scope: str, fingerprint: bytes
    ) -> Claim:
        now = self._clock()
        file.execute("DELETE FROM answers WHERE expires <= ?", (now,))
        row = file.execute(
            "SELECT fingerprint, state, lease_until, status, headers, body FROM answers "
            "WHERE id = ?",
            (identity,),
        ).fetchone()
        if row is not None:
            known, state, lease_until, status, headers, body = row
            if known != fingerprint:
                return Claim("different")
            if state == "done":
                return Claim("done", StoredAnswer(status, _HEADERS.decode(headers), body))
            if state == "too_large":
                return Claim("too_large")
            if lease_until > now:
                return Claim("running")
        self._make_room(file, scope)
        file.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, 'running', ?, ?, ?, ?, 0, NULL, NULL, "
            "NULL)",
            (
                identity,
                scope,
                fingerprint,
                self._owner,
                now + LEASE_S,
                now,
                now + self.limits.ttl_s,
            ),
        )
        return Claim("mine")

    def _complete(
        self,
        file: sqlite3.Connection,
        identity: bytes,
        scope: str,
        answer: StoredAnswer | None,
    ) -> None:
        kept: tuple[object, ...] = (0, None, None, None)
        if answer is not None:
            headers = msgspec.json.encode(answer.headers).decode()
            kept = (len(answer.body), answer.status, headers, answer.body)
        file.execute(
            "UPDATE answers SET state = ?, size = ?, status = ?, headers = ?, body = ?, "
            "expires = ? WHERE id = ? AND owner = ?",
            (
                "too_large" if answer is None else "done",
                *kept,
                self._clock() + self.limits.ttl_s,
                identity,
                self._owner,
            ),
        )
        self._make_room(file, scope)

    def _make_room(self, file: sqlite3.Connection, scope: str) -> None:
        """Delete the oldest answers above the limits; requests that run are never deleted."""
        limits = self.limits
        query = "SELECT count(*) FROM answers WHERE scope = ?"
        surplus = file.execute(query, (scope,)).fetchone()[0] - limits.max_answers_per_key
        if surplus > 0:
            file.execute(
                "DELETE FROM answers WHERE id IN (SELECT id FROM answers WHERE scope = ? AND "
                "state <> 'running' ORDER BY created LIMIT ?)",
                (scope, surplus),
            )
        number, size = file.execute("SELECT count(*), total(size) FROM answers").fetchone()
        if number <= limits.max_answers and size <= limits.max_total_bytes:
            return
        oldest = file.execute(
            "SELECT id, size FROM answers WHERE state <> 'running' ORDER BY created"
        )
        oversize: list[tuple[bytes]] = []
        for identity, bytes_ in oldest.fetchall():
            if number <= limits.max_answers and size <= limits.max_total_bytes:
                break
            oversize.append((identity,))
            number, size = number - 1, size - bytes_
        file.executemany("DELETE FROM answers WHERE id = ?", oversize)

    def _extend(self, file: sqlite3.Connection, held: Sequence[bytes]) -> None:
        until = self._clock() + LEASE_S
        file.executemany(
            "UPDATE answers SET lease_until = ? WHERE id = ? AND owner = ?",
            [(until, identity, self._owner) for identity in held],
        )

    def _delete(self, file: sqlite3.Connection, identity: bytes) -> None:
        file.execute(
            "DELETE FROM answers WHERE id = ? AND owner = ? AND state = 'running'",
            (identity, self._owner),
        )


def identity_of(scope: str, key: str) -> bytes:
    """What a row is found by: the key of another caller is another row."""
    return hashlib.sha256(f"{scope}\0{key}".encode()).digest()
