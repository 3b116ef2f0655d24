"""The rows of memories in a table of PostgreSQL with pgvector, where several gateways find them.

Rows are written beside the requests. A search has a time limit, and takes a connection that is free
or does without. After a failure the server is left alone for a while, and not asked again before it
has taken all rows and found some in time: so whoever routes pays for a failure once. Vectors have
half the precision there, for only their order counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.routing.index.pgvector import PgvectorIndex
from penstock.routing.index.pgvector_setup import (
    NoTableError,
    described,
    failures,
    need_packages,
    open_connection,
    table_of,
)
from penstock.routing.learning.features import unit
from penstock.routing.learning.neighbours import CAPACITY, NEAREST

if TYPE_CHECKING:
    from penstock.routing.index.pgvector_setup import Connection

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

SEARCHERS = 4
"""Searches that one process makes at once."""
ROWS_AT_ONCE = 50
"""Rows that are written in one transaction."""
NAMES_AT_ONCE = 2_000
ROWS_TO_PLAN = 1_000
"""After so many new rows the server looks again at how many there are."""


class Limits(msgspec.Struct, frozen=True):
    """How long things may take, in seconds."""

    connect_s: float = 5.0
    search_s: float = 0.1
    """How long a request waits at most."""
    write_s: float = 30.0
    rest_s: float = 15.0
    """How long a server that has failed is left alone."""


class PgvectorTable:
    """The rows of all memories of an engine; for one event loop."""

    def __init__(
        self, url: str, dimensions: int, limits: Limits | None = None, recent: int = CAPACITY
    ) -> None:
        """Nothing is connected to yet; raises ConfigurationError when packages are missing.

        The newest `recent` rows of each memory are compared in this process, which takes as long as
        a search in a memory of the usual size.
        """
        need_packages()
        self._failures = (NoTableError, *failures())
        self._url = url
        self._dimensions = dimensions
        self._name = table_of(dimensions)
        self._limits = limits or Limits()
        self._recent = recent
        self._made: dict[str, PgvectorIndex] = {}
        self._current: dict[str, PgvectorIndex] = {}
        self._writer: Connection | None = None
        self._searchers: set[Connection] = set()
        self._free: list[Connection] = []
        self._turn = asyncio.Lock()
        self._sharing: asyncio.Task[bool] | None = None
        self._down = self._closed = False
        self._rested_at = 0.0

    def index(self, memory: str) -> PgvectorIndex:
        """A new index for the memory of this name, in the place of the one before."""
        made = self._made[memory] = PgvectorIndex(memory, self._dimensions, self._recent)
        return made

    async def prepare(self, memory: str, features: NDArray[np.float32]) -> None:
        """Have the next search for these features find what is in the table, if it answers."""
        index = self._current.get(memory)
        free = (each for each in self._free if not each.is_closed())
        connection = next(free, None)
        if index is None or not index.outgrown or connection is None:
            return
        self._free.remove(connection)
        direction = unit(features)
        try:
            names = await self._find(connection, memory, direction, self._limits.search_s)
        except BaseException as error:
            # Also when whoever asks went away: nobody knows what is still to be read from it.
            connection.terminate()
            self._searchers.discard(connection)
            if not isinstance(error, self._failures):
                raise
            self._failed(error)
            return
        self._free.append(connection)
        index.prepare(direction, names)

    def share_soon(self) -> None:
        """Have the table follow the indexes, which know all outcomes now; never waits."""
        self._current = dict(self._made)
        if self._closed or time.monotonic() < self._rested_at:
            return
        if self._sharing is not None:
            if not self._sharing.done():
                return
            self._sharing.result()
        self._sharing = asyncio.create_task(self._share())

    async def share(self) -> bool:
        """Return when the table has followed them; whether it could."""
        self._current = dict(self._made)
        return await self._share()

    async def aclose(self) -> None:
        """Leave the table as it is."""
        self._closed = True
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.wait((self._sharing,))
        self._disconnect()

    async def _share(self) -> bool:
        async with self._turn:
            try:
                await self._share_now()
            except self._failures as error:
                self._failed(error)
                return False
        if self._down:
            self._down = False
            _log.info("[routing] index_url answers again")
        return True

    async def _share_now(self) -> None:
        writer = self._writer
        if writer is None or writer.is_closed():
            writer = self._writer = await self._connect()
            for index in self._current.values():
                index.compared = False
        for index in tuple(self._current.values()):
            await self._follow(writer, index)
        await self._open_searchers()

    def _failed(self, error: Exception) -> None:
        self._rested_at = time.monotonic() + self._limits.rest_s
        self._disconnect()
        if not self._down:
            self._down = True
            _log.warning(
                "[routing] index_url: %s. Until it answers, models are routed by the newest %d "
                "prompts of their memory; it is tried again every %g s",
                described(error),
                self._recent,
                self._limits.rest_s,
            )

    def _disconnect(self) -> None:
        for connection in (self._writer, *self._searchers):
            if connection is not None:
                connection.terminate()
        self._writer = None
        self._searchers.clear()
        self._free.clear()

    async def _connect(self) -> Connection:
        return await open_connection(self._url, self._dimensions, self._limits.connect_s)

    async def _open_searchers(self) -> None:
        """As many as there should be, each of which has shown that it finds rows in time."""
        self._searchers = {each for each in self._searchers if not each.is_closed()}
        self._free = [each for each in self._free if not each.is_closed()]
        large = next((each for each in self._current.values() if each.outgrown), None)
        while large is not None and len(self._searchers) < SEARCHERS:
            connection = await self._connect()
            self._searchers.add(connection)
            # The first search also plans.
            for within_s in (self._limits.connect_s, self._limits.search_s):
                await self._find(connection, large.memory, large.vectors(0), within_s)
            self._free.append(connection)

    async def _find(
        self, connection: Connection, memory: str, vector: NDArray[np.float32], within_s: float
    ) -> Sequence[bytes]:
        query = f"SELECT digest FROM {self._name} WHERE memory = $1 ORDER BY vector <=> $2 LIMIT $3"
        found = await _within(within_s, connection.fetch(query, memory, vector, NEAREST))
        return [each["digest"] for each in found]

    async def _follow(self, connection: Connection, index: PgvectorIndex) -> None:
        """Write and delete until the table is like the index, or another index is current."""
        if not index.compared:
            await self._compare(connection, index)
        wrote = 0
        while self._current[index.memory] is index and (change := index.lacks(ROWS_AT_ONCE)):
            await _within(self._limits.write_s, self._change(connection, index.memory, change))
            index.written(change)
            wrote += len(change)
        if wrote >= ROWS_TO_PLAN:
            # Otherwise the server thinks the memory small, and compares all its rows.
            analyze = connection.execute(f"ANALYZE {self._name}")
            await _within(self._limits.write_s, analyze)

    async def _compare(self, connection: Connection, index: PgvectorIndex) -> None:
        """Find out what the table holds, and delete what it should not: that was forgotten."""
        query = (
            f"SELECT digest FROM {self._name} WHERE memory = $1 AND digest > $2 "
            f"ORDER BY digest LIMIT {NAMES_AT_ONCE}"
        )
        index.compare_anew()
        last = b""
        while True:
            rows = await _within(self._limits.write_s, connection.fetch(query, index.memory, last))
            if not rows:
                break
            names: list[bytes] = [each["digest"] for each in rows]
            last = names[-1]
            strange = [(name, None) for name in index.found(names)]
            await _within(self._limits.write_s, self._change(connection, index.memory, strange))
        index.compared = True

    async def _change(
        self,
        connection: Connection,
        memory: str,
        change: Sequence[tuple[bytes, NDArray[np.float32] | None]],
    ) -> None:
        # In one order everywhere, so that no two who write wait for each other.
        ordered = sorted(change, key=itemgetter(0))
        async with connection.transaction():
            await connection.executemany(
                f"INSERT INTO {self._name} (memory, digest, vector) VALUES ($1, $2, $3) "
                "ON CONFLICT DO NOTHING",
                [(memory, name, vector) for name, vector in ordered if vector is not None],
            )
            await connection.execute(
                f"DELETE FROM {self._name} WHERE memory = $1 AND digest = ANY($2)",
                memory,
                [name for name, vector in ordered if vector is None],
            )


async def _within(seconds: float, work: Awaitable[_T]) -> _T:
    async with asyncio.timeout(seconds):
        return await work
