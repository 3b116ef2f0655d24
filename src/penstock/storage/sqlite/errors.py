"""What SQLite's result codes mean for those who keep a ledger in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from penstock.contract.errors import ConfigurationError, PenstockError, StorageUnavailable

RETRY_AFTER_S = 5.0
"""The pause that callers are asked for when the file cannot be used."""

_DAMAGED = (
    "is damaged or is not an SQLite database. Nothing was changed in it: restore it from a backup, "
    "or move it away to start with an empty one (`sqlite3 FILE .recover` saves what can be read)"
)
_SETTINGS = {
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_READONLY: "cannot be written: the file, its folder or the disk is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its folder must exist and be writable",
    sqlite3.SQLITE_PERM: "cannot be opened: the permissions of the file do not allow it",
    sqlite3.SQLITE_AUTH: "cannot be opened: the permissions of the file do not allow it",
}
_TROUBLE = {
    sqlite3.SQLITE_FULL: "cannot be written, for the disk is full: make room",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error or has no room",
    sqlite3.SQLITE_BUSY: "is locked by another process for longer than it may take",
    sqlite3.SQLITE_LOCKED: "is locked by another process for longer than it may take",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process for longer than it may take",
    sqlite3.SQLITE_NOMEM: "cannot be used: there is no memory left",
}


def primary_code(error: sqlite3.Error) -> int | None:
    """The kind of failure; None for one that the module has raised by itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else has the file just now."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def concerns_the_file(error: sqlite3.Error) -> bool:
    """Whether everything that is written now would fail the same way."""
    code = primary_code(error)
    return code in _SETTINGS or code in _TROUBLE


def translated(error: Exception, path: Path, what: str = "the ledger") -> Exception:
    """The error that callers see; one that is not SQLite's own stays itself.

    `what` says what is kept in the file.
    """
    if not isinstance(error, sqlite3.Error):
        return error
    code = primary_code(error)
    detail = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if code in _SETTINGS:
        told: PenstockError = ConfigurationError(f"{what} {path} {_SETTINGS[code]}: {detail}")
    elif code in _TROUBLE:
        told = StorageUnavailable(
            f"{what} {path} {_TROUBLE[code]}: {detail}", retry_after=RETRY_AFTER_S
        )
    else:
        told = PenstockError(f"{what} {path} failed: {detail}")
    told.__cause__ = error
    return told


def unavailable(error: Exception, path: Path, what: str = "the ledger") -> Exception:
    """The same for a file that could be used before: a setting that is wrong may be so for a time.

    A disk that becomes read-only is one such case.
    """
    told = translated(error, path, what)
    if isinstance(error, sqlite3.Error) and isinstance(told, ConfigurationError):
        cause, told = told, StorageUnavailable(told.message, retry_after=RETRY_AFTER_S)
        told.__cause__ = cause.__cause__
    return told
