"""Refuses a store that is not the one that was opened before: missing, replaced, emptied or older.

A store that holds nothing to protect may be removed: the next process makes another one. Once the
gateway has keys, an admin key or budgets, the store is protected:

- in a running process, the path must lead to the file that was opened (device and inode), and the
  numbers of `identity.Progress` must not fall;
- a process that opens the store compares it with the record of `record.StoreRecord`, which its
  parent hands over or which lies in PENSTOCK_HOME.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from pathlib import Path

import msgspec

from penstock.budget.stores.sqlite.failures import RETRY_AFTER_S
from penstock.budget.stores.sqlite.identity import (
    Progress,
    has_wal,
    read_header,
    read_id,
    read_progress,
)
from penstock.budget.stores.sqlite.record import (
    StoreRecord,
    read_record,
    record_file,
    write_record,
)
from penstock.contract.errors import PenstockError, StorageUnavailable

_REMEDY = (
    "Requests are refused until the right file is back; if it was changed in place, restart the "
    "gateway then"
)
_ACCEPT = (
    "Put the right file back, or, to go on with what is at this path and accept the loss, stop "
    "the gateway and run `penstock storage accept`"
)
_log = logging.getLogger("penstock.storage")


class StoreGuard:
    """Knows one store, for all parts of a process that open it."""

    def __init__(
        self,
        path: Path,
        record: Path | None = None,
        *,
        durable: bool = False,
        expected: StoreRecord | None = None,
    ) -> None:
        """`record` is the file of its record; only a `durable` guard writes it.

        `expected` is what another process of the same gateway knows of the store.
        """
        self.path = path.absolute()
        self._name = str(self.path)
        self._record = record
        self._durable = durable
        self._known = expected
        self._protected = expected is not None and expected.protected
        self._inode = None if expected is None else expected.inode
        self._opened = False
        self._size = 0
        self._modified = 0
        self._damage: str | None = None
        self._record_failed = False
        self._reported: str | None = None
        self._lock = threading.Lock()

    @property
    def protected(self) -> bool:
        """Whether another store is refused."""
        return self._protected

    @property
    def refused(self) -> bool:
        """Whether the last look at the path has found another store than the expected one."""
        return self._protected and self._reported is not None

    def protect(self) -> None:
        """From now on only this store is accepted; `remember` makes that outlast the process."""
        self._protected = True

    # -- before each use

    def check(self) -> None:
        """Raise StorageUnavailable unless the path leads to the open store; one call of `stat`."""
        if not self._opened:
            return
        try:
            found = os.stat(self._name)  # noqa: PTH116 - a Path would take five times as long
        except OSError as error:
            self._refuse(f"is missing ({error.strerror})")
            return
        if (found.st_dev, found.st_ino) != self._inode:
            self._refuse("was replaced by another file")
        elif found.st_mtime_ns != self._modified and self._is_damaged(found):
            self._refuse(f"{self._damage}")
        elif self._damage is not None:
            self._refuse(self._damage)
        elif self._reported is not None:
            self._report(None)

    def _is_damaged(self, found: os.stat_result) -> bool:
        """Look at the header of a file that a checkpoint, or something else, has written."""
        header, before = read_header(self.path), self._known
        if header is None or (found.st_size < self._size and found.st_size < header.size):
            # What SQLite keeps in memory does not fit the file any more, whatever is put there.
            self._damage = "was truncated or overwritten while it was open"
        elif before is not None and header.changes < before.changes:
            self._damage = "was overwritten by an older copy while it was open"
        else:
            self._size, self._modified = found.st_size, found.st_mtime_ns
            if before is not None:
                self._known = msgspec.structs.replace(before, changes=header.changes)
        return self._damage is not None

    def fell(self, what: str) -> None:
        """Refuse a protected store of which a number has fallen, until the process ends."""
        if self._protected:
            self._damage = f"was emptied or overwritten by an older copy ({what})"
            self._refuse(self._damage)

    def verify(self) -> None:
        """The same as `check` for a store that this process may not have opened yet.

        To be called before the file is opened or made: opening an empty file deletes the `-wal`
        file that belongs to the missing one.
        """
        if self._opened:
            self.check()
            return
        expected = self._expected()
        if expected is None or not self._protected:
            return
        problem = self._difference(expected)
        if problem is not None:
            self._refuse(problem)
        elif self._reported is not None:
            self._report(None)

    def _expected(self) -> StoreRecord | None:
        recorded = None if self._record is None else read_record(self._record)
        if recorded is None:
            return self._known
        self._protected = True
        if self._known is None:
            self._known = recorded
        else:
            self._known = self._known.newer(recorded)
        return self._known

    def _difference(self, expected: StoreRecord) -> str | None:
        """What tells the file at the path from the one that is expected."""
        try:
            found = self.path.stat()
        except OSError as error:
            return f"is missing ({error.strerror})"
        if self._inode is not None and self._inode != (found.st_dev, found.st_ino):
            return "was replaced by another file"
        header = read_header(self.path)
        if header is None:
            return "was replaced by an empty file" if not found.st_size else "is no database"
        identifier = read_id(self.path)
        if identifier is None and found.st_size < header.size:
            return "was truncated"
        if identifier != expected.id:
            return "was replaced by another store"
        if header.changes < expected.changes and has_wal(self.path):
            return "was replaced by an older copy beside the -wal file of the newer one"
        try:
            with contextlib.closing(_connect(self.path, "ro")) as connection:
                return _older(read_progress(connection), expected.progress)
        except sqlite3.OperationalError:
            # Locked or unreadable just now: whoever opens it says so in better words.
            return None
        except sqlite3.DatabaseError as error:
            return f"is damaged ({error})"

    # -- what is known

    def adopt(self, connection: sqlite3.Connection) -> None:
        """The store was verified, and is open from now on."""
        identifier = read_id(self.path)
        if identifier is None:
            # Another process has just made it, and has not checkpointed yet.
            row = connection.execute("SELECT id FROM penstock_store").fetchone()
            identifier = str(row[0])
        found, header = self.path.stat(), read_header(self.path)
        progress = read_progress(connection)
        if self._protected and self._known is not None:
            problem = _older(progress, self._known.progress)
            if problem is not None:
                self._refuse(problem)
        with self._lock:
            self._inode = (found.st_dev, found.st_ino)
            # A header that was not looked at yet.
            self._size, self._modified = found.st_size, 0
            known = StoreRecord(
                path=self._name,
                id=identifier,
                changes=0 if header is None else header.changes,
                progress=progress,
                inode=self._inode,
                protected=self._protected,
            )
            self._known = known.newer(self._known)
            self._opened = True

    def remember(self) -> None:
        """Write the record of a protected store, with what the disk has safely; may block.

        A record that cannot be written is logged once: the store is then protected while processes
        of this gateway run.
        """
        if not (self._protected and self._durable and self._record is not None):
            return
        try:
            self.check()
            known, progress = self._known, self._synced()
        except (sqlite3.Error, StorageUnavailable):
            # It was reported, or is locked: the record stays as it is until the next time.
            return
        if known is None or progress is None:
            return
        now = msgspec.structs.replace(known, progress=progress, inode=None, protected=True)
        try:
            with self._lock:
                before = read_record(self._record)
                now = now.newer(before)
                if now != before:
                    write_record(self._record, now)
        except (OSError, StorageUnavailable) as error:
            if not self._record_failed:
                _log.warning("the record of the store %s is not written: %s", self._name, error)
            self._record_failed = True
        else:
            self._record_failed = False

    def _synced(self) -> Progress | None:
        """What a power failure does not take back: a checkpoint waits for the disk."""
        with contextlib.closing(_connect(self.path, "rw")) as connection:
            progress = read_progress(connection)
            query = "PRAGMA wal_checkpoint(PASSIVE)"
            busy, frames, written = connection.execute(query).fetchone()
            return None if busy or frames != written else progress

    def handed_over(self) -> StoreRecord | None:
        """What another process of this gateway is to expect; None of a store that has no id yet."""
        with contextlib.suppress(PenstockError):
            self._expected()
        known = self._known
        if known is None:
            return None
        return msgspec.structs.replace(known, inode=self._inode, protected=self._protected)

    # -- refusals

    def _refuse(self, problem: str) -> None:
        self._report(problem)
        if self._protected:
            raise StorageUnavailable(
                f"the store {self._name} {problem}. It is protected, for the gateway has had keys, "
                f"an admin key or budgets. {_REMEDY if self._opened else _ACCEPT}",
                retry_after=RETRY_AFTER_S,
            )

    def _report(self, problem: str | None) -> None:
        """Log once what is wrong, and once that it is over."""
        with self._lock:
            before, self._reported = self._reported, problem
        if before == problem:
            return
        if problem is None:
            _log.warning("the store %s is back: requests are served again", self._name)
        elif self._protected:
            _log.error("the store %s %s: requests are refused with 503", self._name, problem)
        else:
            _log.error(
                "the store %s %s: what is spent from now on is not in the ledger", self._name, problem
            )


class StoreGuards:
    """One guard for each store of a process."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        durable: bool = False,
        expected: StoreRecord | None = None,
    ) -> None:
        """`folder` has the records; `durable` and `expected` are as for a guard."""
        self._folder = folder
        self._durable = durable
        self._expected = expected
        self._guards: dict[Path, StoreGuard] = {}

    def of(self, path: Path) -> StoreGuard:
        """The guard of the store at this path."""
        path = path.absolute()
        guard = self._guards.get(path)
        if guard is None:
            expected = self._expected
            guard = self._guards[path] = StoreGuard(
                path,
                None if self._folder is None else record_file(self._folder, path),
                durable=self._durable,
                expected=expected if expected and expected.path == str(path) else None,
            )
        return guard


def _older(found: Progress, expected: Progress) -> str | None:
    for name, now, before in zip(Progress._fields, found, expected, strict=True):
        if now < before:
            return f"was emptied or replaced by an older copy ({name}: {now}, known: {before})"
    return None


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=1.0, isolation_level=None)

