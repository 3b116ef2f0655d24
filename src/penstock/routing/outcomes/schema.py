"""The tables of outcomes, and how their file is opened.

Outcomes and labels are numbered from one sequence within the transaction that writes them, and
SQLite has one writer at a time: so the numbers are in the order of the commits, and whoever reads
on from a number misses nothing. Features and texts are apart, for a replay reads past them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.contract.errors import ConfigurationError
from penstock.storage.sqlite.connect import (
    Synchronous,
    check_version,
    connect,
    connect_to_read,
    patiently,
    prepare,
    schema_version,
)
from penstock.storage.sqlite.errors import translated
from penstock.storage.sqlite.guard import StoreGuard

WHAT = "the memory of routing"
META = "routing_meta"
PROMPTS = """(
            id INTEGER PRIMARY KEY,
            made_by TEXT,
            features BLOB,
            text TEXT
        ) STRICT"""
"""The columns of `routing_prompts`: what is known of a prompt, which several outcomes may share."""
_T = TypeVar("_T")

_MIGRATIONS = (
    (
        """CREATE TABLE routing_outcomes (
            seq INTEGER PRIMARY KEY,
            at REAL NOT NULL,
            worker TEXT NOT NULL,
            request_id TEXT NOT NULL,
            model TEXT NOT NULL,
            provider TEXT NOT NULL,
            upstream TEXT NOT NULL,
            key TEXT,
            prompt INTEGER,
            prompt_tokens INTEGER NOT NULL,
            output_tokens INTEGER,
            cost_nanos INTEGER,
            latency_ms REAL,
            first_token_ms REAL,
            ok INTEGER NOT NULL,
            error TEXT,
            logged TEXT
        ) STRICT""",
        "CREATE INDEX routing_outcomes_model ON routing_outcomes (model, seq)",
        "CREATE INDEX routing_outcomes_request ON routing_outcomes (request_id)",
        "CREATE INDEX routing_outcomes_prompt ON routing_outcomes (prompt) "
        "WHERE prompt IS NOT NULL",
        """CREATE TABLE routing_labels (
            seq INTEGER PRIMARY KEY,
            outcome INTEGER NOT NULL,
            model TEXT NOT NULL,
            source TEXT NOT NULL,
            score REAL NOT NULL,
            weight REAL NOT NULL,
            at REAL NOT NULL,
            key TEXT,
            worker TEXT NOT NULL,
            UNIQUE (outcome, source)
        ) STRICT""",
        "CREATE INDEX routing_labels_model ON routing_labels (model, seq)",
        f"CREATE TABLE routing_prompts {PROMPTS}",
    ),
)


def open_to_write(
    path: Path, synchronous: Synchronous = "normal", guard: StoreGuard | None = None
) -> sqlite3.Connection:
    """A connection for one thread, with the tables there; raises PenstockError."""
    if guard is not None:
        guard.verify()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"storage.url: the folder {path.parent} cannot be made ({error.strerror}): choose "
            "another, or set PENSTOCK_HOME"
        ) from error
    try:
        connection = connect(path, synchronous, WHAT)
        try:
            # What is deleted is overwritten, whatever this SQLite was built with.
            connection.execute("PRAGMA secure_delete = ON")
            prepare(connection, path, _MIGRATIONS, META, WHAT)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error
    return connection


def asked(path: Path, question: Callable[[sqlite3.Connection], _T], nothing: _T) -> _T:
    """The answer to a question, in one snapshot; `nothing` without a file or without our tables."""
    if not path.exists():
        return nothing
    try:
        connection = connect_to_read(path)
        try:
            connection.execute("BEGIN")
            version = schema_version(connection, META)
            if not version:
                return nothing
            check_version(version, path, len(_MIGRATIONS), WHAT)
            return question(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error


def in_transaction(
    connection: sqlite3.Connection, path: Path, work: Callable[[sqlite3.Connection], _T]
) -> _T:
    """Do this wholly or not at all; raises PenstockError when the file does not let us."""
    try:
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            done = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error
    return done


def take_numbers(connection: sqlite3.Connection, how_many: int) -> int:
    """The first of so many new numbers; within a transaction that writes."""
    query = (
        f"INSERT INTO {META} VALUES ('sequence', ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value RETURNING value"
    )
    ((last,),) = connection.execute(query, (how_many,)).fetchall()
    return int(last) - how_many + 1


def generation(connection: sqlite3.Connection) -> int:
    """A number that is another one when something was forgotten."""
    query = f"SELECT value FROM {META} WHERE name = 'generation'"
    return int(connection.execute(query).fetchone()[0])


def begin_generation(connection: sqlite3.Connection) -> None:
    """Let everybody who reads know that what they have learnt must be learnt anew."""
    connection.execute(f"UPDATE {META} SET value = value + 1 WHERE name = 'generation'")
