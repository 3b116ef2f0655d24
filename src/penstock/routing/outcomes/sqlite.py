"""The memory of routing in an SQLite file, which several processes of one machine may share."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from penstock.contract.errors import InvalidRequest, Problem
from penstock.routing.outcomes import queries, retention
from penstock.routing.outcomes.ports import (
    KEPT,
    KEPT_IN_ALL,
    REPLAYED,
    Counts,
    Events,
    Forgotten,
    Label,
    Remembered,
    Served,
)
from penstock.routing.outcomes.schema import asked, open_to_write
from penstock.routing.outcomes.writer import MOST_WAITING, PATIENCE_S, Writer
from penstock.storage.sqlite.connect import Synchronous
from penstock.storage.sqlite.guard import StoreGuard

_T = TypeVar("_T")
_NO_EVENTS = Events((), 0, more=False, generation=0)


class SqliteOutcomes:
    """An `OutcomeStore`; it may be used by several threads.

    `served` and `labelled` only queue; a thread writes. Everything else blocks for as long as the
    disk takes: call it in a thread of its own where others are served.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "normal",
        keep: int = KEPT,
        keep_in_all: int = KEPT_IN_ALL,
        replayed: int = REPLAYED,
        most_waiting: int = MOST_WAITING,
        patience_s: float = PATIENCE_S,
        guard: StoreGuard | None = None,
    ) -> None:
        """Nothing is opened or made before it is needed; `guard` refuses an unexpected file.

        Of each model the newest `keep` outcomes are kept, of all together `keep_in_all`; `replayed`
        events of each model are given again after a restart. Up to `most_waiting` rows wait to be
        written. A label waits `patience_s` for an outcome that another process may be writing.
        """
        self.path = path
        self.worker = secrets.token_hex(8)
        """What tells what this process has written from what others have."""
        self._replayed = replayed
        self._floors: queries.Floors = {}
        self._keep = (keep, keep_in_all)
        self._synchronous: Synchronous = synchronous
        self.guard = guard or StoreGuard(path)
        self._writer = Writer(
            path,
            self.worker,
            self.guard,
            synchronous=synchronous,
            keep=keep,
            keep_in_all=keep_in_all,
            most_waiting=most_waiting,
            patience_s=patience_s,
        )

    def served(self, served: Served) -> None:
        """Keep what became of a request, soon."""
        self._writer.put(served)

    def labelled(self, label: Label, *, isolated: bool = False) -> None:
        """Keep how good an answer was, soon; raises InvalidRequest for a score that is none.

        `isolated`: only when it is an answer to this very key. A label of an unknown request waits
        for it for some seconds, and is then dropped.
        """
        score = label.quality.score
        if not 0 <= score <= 1:
            problem = f"{score} is not a score; give a number from 0 (useless) to 1 (perfect)"
            raise InvalidRequest.of([Problem("score", problem)])
        self._writer.put(label, isolated=isolated)

    def flush(self) -> None:
        """Return when all that was given so far is committed, or lost."""
        self._writer.flush()

    def events(self, after: int = 0, most: int = 1000, *, made_by: str | None = None) -> Events:
        """What there is to learn after this cursor, in the order of the commits."""

        def read(connection: sqlite3.Connection) -> Events:
            if after <= 0:
                # They hold for all of the replay: looked up again, they would be higher each time.
                self._floors = queries.read_floors(connection, self._replayed)
            return queries.read_events(
                connection,
                after,
                most,
                made_by=made_by,
                floors=self._floors,
                worker=self.worker,
            )

        return self._ask(read, _NO_EVENTS)

    def find(self, request_id: str) -> Sequence[Remembered]:
        """The outcomes of a request in their order, those included that are about to be written."""
        self.flush()
        return self._ask(lambda connection: queries.read_request(connection, request_id), ())

    def counts(self) -> Counts:
        """How much there is in the file."""
        return self._ask(queries.read_counts, Counts())

    def forget(self, *, key: str | None = None, before: float | None = None) -> Forgotten:
        """Delete what this key has asked and said, what is older, or what is both.

        What other processes have served in the last half second may be written after that.
        """
        self.flush()
        with self._writing() as connection:
            return retention.forget(connection, self.path, key=key, before=before)

    def prune(self) -> int:
        """Delete what is too much; the thread that writes does that by itself now and then."""
        with self._writing() as connection:
            return retention.prune(connection, self.path, *self._keep)

    def close(self) -> None:
        """Write what is left, and take nothing more."""
        self._writer.close()

    @property
    def dropped(self) -> int:
        """How much was not taken, for too much was waiting or it was closed."""
        return self._writer.dropped

    @property
    def lost(self) -> int:
        """How much could not be written."""
        return self._writer.lost

    @property
    def refused(self) -> int:
        """How many labels came from keys that had no say, or for requests that nobody knows."""
        return self._writer.refused

    def _ask(self, question: Callable[[sqlite3.Connection], _T], nothing: _T) -> _T:
        self.guard.verify()
        return asked(self.path, question, nothing)

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        connection = open_to_write(self.path, self._synchronous, self.guard)
        try:
            yield connection
        finally:
            connection.close()
