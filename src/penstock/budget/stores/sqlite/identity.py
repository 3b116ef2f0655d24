"""What identifies a store: a random id in its file, and numbers that only grow.

The id and the header are read from the main file itself, without its `-wal` file: after the main
file is replaced, SQLite would read the new file together with the `-wal` of the old one.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from pathlib import Path
from typing import NamedTuple

_TABLE = "penstock_store"
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_NUMBERS = {
    "entries": ("ledger_entries", "SELECT max(id) FROM ledger_entries"),
    "budgets": ("ledger_meta", "SELECT value FROM ledger_meta WHERE name = 'generation'"),
    "balances": ("ledger_balances", "SELECT count(*) FROM ledger_balances"),
    "keys": ("gateway_keys_meta", "SELECT value FROM gateway_keys_meta WHERE name = 'generation'"),
    "key_rows": ("gateway_keys", "SELECT count(*) FROM gateway_keys"),
}


class Header(NamedTuple):
    """The first page of a database file, as far as it is needed."""

    size: int
    """How many bytes the file must have."""
    changes: int
    """A counter that checkpoints of a growing file raise; an older copy has a lower one."""


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
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (id TEXT NOT NULL)")
    if connection.execute(f"SELECT 1 FROM {_TABLE}").fetchone() is not None:
        return False
    connection.execute(f"INSERT INTO {_TABLE} VALUES (?)", (secrets.token_hex(16),))
    return True


def read_id(path: Path) -> str | None:
    """The id in the main file; None when there is none, or no database."""
    # `immutable` leaves out the -wal file, and changes nothing beside the file.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        with contextlib.closing(connection):
            row = connection.execute(f"SELECT id FROM {_TABLE}").fetchone()
            return None if row is None else str(row[0])
    return None


def read_header(path: Path) -> Header | None:
    """None for a file that is no database."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError:
        return None
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        return None
    page = int.from_bytes(head[16:18], "big")
    # SQLite writes 1 for pages of 65,536 bytes.
    page = 65536 if page == 1 else page
    pages, changes = int.from_bytes(head[28:32], "big"), int.from_bytes(head[24:28], "big")
    return Header(page * pages, changes)


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
