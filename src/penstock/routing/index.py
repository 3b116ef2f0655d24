"""Finding the stored vectors nearest to one: the port, and the exact search for small memories.

`index_graph` has searches that miss a little and are faster above `EXACT_ROWS`; `index_file` keeps
the rows of any index in a file.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

EXACT_ROWS = 20_000
"""Up to so many rows comparing all of them is fast enough."""
_FIRST_ROWS = 64


class VectorIndex(Protocol):
    """Rows of vectors of length one; similarity is the cosine.

    An index is a cache: it can be made again from the outcomes at any time.
    """

    def __len__(self) -> int:
        """How many rows are filled."""
        ...

    def put(self, row: int, vector: NDArray[np.float32]) -> None:
        """Write a row: the next one, or one that exists, whose vector it replaces."""
        ...

    def search(
        self, vector: NDArray[np.float32], most: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The nearest rows, in no order, and their similarities."""
        ...

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        ...


class ExactIndex:
    """All rows are compared: nothing is missed, and up to some thousand rows nothing is faster."""

    def __init__(self, dimensions: int, rows: NDArray[np.float32] | None = None) -> None:
        """Small at first, or with these rows; grows with what is put into it."""
        empty = np.zeros((_FIRST_ROWS, dimensions), np.float32)
        self._rows = empty if rows is None or not len(rows) else rows
        self._count = 0 if rows is None else len(rows)

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

    def search(
        self, vector: NDArray[np.float32], most: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The nearest rows, in no order, and their similarities."""
        similar = self._rows[: self._count] @ vector
        if self._count <= most:
            return np.arange(self._count), similar
        rows = np.argpartition(similar, self._count - most)[self._count - most :]
        return rows, similar[rows]

    def vectors(self, rows: NDArray[np.intp] | int) -> NDArray[np.float32]:
        """What was put there."""
        return self._rows[rows]
