"""What identifies a store: a random id in its file, and numbers that only grow.

The mark is read from the main file itself, without its `-wal` file: after the main
file is replaced, SQLite would read the new file together with the `-wal` of the old one.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from pathlib import Path
from typing import NamedTuple

_TABLE = "penstock_store"
_NUMBERS = {
    "entries": ("ledger_entries", "SELECT max(id) FROM ledger_entries"),
    "budgets": ("ledger_meta", "SELECT value FROM ledger_meta WHERE name = 'generation'"),
    "balances": ("ledger_balances", "SELECT count(*) FROM ledger_balances"),
    "keys": ("gateway_keys_meta", "SELECT value FROM gateway_keys_meta WHERE name = 'generation'"),
    "key_rows": ("gateway_keys", "SELECT count(*) FROM gateway_keys"),
}


class Mark(NamedTuple):
    """What the main file says of itself."""

    id: str
    synced: int
    """How often the store was marked; an older copy has a lower number."""


class Progress(NamedTuple):
    """Numbers that never fall while Penstock alone writes to the store."""

    entries: int = 0
    """The number of the newest entry of the ledger."""
    budgets: int = 0
    """The generation of the budgets."""
    balances: int = 0
    """How many balances there are."""
    keys: int = 0
    """The generation of the keys."""
    key_rows: int = 0
    """How many keys there are, revoked ones included."""


def give_id(connection: sqlite3.Connection) -> bool:
    """Give the store an id if it has none, inside a transaction; whether it had none."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_TABLE} (id TEXT NOT NULL, synced INTEGER NOT NULL)"
    )
    if connection.execute(f"SELECT 1 FROM {_TABLE}").fetchone() is not None:
        return False
    connection.execute(f"INSERT INTO {_TABLE} VALUES (?, 0)", (secrets.token_hex(16),))
    return True


def get_mark(connection: sqlite3.Connection) -> Mark | None:
    """As the connection sees it."""
    row = connection.execute(f"SELECT id, synced FROM {_TABLE}").fetchone()
    return None if row is None else Mark(*row)


def raise_mark(connection: sqlite3.Connection) -> None:
    """Let an older copy be told from this store."""
    connection.execute(f"UPDATE {_TABLE} SET synced = synced + 1")


def read_mark(path: Path) -> Mark | None:
    """The mark in the main file; None when it has none, or cannot be read."""
    # `immutable` leaves out the -wal file. The file must not be opened without SQLite: to close it
    # would take away the locks that the process has on it.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        with contextlib.closing(connection):
            return get_mark(connection)
    return None


def read_progress(connection: sqlite3.Connection) -> Progress:
    """As of the last commit; tables that are not there count as 0."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = {name for (name,) in connection.execute(query)}
    found: dict[str, int] = {}
    for name, (table, number) in _NUMBERS.items():
        row = connection.execute(number).fetchone() if table in tables else None
        found[name] = int(row[0] or 0) if row else 0
    return Progress(**found)


def has_wal(path: Path) -> bool:
    """Whether transactions wait beside the file."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except OSError:
        return False
