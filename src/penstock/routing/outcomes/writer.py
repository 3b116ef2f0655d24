"""The one thread that writes outcomes: what gathers within half a second is one transaction.

Nobody who is served waits for it. The queue is bounded; when the file cannot be written for so long
that it fills, what comes is dropped. That, and a batch that could not be written, is logged once
until writing works again, and counted.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.contract.errors import PenstockError
from penstock.routing.outcomes.ports import KEPT, KEPT_IN_ALL, Label, Served
from penstock.routing.outcomes.retention import prune
from penstock.routing.outcomes.rows import write_label, write_served
from penstock.routing.outcomes.schema import WHAT, open_to_write
from penstock.storage.sqlite.connect import Synchronous, patiently
from penstock.storage.sqlite.errors import concerns_the_file, translated
from penstock.storage.sqlite.guard import StoreGuard

_log = logging.getLogger(__name__)
GATHERED_S = 0.5
"""How long the first of a batch may wait for others."""
MOST_AT_ONCE = 500
"""Rows of one transaction: the ledger's own may have to wait for it."""
MOST_WAITING = 20_000
"""Rows that wait to be written; more are dropped. At 2 kB of features each that is 50 MB."""
PATIENCE_S = 10.0
"""How long a label waits for its outcome, which another process may be about to write."""
PRUNED_EVERY = 1000
"""Outcomes between two looks at whether there are too many."""


class Given(NamedTuple):
    """A label that was given here, and until when it waits for its outcome."""

    label: Label
    isolated: bool
    until: float


Item: TypeAlias = Served | Given | threading.Event | None
"""What is queued: something to write, somebody who waits until all before is written, the end."""


class Writer:
    """Writes in the order in which it was given things; opens the file with the first."""

    def __init__(
        self,
        path: Path,
        worker: str,
        guard: StoreGuard,
        *,
        synchronous: Synchronous = "normal",
        keep: int = KEPT,
        keep_in_all: int = KEPT_IN_ALL,
        most_waiting: int = MOST_WAITING,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """No thread and no file before there is something to write."""
        self._path = path
        self._worker = worker
        self._guard = guard
        self._synchronous: Synchronous = synchronous
        self._keep = (keep, keep_in_all)
        self._patience_s = patience_s
        self._items: queue.Queue[Item] = queue.Queue()
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[Given] = []
        """Labels whose outcome is not there yet."""
        self._since_pruned = PRUNED_EVERY
        self._told_full = self._told_failure = False
        self.dropped = 0
        """What did not fit into the queue."""
        self.lost = 0
        """What could not be written."""
        self.refused = 0
        """Labels of keys that had no say, or of requests that nobody knows."""

    def put(self, item: Served | Label, *, isolated: bool = False) -> None:
        """Take something to write; never waits."""
        if isinstance(item, Label):
            self._put(Given(item, isolated, time.monotonic() + self._patience_s))
        else:
            self._put(item)

    def flush(self) -> None:
        """Return when all that was put before is written, or lost."""
        done = threading.Event()
        with self._lock:
            if self._thread is None:
                return
            self._items.put(done)
        done.wait()

    def close(self) -> None:
        """Write what is left, and end; what is put afterwards is dropped."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                self._items.put(None)
        if thread is not None:
            thread.join()

    def _put(self, item: Served | Given) -> None:
        with self._lock:
            if self._closed or self._items.qsize() >= self._most_waiting:
                self.dropped += 1
                if not self._told_full:
                    self._told_full = True
                    why = "it is closed" if self._closed else f"{self._most_waiting} wait already"
                    _log.warning("%s %s takes no more outcomes: %s", WHAT, self._path, why)
                return
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="routing-memory", daemon=True
                )
                self._thread.start()
            self._items.put(item)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            batch, askers, goes_on = self._gather()
            if batch or self._waiting:
                self._write(batch, last=not goes_on)
            for asker in askers:
                asker.set()
        self._disconnect()

    def _gather(self) -> tuple[list[Served | Given], list[threading.Event], bool]:
        """What comes within the time from the first; less when somebody waits or it is the end."""
        batch: list[Served | Given] = []
        # Labels that wait are tried again even when nothing else comes.
        deadline = time.monotonic() + GATHERED_S if self._waiting else None
        while len(batch) < MOST_AT_ONCE:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            try:
                item = self._items.get(timeout=left)
            except queue.Empty:
                break
            if item is None:
                return batch, [], False
            if isinstance(item, threading.Event):
                return batch, [item], True
            batch.append(item)
            deadline = deadline or time.monotonic() + GATHERED_S
        return batch, [], True

    def _write(self, batch: Sequence[Served | Given], *, last: bool) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._write_together([*batch, *waiting])
        except PenstockError as error:
            self.lost += len(batch) + len(waiting)
            self._waiting = []
            self._disconnect()
            if not self._told_failure:
                self._told_failure = True
                _log.warning("outcomes of requests are lost, and routing does not learn: %s", error)
            return
        self._told_failure = self._told_full = False
        if last:
            self.refused += len(self._waiting)
        self._prune(sum(isinstance(item, Served) for item in batch))

    def _write_together(self, batch: Sequence[Served | Given]) -> None:
        self._guard.verify()
        connection = self._connection = self._connection or self._connect()
        before = len(self._waiting)
        try:
            patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                for item in batch:
                    self._write_one(connection, item)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        # Strings that are no text and numbers that are too large are not SQLite's own errors.
        except (sqlite3.Error, ValueError, OverflowError, TypeError) as error:
            del self._waiting[before:]
            if isinstance(error, sqlite3.Error) and concerns_the_file(error):
                raise translated(error, self._path, WHAT) from error
            if len(batch) > 1:
                # One of them cannot be written; the others need not suffer for it.
                for item in batch:
                    self._write_together([item])
                return
            self.lost += 1
            _log.warning("an outcome cannot be kept, and routing does not learn from it: %s", error)

    def _write_one(self, connection: sqlite3.Connection, item: Served | Given) -> None:
        if isinstance(item, Served):
            write_served(connection, item, self._worker)
            return
        written = write_label(connection, item.label, self._worker, isolated=item.isolated)
        if written == "unknown" and time.monotonic() < item.until:
            self._waiting.append(item)
        elif written != "written":
            self.refused += 1

    def _prune(self, written: int) -> None:
        self._since_pruned += written
        if self._since_pruned < PRUNED_EVERY or self._connection is None:
            return
        self._since_pruned = 0
        try:
            prune(self._connection, self._path, *self._keep)
        except PenstockError as error:
            _log.warning("old outcomes could not be removed: %s", error)

    def _connect(self) -> sqlite3.Connection:
        return open_to_write(self._path, self._synchronous, self._guard)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
