"""What is deleted: what a key has left, what is too old, and what is too much.

After forgetting, neither features nor prompts can be read from the disk any more. SQLite overwrites
what is deleted (`secure_delete`), but not the copies that it has left where rows were moved from
one page to another. So what remains is written anew and the old table dropped, all of whose pages
are then overwritten; and the journal is emptied. Backups are not reached.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.budget.stores.sqlite.failures import translated
from penstock.budget.stores.sqlite.schema import patiently
from penstock.contract.errors import InvalidRequest, Problem
from penstock.memory.schema import PROMPTS, WHAT, begin_generation, in_transaction
from penstock.routing.store import Forgotten

_AT_ONCE = 1000
"""Outcomes of one transaction, when there are too many: the ledger waits no longer than that."""
_PATIENCE_S = 5.0

Deleted = tuple[int, int, int, int]


def prune(connection: sqlite3.Connection, path: Path, keep: int, keep_in_all: int) -> int:
    """Delete the oldest outcomes of each model that has more than `keep`, and of all together."""
    deleted = 0
    models = connection.execute("SELECT DISTINCT model FROM routing_outcomes").fetchall()
    for (model,) in models:
        deleted += _prune(connection, path, "WHERE model = ?", (model,), keep)
    return deleted + _prune(connection, path, "", (), keep_in_all)


def _prune(
    connection: sqlite3.Connection, path: Path, where: str, values: tuple[str, ...], keep: int
) -> int:
    table = f"routing_outcomes {where}"
    query = f"SELECT seq FROM {table} ORDER BY seq DESC LIMIT 1 OFFSET ?"
    try:
        newest = connection.execute(query, (*values, keep)).fetchone()
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error
    if newest is None:
        return 0
    glue = "AND" if where else "WHERE"
    chosen = f"SELECT seq FROM {table} {glue} seq <= ? ORDER BY seq LIMIT {_AT_ONCE}"
    deleted = 0
    while True:
        some = in_transaction(
            connection, path, lambda at: delete_outcomes(at, chosen, (*values, newest[0]))[0]
        )
        deleted += some
        if some < _AT_ONCE:
            return deleted


def forget(
    connection: sqlite3.Connection, path: Path, *, key: str | None, before: float | None
) -> Forgotten:
    """Delete what fits both, with the labels that this key has given to others' answers."""
    if key is None and before is None:
        raise InvalidRequest.of(
            [Problem("key", "give a key or a time: not everything is forgotten at once")]
        )
    given = (("key = ?", key), ("at < ?", before))
    where = " AND ".join(clause for clause, value in given if value is not None)
    values = tuple(value for _, value in given if value is not None)
    chosen = f"SELECT seq FROM routing_outcomes WHERE {where}"

    def work(at: sqlite3.Connection) -> Deleted:
        # A label that has grown old goes with its outcome, one of this key also without.
        said = f"DELETE FROM routing_labels WHERE {where}"
        labels = at.execute(said, values).rowcount if key is not None else 0
        outcomes, of_them, features, texts = delete_outcomes(at, chosen, values)
        if features or texts:
            _write_prompts_anew(at)
        if outcomes or labels:
            begin_generation(at)
        return outcomes, labels + of_them, features, texts

    deleted = in_transaction(connection, path, work)
    return Forgotten(*deleted, erased=_empty_journal(connection, path))


def delete_outcomes(
    connection: sqlite3.Connection, chosen: str, values: tuple[object, ...]
) -> Deleted:
    """Delete the chosen outcomes, their labels, and prompts that no other outcome shares."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS going (seq INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM going")
    connection.execute(f"INSERT INTO going {chosen}", values)
    going = "SELECT seq FROM going"
    labels = connection.execute(f"DELETE FROM routing_labels WHERE outcome IN ({going})").rowcount
    prompts = connection.execute(
        f"SELECT DISTINCT prompt FROM routing_outcomes WHERE seq IN ({going}) AND prompt NOT NULL"
    ).fetchall()
    outcomes = connection.execute(f"DELETE FROM routing_outcomes WHERE seq IN ({going})").rowcount
    features = texts = 0
    for (prompt,) in prompts:
        had = connection.execute(
            "DELETE FROM routing_prompts WHERE id = ?1 AND NOT EXISTS "
            "(SELECT 1 FROM routing_outcomes WHERE prompt = ?1) "
            "RETURNING features IS NOT NULL, text IS NOT NULL",
            (prompt,),
        ).fetchall()
        features += sum(row[0] for row in had)
        texts += sum(row[1] for row in had)
    return outcomes, labels, features, texts


def _write_prompts_anew(connection: sqlite3.Connection) -> None:
    connection.execute(f"CREATE TABLE routing_prompts_anew {PROMPTS}")
    connection.execute("INSERT INTO routing_prompts_anew SELECT * FROM routing_prompts ORDER BY id")
    connection.execute("DROP TABLE routing_prompts")
    connection.execute("ALTER TABLE routing_prompts_anew RENAME TO routing_prompts")


def _empty_journal(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the write-ahead log, which has the old pages, could be emptied and cut off."""

    def attempt() -> None:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise _StillRead

    try:
        # Most of it goes without anybody waiting for it.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        patiently(attempt, _PATIENCE_S)
    except _StillRead:
        return False
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error
    return True


class _StillRead(sqlite3.OperationalError):
    """Somebody reads from the journal."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY
