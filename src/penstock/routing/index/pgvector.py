"""An index whose graph is in PostgreSQL, for gateways that remember much and share their outcomes.

**Shared** is the graph: processes that name the same memory write their rows into one table, each
row once, and find them there after a restart without making the graph again. **Not shared** is what
counts: which rows there are, their numbers and the evidence of each come from the outcomes, which
every process reads by itself. The table is a cache of that.

**Nobody waits for the database to search here.** The newest rows are compared in the process; what
the table knows of older ones is asked for before, by `prepare`, and taken if it came.

A row is known to others by its digest, not by its number, for each process may count otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from penstock.routing.index.exact import ExactIndex, Found

_PREPARED = 256
"""Searches that are prepared at once; of more, the first are made without the table."""


class PgvectorIndex:
    """Rows in this process, and what the table still lacks of them; not for several threads.

    No vector is in two rows: whoever puts them sees to that.
    """

    def __init__(self, memory: str, dimensions: int, recent: int) -> None:
        """`memory` is the name of these rows in the table; `recent` rows are compared here."""
        self.memory = memory
        self.compared = False
        """Whether it is known what the table holds; `lacks` is all rows until then."""
        self._recent = recent
        self._rows = ExactIndex(dimensions)
        self._names: list[bytes] = []
        self._row_of: dict[bytes, int] = {}
        self._near: _Newest | None = None
        self._unwritten: dict[bytes, bool] = {}
        self._prepared: OrderedDict[bytes, Sequence[bytes]] = OrderedDict()

    def __len__(self) -> int:
        """How many rows are filled."""
        return len(self._rows)

    @property
    def outgrown(self) -> bool:
        """Whether there are rows that only the table can find."""
        return len(self) > self._recent

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write the next row, or one that exists; the table gets it later."""
        self._rows.put(row, vector)
        if self.outgrown:
            if self._near is None:
                self._near = _Newest(self._rows.vectors(np.arange(self._recent)))
            self._near.put(row, vector)
        name = digest(vector)
        if row == len(self._names):
            self._names.append(name)
        elif (before := self._names[row]) != name:
            self._names[row] = name
            if self._row_of.get(before) == row:
                del self._row_of[before]
                self._unwritten[before] = False
        if name not in self._row_of:
            self._unwritten[name] = True
        self._row_of[name] = row

    def search(self, vector: NDArray[np.float32], number: int) -> Found:
        """The nearest rows: of the newest, and of those that were prepared."""
        if self._near is None:
            return self._rows.search(vector, number)
        rows = self._near.search(vector, number)
        prepared = self._prepared.get(digest(vector), ())
        older = [row for name in prepared if (row := self._row_of.get(name)) is not None]
        rows = np.union1d(rows, np.asarray(older, np.intp))
        return self._rows.looked_at(rows, vector).best(number)

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        return self._rows.vectors(rows)

    def prepare(self, vector: NDArray[np.float32], names: Sequence[bytes]) -> None:
        """Have the next search for this vector consider the rows with these names, too."""
        self._prepared[digest(vector)] = names
        if len(self._prepared) > _PREPARED:
            self._prepared.popitem(last=False)

    def compare_anew(self) -> None:
        """Take the table for empty, until it is told what it holds."""
        self.compared = False
        self._unwritten = dict.fromkeys(self._row_of, True)

    def found(self, names: Iterable[bytes]) -> list[bytes]:
        """Hear that the table holds these; those of them that it should not hold."""
        strange: list[bytes] = []
        for name in names:
            if name not in self._row_of:
                strange.append(name)
            elif self._unwritten.get(name):
                del self._unwritten[name]
        return strange

    def lacks(self, most: int) -> list[tuple[bytes, NDArray[np.float32] | None]]:
        """Some of what is to be written to the table, or, without a vector, to be deleted."""
        part = islice(self._unwritten.items(), most)
        # Copies: a row may be replaced while it is sent.
        return [
            (name, self._rows.vectors(self._row_of[name]).copy() if kept else None)
            for name, kept in part
        ]

    def written(self, change: Iterable[tuple[bytes, NDArray[np.float32] | None]]) -> None:
        """Hear that this is done; what was decided otherwise meanwhile is still to be done."""
        for name, vector in change:
            if self._unwritten.get(name) is (vector is not None):
                del self._unwritten[name]


class _Newest:
    """The rows that were put last, side by side."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        """These are the first; as many are kept."""
        self._most = len(vectors)
        self._vectors = ExactIndex(vectors.shape[1])
        for row, vector in enumerate(vectors):
            self._vectors.put(row, vector)
        self._row_at = np.arange(self._most)
        self._place_of = {row: row for row in range(self._most)}
        self._next = 0

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Keep a row where it is, or in the place of the one that came first."""
        place = self._place_of.get(row)
        if place is None:
            place = self._next
            self._next = (place + 1) % self._most
            del self._place_of[int(self._row_at[place])]
            self._place_of[row] = place
            self._row_at[place] = row
        self._vectors.put(place, vector)

    def search(self, vector: NDArray[np.float32], number: int) -> NDArray[np.intp]:
        """The nearest of them."""
        return self._row_at[self._vectors.search(vector, number).rows]


def digest(vector: NDArray[np.float32]) -> bytes:
    """What a row is known by."""
    return blake2b(np.ascontiguousarray(vector, "<f4").tobytes(), digest_size=16).digest()
