"""What is deleted: what a key has left, what is too old, and what is too much.

After forgetting, neither features nor prompts can be read from the disk any more: what remains is
written anew (`rewriting`), and the journal is emptied. Backups are not reached. All of it goes in
slices, between which others write.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.contract.errors import InvalidRequest, Problem
from penstock.routing.outcomes import erase
from penstock.routing.outcomes.erase import in_slices
from penstock.routing.outcomes.ports import Forgotten
from penstock.routing.outcomes.schema import WHAT, begin_generation
from penstock.storage.sqlite.connect import patiently
from penstock.storage.sqlite.errors import translated

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
    chosen = f"SELECT seq FROM {table} {glue} seq <= ? ORDER BY seq LIMIT {erase.AT_ONCE}"
    return in_slices(
        connection, path, lambda at: delete_outcomes(at, chosen, (*values, newest[0]))[0]
    )


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
    try:
        _choose(connection, where, values, labels=key is not None)
    except sqlite3.Error as error:
        raise translated(error, path, WHAT) from error
    deleted = (0, 0, 0, 0)

    def some(at: sqlite3.Connection) -> int:
        nonlocal deleted
        deleted = tuple(map(sum, zip(deleted, _delete_some(at), strict=True)))
        left = _left(at)
        if not left and any(deleted):
            # With the last of them, so that nobody learns anew from half of what is left.
            begin_generation(at)
        return left

    in_slices(connection, path, some)
    erased = True
    if erase.is_due(connection):
        erased = erase.write_prompts_anew(connection, path)
    return Forgotten(*deleted, erased=_empty_journal(connection, path) and erased)


def _choose(
    connection: sqlite3.Connection, where: str, values: tuple[object, ...], *, labels: bool
) -> None:
    """Note what is to go, in temporary tables: nobody waits while it is looked for."""
    for name, table in (("outcomes", "routing_outcomes"), ("labels", "routing_labels")):
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS chosen_{name} (seq INTEGER PRIMARY KEY)"
        )
        connection.execute(f"DELETE FROM chosen_{name}")
        # A label that has grown old goes with its outcome, one of this key also without.
        if labels or name == "outcomes":
            connection.execute(
                f"INSERT INTO chosen_{name} SELECT seq FROM {table} WHERE {where}", values
            )


def _delete_some(connection: sqlite3.Connection) -> Deleted:
    """Delete some of what was chosen."""
    said = f"SELECT seq FROM chosen_labels ORDER BY seq LIMIT {erase.AT_ONCE}"
    labels = connection.execute(f"DELETE FROM routing_labels WHERE seq IN ({said})").rowcount
    chosen = f"SELECT seq FROM chosen_outcomes ORDER BY seq LIMIT {erase.AT_ONCE}"
    outcomes, of_them, features, texts = delete_outcomes(connection, chosen, ())
    for name in ("labels", "outcomes"):
        rows = f"SELECT seq FROM chosen_{name} ORDER BY seq LIMIT {erase.AT_ONCE}"
        connection.execute(f"DELETE FROM chosen_{name} WHERE seq IN ({rows})")
    if features or texts:
        erase.demand(connection)
    return outcomes, labels + of_them, features, texts


def _left(connection: sqlite3.Connection) -> int:
    query = "EXISTS (SELECT 1 FROM chosen_labels) OR EXISTS (SELECT 1 FROM chosen_outcomes)"
    return int(connection.execute(f"SELECT {query}").fetchone()[0])


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
        had = erase.delete_prompt(connection, prompt)
        features += had[0]
        texts += had[1]
    erase.delete_copies(connection, prompts)
    return outcomes, labels, features, texts


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
