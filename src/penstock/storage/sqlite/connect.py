"""Open SQLite files, wait for locks, and migrate tables.

The tables carry a prefix and their own version, so that the file may hold other things too.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from penstock.contract.errors import ConfigurationError
from penstock.storage.sqlite.errors import is_busy
from penstock.storage.sqlite.identity import give_id

Synchronous = Literal["normal", "full"]


BUSY_LIMIT_S = 30.0
"""How long a process waits for the others before it gives up."""


_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.0002, 0.005


_CHECKPOINT_PAGES = 4000


_T = TypeVar("_T")


def connect(path: Path, synchronous: Synchronous, what: str = "the ledger") -> sqlite3.Connection:
    """Open the file for writing, and make it when there is none; not shared by threads."""
    if not path.exists():
        with contextlib.suppress(OSError):
            _make_private(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=256)
    try:
        (mode,) = patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
        if mode != "wal":
            raise ConfigurationError(
                f"{what} {path} cannot be kept in WAL mode but in {mode!r}: put it on a local "
                "disk, for network file systems cannot share it"
            )
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        if synchronous == "full":
            # Only macOS has it: there, a plain fsync does not reach the medium.
            connection.execute("PRAGMA fullfsync = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the file for questions only; never waits for those who write."""
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_LIMIT_S, isolation_level=None
    )


def patiently(attempt: Callable[[], _T], limit_s: float = BUSY_LIMIT_S) -> _T:
    """Try until nobody else has the file.

    SQLite's own waiting sleeps for up to 100 ms at a time, when a group commit takes less than one.
    """
    deadline = time.monotonic() + limit_s
    wait = _SHORTEST_WAIT_S
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT_S)


def prepare(
    connection: sqlite3.Connection,
    path: Path,
    migrations: Sequence[Sequence[str]],
    meta: str,
    what: str = "the ledger",
) -> Path | None:
    """Bring the tables to the newest version; returns the backup that was made before, if any.

    `meta` is the table that has their version. Raises ConfigurationError for a file of a newer
    Penstock, which is left as it is.
    """
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        version = schema_version(connection, meta)
        check_version(version, path, len(migrations), what)
        backup = None
        if version < len(migrations):
            if version:
                # While the write lock is ours, nothing can come between the copy and the change.
                backup = _back_up(path, version)
            for statements in migrations[version:]:
                for statement in statements:
                    connection.execute(statement)
            _set_version(connection, len(migrations), meta)
        named = give_id(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    if named:
        # The id is read from the main file, without the -wal file.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return backup


def schema_version(connection: sqlite3.Connection, meta: str) -> int:
    """The version of the tables; 0 when there are none."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(known, (meta,)).fetchone() is None:
        return 0
    query = f"SELECT value FROM {meta} WHERE name = 'version'"
    return int(connection.execute(query).fetchone()[0])


def check_version(version: int, path: Path, newest: int, what: str = "the ledger") -> None:
    """Raise ConfigurationError when the file is newer than this code."""
    if version > newest:
        raise ConfigurationError(
            f"{what} {path} has version {version}, and this Penstock knows versions up to "
            f"{newest}: update Penstock, or give it another file. Nothing was changed in it"
        )


def _set_version(connection: sqlite3.Connection, version: int, meta: str) -> None:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {meta} (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
    )
    connection.execute(f"INSERT OR REPLACE INTO {meta} VALUES ('version', ?)", (version,))
    # Processes that have it open look at the version again when this number changes.
    connection.execute(
        f"INSERT INTO {meta} VALUES ('generation', 1) "
        "ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


def _back_up(path: Path, version: int) -> Path:
    number = 1
    while (backup := path.with_name(f"{path.name}.v{version}-{number}.backup")).exists():
        number += 1
    # Under another name until it is whole: whoever is killed meanwhile leaves no half a backup. We
    # have the write lock, so what is there under that name is such a rest.
    unfinished = backup.with_name(f"{backup.name}.part")
    unfinished.unlink(missing_ok=True)
    _make_private(unfinished)
    source = connect_to_read(path)
    try:
        target = sqlite3.connect(unfinished)
        try:
            source.backup(target)
        finally:
            target.close()
        unfinished.replace(backup)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        source.close()
    return backup


def _make_private(path: Path) -> None:
    """Make the file, for its owner alone: it tells who asked for what."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
