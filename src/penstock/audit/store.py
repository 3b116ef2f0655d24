"""What administrators have changed: who, when, what, before and after.

Entries are logged, and kept in the SQLite file of the ledger and the keys. Changes are rare, so
each has a connection of its own.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.audit.records import AuditEntry, AuditFilter, AuditPage
from penstock.contract.checks.lengths import cut
from penstock.contract.errors import PenstockError
from penstock.storage.sqlite.connect import (
    check_version,
    connect,
    connect_to_read,
    patiently,
    prepare,
    schema_version,
)
from penstock.storage.sqlite.errors import unavailable
from penstock.storage.sqlite.guard import StoreGuard

MOST_KEPT = 100_000
LONGEST_STATE = 16_384
"""Characters of JSON of a state; a longer one is cut."""
_CUT_TO = 1000
_LONGEST_NAME = 256
_LONGEST_LOGGED = 300
_DAY_S = 86_400.0
_WHAT = "the audit trail in"
_META = "gateway_audit_meta"
_MIGRATIONS = (
    (
        """CREATE TABLE gateway_audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            actor TEXT NOT NULL,
            origin TEXT NOT NULL,
            action TEXT NOT NULL,
            subject TEXT NOT NULL,
            details TEXT,
            before TEXT,
            after TEXT
        )""",
        "CREATE INDEX gateway_audit_at ON gateway_audit (at)",
    ),
)
_COLUMNS = "id, at, actor, origin, action, subject, details, before, after"
_log = logging.getLogger("penstock.audit")


class AuditStore:
    """The audit trail of one file; its calls block, for as long as the disk takes."""

    def __init__(
        self,
        path: Path,
        days: float,
        guard: StoreGuard | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Entries are kept for so many days; 0: they are only logged."""
        self.path = path
        self._days = days
        self._guard = guard or StoreGuard(path)
        self._clock = clock

    def record(
        self,
        action: str,
        subject: str,
        *,
        actor: str,
        origin: str,
        details: Any = None,
        before: Any = None,
        after: Any = None,
    ) -> None:
        """Log a change that was made, and keep it.

        A trail that cannot be written does not undo the change; that is logged as an error.
        """
        entry = AuditEntry(
            at=self._clock(),
            actor=cut(actor, _LONGEST_NAME),
            origin=cut(origin, _LONGEST_NAME),
            action=action,
            subject=cut(subject, _LONGEST_NAME),
            details=_bounded(details),
            before=_bounded(before),
            after=_bounded(after),
        )
        _log_entry(entry)
        if self._days:
            try:
                self._append(entry)
            except (PenstockError, OSError) as error:
                _log.error("a change could not be kept in the audit trail: %s", error)

    def page(
        self, chosen: AuditFilter, *, cursor: int | None = None, limit: int = 100
    ) -> AuditPage:
        """Entries below the cursor, newest first."""
        conditions, values = ["1"], list[object]()
        for condition, value in (
            ("at >= ?", chosen.since),
            ("at < ?", chosen.until),
            ("action = ?", chosen.action),
            ("subject = ?", chosen.subject),
            ("id < ?", cursor),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        query = (
            f"SELECT {_COLUMNS} FROM gateway_audit WHERE {' AND '.join(conditions)} "  # noqa: S608 - the conditions above
            "ORDER BY id DESC LIMIT ?"
        )
        rows = self._read(query, [*values, limit + 1])
        entries = [_entry(row) for row in rows[:limit]]
        return AuditPage(entries, entries[-1].id if len(rows) > limit else None)

    def _read(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        self._guard.verify()
        if not self.path.exists():
            return []
        try:
            with contextlib.closing(connect_to_read(self.path)) as file:
                version = schema_version(file, _META)
                check_version(version, self.path, len(_MIGRATIONS), _WHAT)
                return file.execute(query, values).fetchall() if version else []
        except sqlite3.Error as error:
            raise unavailable(error, self.path, _WHAT) from error

    def _append(self, entry: AuditEntry) -> None:
        states = (entry.details, entry.before, entry.after)
        row = [
            *(entry.at, entry.actor, entry.origin, entry.action, entry.subject),
            *(None if state is None else _json(state) for state in states),
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._guard.verify()
            with contextlib.closing(connect(self.path, "normal", _WHAT)) as file:
                prepare(file, self.path, _MIGRATIONS, _META, _WHAT)
                self._guard.adopt(file)
                patiently(lambda: file.execute("BEGIN IMMEDIATE"))
                marks = ", ".join("?" * len(row))
                file.execute(
                    f"INSERT INTO gateway_audit ({_COLUMNS[4:]}) VALUES ({marks})",  # noqa: S608
                    row,
                )
                file.execute(
                    "DELETE FROM gateway_audit WHERE at < ? OR id <= "
                    "(SELECT max(id) FROM gateway_audit) - ?",
                    (entry.at - self._days * _DAY_S, MOST_KEPT),
                )
                file.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error, self.path, _WHAT) from error


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    *plain, details, before, after = row
    identifier, at, actor, origin, action, subject = plain
    return AuditEntry(
        id=identifier,
        at=at,
        actor=actor,
        origin=origin,
        action=action,
        subject=subject,
        details=_value(details),
        before=_value(before),
        after=_value(after),
    )


def _value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


def _bounded(state: Any) -> Any:
    """As plain JSON, cut when it is too long to keep."""
    if state is None:
        return None
    text = _json(state)
    if len(text) > LONGEST_STATE:
        return {"cut": text[:_CUT_TO]}
    return msgspec.json.decode(text)


def _log_entry(entry: AuditEntry) -> None:
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not None and name not in ("id", "at")
    }
    states = [
        f"{name} {cut(_json(value), _LONGEST_LOGGED)}"
        for name, value in (("before", entry.before), ("after", entry.after))
        if value is not None
    ]
    _log.info(
        "audit: %s (%s): %s %s%s",
        entry.actor,
        entry.origin,
        entry.action,
        entry.subject,
        "".join(f"; {each}" for each in states),
        extra={"penstock_fields": {"event": "audit", **fields}},
    )
