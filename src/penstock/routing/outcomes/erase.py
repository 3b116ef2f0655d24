"""What is left of prompts is written anew, so that nothing of those that went stays in the file.

SQLite overwrites what is deleted (`secure_delete`), but not the copies that it has left where rows
were moved from one page to another. So the prompts are copied to another table, which takes the
place of the first; and of that one, all pages are overwritten. Each step is a transaction of its
own, between which others write: nobody who is served waits for more than one of them.

A process that is killed on the way leaves a mark, and whoever forgets something next begins again.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from penstock.routing.outcomes.schema import META, PROMPTS, in_transaction

AT_ONCE = 500
"""Rows of one transaction: the ledger waits no longer than that."""
ANEW, OLD = "routing_prompts_anew", "routing_prompts_old"
_MARK = "rewriting"
_LEAST_PAUSE_S = 0.002
pause = time.sleep


class _TakenOver(Exception):
    """Another process has begun to write the prompts anew, and does all that was left."""


def in_slices(
    connection: sqlite3.Connection, path: Path, work: Callable[[sqlite3.Connection], int]
) -> int:
    """Do this until it says 0, each time in a transaction, after which others get their turn."""
    done = 0
    while True:
        began = time.monotonic()
        some = in_transaction(connection, path, work)
        if not some:
            return done
        done += some
        # SQLite's lock knows no queue: who takes it again at once keeps all others out.
        pause(max(_LEAST_PAUSE_S, time.monotonic() - began))


def demand(connection: sqlite3.Connection) -> None:
    """Note that prompts are to be written anew; within the transaction that deletes some."""
    connection.execute(f"INSERT INTO {META} VALUES ('{_MARK}', 0) ON CONFLICT DO NOTHING")


def is_due(connection: sqlite3.Connection) -> bool:
    """Whether prompts were deleted, here or by a process that is gone, and may be in the file."""
    query = f"SELECT 1 FROM {META} WHERE name = '{_MARK}'"
    return connection.execute(query).fetchone() is not None


def delete_prompt(connection: sqlite3.Connection, prompt: int) -> tuple[int, int]:
    """Delete a prompt that no outcome has; whether it had features, and a text."""
    had = connection.execute(
        "DELETE FROM routing_prompts WHERE id = ?1 AND NOT EXISTS "
        "(SELECT 1 FROM routing_outcomes WHERE prompt = ?1) "
        "RETURNING features IS NOT NULL, text IS NOT NULL",
        (prompt,),
    ).fetchall()
    return (had[0][0], had[0][1]) if had else (0, 0)


def delete_copies(connection: sqlite3.Connection, prompts: list[tuple[int]]) -> None:
    """Delete these also where somebody is writing anew just now, if they are gone."""
    if _is_there(connection, ANEW):
        connection.executemany(
            f"DELETE FROM {ANEW} WHERE id = ?1 AND NOT EXISTS "
            "(SELECT 1 FROM routing_prompts WHERE id = ?1)",
            prompts,
        )


def write_prompts_anew(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether it was done; otherwise another process has begun after us, and does it."""
    token = 1 + secrets.randbelow(1 << 48)

    def begin(at: sqlite3.Connection) -> None:
        at.execute(
            f"INSERT INTO {META} VALUES ('{_MARK}', ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (token,),
        )

    in_transaction(connection, path, begin)
    try:
        # What a process that is gone has left.
        for table in (ANEW, OLD):
            _remove(connection, path, table, token)
        _copy(connection, path, token)
        _remove(connection, path, OLD, token)
        in_transaction(connection, path, lambda at: _end(at, token))
    except _TakenOver:
        return False
    return True


def _copy(connection: sqlite3.Connection, path: Path, token: int) -> None:
    def create(at: sqlite3.Connection) -> None:
        _check(at, token)
        at.execute(f"CREATE TABLE {ANEW} {PROMPTS}")

    def some(at: sqlite3.Connection) -> int:
        _check(at, token)
        return at.execute(
            f"INSERT INTO {ANEW} SELECT * FROM routing_prompts WHERE id > "
            f"(SELECT coalesce(max(id), 0) FROM {ANEW}) ORDER BY id LIMIT {AT_ONCE}"
        ).rowcount

    def many(at: sqlite3.Connection) -> int:
        # Rows come in all the time: few of them are copied with the last step.
        number = some(at)
        return number if number == AT_ONCE else 0

    def exchange(at: sqlite3.Connection) -> None:
        while some(at):
            pass
        at.execute(f"ALTER TABLE routing_prompts RENAME TO {OLD}")
        at.execute(f"ALTER TABLE {ANEW} RENAME TO routing_prompts")

    in_transaction(connection, path, create)
    in_slices(connection, path, many)
    in_transaction(connection, path, exchange)


def _remove(connection: sqlite3.Connection, path: Path, table: str, token: int) -> None:
    def some(at: sqlite3.Connection) -> int:
        _check(at, token)
        if not _is_there(at, table):
            return 0
        chosen = f"SELECT id FROM {table} ORDER BY id LIMIT {AT_ONCE}"
        return at.execute(f"DELETE FROM {table} WHERE id IN ({chosen})").rowcount

    def drop(at: sqlite3.Connection) -> None:
        _check(at, token)
        at.execute(f"DROP TABLE IF EXISTS {table}")

    in_slices(connection, path, some)
    in_transaction(connection, path, drop)


def _check(connection: sqlite3.Connection, token: int) -> None:
    query = f"SELECT 1 FROM {META} WHERE name = '{_MARK}' AND value = ?"
    if connection.execute(query, (token,)).fetchone() is None:
        raise _TakenOver


def _end(connection: sqlite3.Connection, token: int) -> None:
    _check(connection, token)
    connection.execute(f"DELETE FROM {META} WHERE name = '{_MARK}'")


def _is_there(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (table,)).fetchone() is not None
