"""Finding the stored vectors nearest to one: the port, and the search that compares everything.

`index_sketch` misses a little and is faster from a thousand rows on; `index_graph` has searches
that miss more, and are faster above `MOST_COMPARED` rows.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

MOST_COMPARED = 20_000
"""Up to so many rows comparing all of them, or their sketches, is fast enough."""
_FIRST_ROWS = 64


class Found(NamedTuple):
    """Rows near a vector, in no order."""

    rows: NDArray[np.intp]
    similar: NDArray[np.float32]
    """The exact similarity of each."""
    vectors: NDArray[np.float32]
    """What each holds; not to be written to."""

    def best(self, number: int) -> Found:
        """The nearest of them."""
        others = len(self.rows) - number
        if others <= 0:
            return self
        at = np.argpartition(self.similar, others)[others:]
        return Found(self.rows.take(at), self.similar.take(at), self.vectors.take(at, 0))


class VectorIndex(Protocol):
    """Rows of vectors of length one; similarity is the cosine.

    An index lives in memory only, and is made again from the outcomes at every start.
    """

    def __len__(self) -> int:
        """How many rows are filled."""
        ...

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write a row: the next one, or one that exists, whose vector it replaces."""
        ...

    def search(self, vector: NDArray[np.float32], number: int) -> Found:
        """So many of the nearest rows, or all that there are; others may be among them."""
        ...

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        ...


class ExactIndex:
    """All rows are compared: nothing is missed, and up to a thousand rows nothing is faster."""

    def __init__(self, dimensions: int) -> None:
        """Small at first; grows with what is put into it."""
        self._rows = np.zeros((_FIRST_ROWS, dimensions), np.float32)
        self._count = 0

    def __len__(self) -> int:
        """How many rows are filled."""
        return self._count

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write the next row, or one that exists."""
        if not 0 <= row <= self._count:
            raise IndexError(f"row {row} of {self._count}: rows are filled one after the other")
        if row == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[row] = vector
        self._count = max(self._count, row + 1)

    def search(self, vector: NDArray[np.float32], number: int) -> Found:
        """The nearest rows."""
        filled = self._rows[: self._count]
        similar = filled @ vector
        if self._count <= number:
            return Found(np.arange(self._count), similar, filled)
        rows = np.argpartition(similar, self._count - number)[self._count - number :]
        return Found(rows, similar.take(rows), filled.take(rows, 0))

    def looked_at(self, rows: NDArray[np.intp], vector: NDArray[np.float32]) -> Found:
        """These rows, as a search for the vector finds them."""
        vectors = self._rows.take(rows, 0)
        return Found(rows, vectors @ vector, vectors)

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        return self._rows[rows] if isinstance(rows, int) else self._rows.take(rows, 0)
