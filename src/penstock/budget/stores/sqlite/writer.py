"""The one thread that writes: what has gathered meanwhile goes into one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from penstock.budget.ports import Told
from penstock.budget.stores.sqlite.transaction import Books
from penstock.contract.errors import PenstockError, StorageUnavailable
from penstock.storage.sqlite.connect import BUSY_LIMIT_S
from penstock.storage.sqlite.errors import concerns_the_file, is_busy, translated, unavailable
from penstock.storage.sqlite.guard import StoreGuard

_log = logging.getLogger(__name__)
MOST_AT_ONCE = 256
"""Operations after which a transaction takes no more: it would only make the first of them wait."""
GATHER_FROM = 8
"""While so many holds are open, operations wait for company: what a transaction costs by itself is
several times what one operation adds to it."""
_TURNS_EACH, _MOST_TURNS = 4, 8
"""They wait for turns of the event loop, one for so many open holds: in each it takes up what else
has arrived, and when nothing has, turns take no time. Sleeping would leave the machine idle."""
_LINGER_S = 0.02
"""So long an operation that nobody waits for may wait for others."""
_LOCKED_S = 1.0
"""How long a transaction waits for a file that was locked for the whole time of the last one: what
is asked for meanwhile would otherwise wait for both."""
_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class Operation(Protocol[_T_co]):
    """Something to be written; it raises PenstockError before it has written anything."""

    def run(self, books: Books) -> _T_co:
        """Within a transaction, together with others."""
        ...


class _Job(msgspec.Struct, eq=False):
    operation: Operation[Any]
    loop: asyncio.AbstractEventLoop
    told: Told[Any] | None = None
    future: asyncio.Future[Any] | None = None
    """None: nobody waits."""
    result: Any = None
    error: Exception | None = None

    def deliver(self) -> None:
        future, error = self.future, self.error
        # Only whoever waits can have ended it before.
        cancelled = future is not None and future.cancelled()
        if self.told is not None:
            try:
                self.told(self.result if error is None else error, cancelled)
            except Exception:  # noqa: BLE001 - others of the same transaction wait behind it
                _log.exception("what follows %s failed", type(self.operation).__name__)
        if future is None or cancelled:
            return
        if error is None:
            future.set_result(self.result)
        else:
            future.set_exception(error)


class Writer:
    """Takes operations from any event loop, and runs them in order in a thread of its own."""

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], guard: StoreGuard
    ) -> None:
        """`connect` is called in the thread, which begins with `start`.

        `guard` is asked before each transaction.
        """
        self._path = path
        self._guard = guard
        self._failing = False
        self._locked = False
        self._connect = connect
        self._jobs: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._later: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._books: Books | None = None
        self._closed = False
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Open the file; raises what is wrong with it."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        opening = _Job(_Nothing(), loop, None, opened)
        self._thread = threading.Thread(
            target=self._run, args=(opening,), name="penstock-ledger", daemon=True
        )
        self._thread.start()
        try:
            await opened
        except asyncio.CancelledError:
            self.end()
            raise

    def submit(self, operation: Operation[_T], told: Told[_T] | None = None) -> asyncio.Future[_T]:
        """Begin; the future belongs to the running event loop."""
        loop = self._running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        job = _Job(operation, loop, told, future)
        with self._lock:
            if self._closed:
                raise self._is_closed()
            gathered = self._gathered.get(loop)
            if gathered is not None:
                gathered.append(job)
            else:
                self._begin(loop, job)
        return future

    def submit_soon(self, operation: Operation[_T], told: Told[_T]) -> None:
        """The same where nobody waits for it, so that it may wait a moment for what is next.

        So a request by itself costs one transaction, and not two.
        """
        loop = self._running_loop()
        job = _Job(operation, loop, told)
        with self._lock:
            if self._closed:
                raise self._is_closed()
            gathered = self._gathered.get(loop)
            if gathered is not None:
                gathered.append(job)
            else:
                self._linger(loop, job)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            # No loop runs in a child before it starts one.
            self._check_process()
            raise

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise PenstockError(
                f"the ledger {self._path} was opened before this process was forked: open it in "
                "each process"
            )

    def _is_closed(self) -> PenstockError:
        return PenstockError(f"the ledger {self._path} is closed: open it again")

    def _linger(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        later = self._later.get(loop)
        if later is None:
            self._check_process()
            self._take_from_the_closed()
            self._later[loop] = [job]
            loop.call_later(_LINGER_S, self._end_lingering, loop)
        elif len(later) < MOST_AT_ONCE:
            later.append(job)
        else:
            self._jobs.put([*self._later.pop(loop), job])

    def _end_lingering(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if (later := self._later.pop(loop, None)) is not None:
                self._jobs.put(later)

    def _begin(self, loop: asyncio.AbstractEventLoop, job: _Job) -> None:
        self._check_process()
        self._take_from_the_closed()
        jobs = [*self._later.pop(loop, ()), job]
        open_holds = self._books.open_holds if self._books is not None else 0
        if open_holds < GATHER_FROM:
            self._jobs.put(jobs)
        else:
            self._gathered[loop] = jobs
            turns = min(open_holds // _TURNS_EACH, _MOST_TURNS)
            loop.call_soon(self._wait_for_company, loop, turns)

    def _take_from_the_closed(self) -> None:
        """What waits for an event loop that takes no more turns."""
        for waiting in (self._gathered, self._later):
            for loop in [each for each in waiting if each.is_closed()]:
                self._jobs.put(waiting.pop(loop))

    async def catch_up(self) -> None:
        """Return when all that was submitted has been written, or has failed."""
        with contextlib.suppress(PenstockError):
            await self.submit(_Nothing())

    def _wait_for_company(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        if turns > 1:
            loop.call_soon(self._wait_for_company, loop, turns - 1)
            return
        with self._lock:
            if (gathered := self._gathered.pop(loop, None)) is not None:
                self._jobs.put(gathered)

    async def aclose(self) -> None:
        """Write everything that was submitted, and close the file."""
        self.end()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def end(self) -> None:
        """Take nothing more, and let the thread end behind what was submitted."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for waiting in (self._gathered, self._later):
                    while waiting:
                        self._jobs.put(waiting.popitem()[1])
                self._jobs.put(None)

    def _run(self, opening: _Job) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001 - it is told to whoever opens
            opening.error = translated(error, self._path)
            with self._lock:
                self._closed = True
            _deliver([opening])
            return
        _deliver([opening])
        try:
            books = self._books = Books(connection, self._path, self._guard)
            while self._write_next(books):
                pass
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _write_next(self, books: Books) -> bool:
        """One transaction; False when the end was asked for."""
        some = self._jobs.get()
        jobs: list[_Job] = []
        while some is not None:
            jobs += some
            if len(jobs) >= MOST_AT_ONCE:
                break
            try:
                some = self._jobs.get_nowait()
            except queue.Empty:
                break
        if jobs:
            self._write(books, jobs)
            _deliver(jobs)
        return some is not None

    def _write(self, books: Books, jobs: Sequence[_Job]) -> None:
        try:
            self._guard.check()
            books.begin(_LOCKED_S if self._locked else BUSY_LIMIT_S)
            for job in jobs:
                job.error = None
                try:
                    job.result = job.operation.run(books)
                except PenstockError as error:
                    job.error = error
            books.commit()
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            with contextlib.suppress(sqlite3.Error):
                books.rollback()
            everyone = isinstance(error, StorageUnavailable) or (
                isinstance(error, sqlite3.Error) and concerns_the_file(error)
            )
            if len(jobs) == 1 or everyone:
                for job in jobs:
                    job.error = unavailable(error, self._path)
            else:
                # One of them cannot be written; the others need not suffer for it.
                for job in jobs:
                    self._write(books, [job])
            self._locked = isinstance(error, sqlite3.Error) and is_busy(error)
            # What the guard refuses, it logs itself.
            if everyone and isinstance(error, sqlite3.Error) and not self._failing:
                self._failing = True
                _log.error("what needs the ledger is refused: %s", jobs[0].error)
        else:
            self._locked = False
            if self._failing:
                self._failing = False
                _log.warning("the ledger %s is written again", self._path)


class _Nothing:
    def run(self, books: Books) -> None:
        """Stands for the opening."""


def _deliver(jobs: Sequence[_Job]) -> None:
    """Wake each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, own in by_loop.items():
        # A loop that was closed meanwhile has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, own)


def _wake(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.deliver()
