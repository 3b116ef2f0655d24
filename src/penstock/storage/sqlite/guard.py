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

from penstock.contract.errors import ConfigurationError, PenstockError, StorageUnavailable
from penstock.storage.sqlite.errors import RETRY_AFTER_S
from penstock.storage.sqlite.identity import (
    Progress,
    get_mark,
    has_wal,
    raise_mark,
    read_mark,
    read_progress,
)
from penstock.storage.sqlite.record import StoreRecord, read_record, record_file, write_record

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
        self._remembered: Progress | None = None
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
        """Look at a file that a checkpoint, or something else, has written."""
        # Before the mark: another worker writes the record after it has marked the file.
        recorded = self._read_record()
        mark, known = read_mark(self.path), self._known
        if known is not None:
            known = known.newer(recorded)
        if mark is None:
            # In the middle of a checkpoint it cannot be read either, and does not become smaller.
            if found.st_size < self._size:
                # What SQLite has in memory does not fit the file any more, whatever is put there.
                self._damage = "was truncated or overwritten while it was open"
        elif known is not None and (mark.id != known.id or mark.synced < known.synced):
            self._damage = "was overwritten by another one while it was open"
        else:
            self._size, self._modified = found.st_size, found.st_mtime_ns
            if known is not None:
                self._known = msgspec.structs.replace(known, synced=mark.synced)
        return self._damage is not None

    def _read_record(self) -> StoreRecord | None:
        with contextlib.suppress(StorageUnavailable):
            return None if self._record is None else read_record(self._record)
        return None

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
        if not found.st_size:
            return "was replaced by an empty file"
        mark = read_mark(self.path)
        if mark is None:
            return "is not a store, or is damaged"
        if mark.id != expected.id:
            return "was replaced by another store"
        if mark.synced < expected.synced:
            return f"was replaced by an older copy (mark {mark.synced}, known: {expected.synced})"
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
        # Another process may have made the store just now, and not have checkpointed yet.
        mark = read_mark(self.path) or get_mark(connection)
        if mark is None:
            self._refuse("has lost its id")
            return
        found = self.path.stat()
        progress = read_progress(connection)
        if self._protected and self._known is not None:
            problem = _older(progress, self._known.progress)
            if problem is not None:
                self._refuse(problem)
        with self._lock:
            self._inode = (found.st_dev, found.st_ino)
            # Not looked at yet.
            self._size, self._modified = found.st_size, 0
            known = StoreRecord(
                path=self._name,
                id=mark.id,
                synced=mark.synced,
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
            synced = self._synced()
        except (sqlite3.Error, StorageUnavailable):
            # It was reported, or is locked: the record stays as it is until the next time.
            return
        if synced is None:
            return
        try:
            with self._lock:
                now = synced.newer(read_record(self._record))
                write_record(self._record, now)
        except (OSError, StorageUnavailable) as error:
            if not self._record_failed:
                _log.warning("the record of the store %s is not written: %s", self._name, error)
            self._record_failed = True
        else:
            self._record_failed = False
            self._remembered = now.progress

    def _synced(self) -> StoreRecord | None:
        """What a power failure does not take back, for a checkpoint waits for the disk."""
        with contextlib.closing(_connect(self.path, "rw")) as connection:
            progress = read_progress(connection)
            if progress == self._remembered:
                return None
            # In one transaction: a mark that another process raises after the checkpoint is not in
            # the main file yet, and the record must not name it.
            connection.execute("BEGIN IMMEDIATE")
            raise_mark(connection)
            mark = get_mark(connection)
            connection.execute("COMMIT")
            query = "PRAGMA wal_checkpoint(PASSIVE)"
            busy, frames, written = connection.execute(query).fetchone()
        if busy or frames != written or mark is None:
            # Something is in the way: the next time will do.
            return None
        return StoreRecord(path=self._name, id=mark.id, synced=mark.synced, progress=progress)

    def accept(self) -> str:
        """Take what is at the path as this store, and return what that is.

        Raises ConfigurationError when a `-wal` file of the lost store may be applied to it.
        """
        if self._record is None:
            raise ConfigurationError("this store has no record: there is nothing to accept")
        with contextlib.suppress(StorageUnavailable):
            self._expected()
        problem = None
        if self._known is not None:
            problem = self._difference(self._known)
        if problem is not None and has_wal(self.path):
            raise ConfigurationError(
                f"{self._name}-wal lies beside the store and may belong to the one that was lost; "
                "SQLite would mix them. Move it to where that store is, or, if it belongs to this "
                f'one, run: sqlite3 {self._name} "PRAGMA wal_checkpoint(TRUNCATE)"'
            )
        self._record.unlink(missing_ok=True)
        mark = read_mark(self.path)
        if mark is None:
            return "no store: the next start makes an empty one, without keys, budgets or history"
        with contextlib.closing(_connect(self.path, "ro")) as connection:
            progress = read_progress(connection)
        return f"a store with {progress.entries:,} entries and {progress.key_rows} keys"

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
                "the store %s %s: what is spent from now on is not in the ledger",
                self._name,
                problem,
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
