"""Quality by what happened to similar prompts: a soft and shrunk mean over the nearest of them.

Prompts are rows. Each holds, for every target, how much evidence there is and what it adds up to;
outcomes of the same prompt share a row. The nearest rows, weighed by their similarity, correct what
is expected of a target by how much better or worse it did there. Some evidence without any surprise
is added, so that few neighbours correct little, which never misleads; without any but the surprise
of all targets together, for where all do badly, one that was not asked would too.

The number of rows is bounded. When all are taken, the row with the least evidence left gives it to
the row nearest to it, and its place to the new prompt: memory keeps what counts, and recent things.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.routing.index.exact import VectorIndex
from penstock.routing.index.sketch import SketchIndex

CAPACITY = 4_096
"""Rows; more of them make a decision longer."""
NEAREST = 160
SOFTNESS = 0.1
"""By so much less similarity a row counts e times less."""
SHRINK, SHRINK_GIVEN = 50.0, 10.0
"""So many observations with the surprise of all targets are added to each target's own: more where
it was chosen by what was thought of it, for luck then decides what is seen of it next, ..."""
SHRINK_COMMON = 25.0
"""... and so many without any to that of all targets."""
STRANGE = 0.3
"""A nearest row below this similarity, and all others with it, counts less."""


class Near(NamedTuple):
    """The neighbours of a prompt, one row each."""

    rows: NDArray[np.float32]
    """Their vectors."""
    counted: NDArray[np.float32]
    """The evidence that each has, by target, as it counts: by how near it is and how old."""
    evidence: NDArray[np.float32]
    """The same for all of them together: observations of each target near the prompt."""
    score: NDArray[np.float32]
    """What that evidence adds up to."""
    shrink: NDArray[np.float32]
    """How much of what all have in common is added to it."""

    def sums(self, part: slice) -> NDArray[np.float32]:
        """A part of the vectors, added up for each target as its evidence counts."""
        return (self.counted.T @ self.rows[:, part]).astype(np.float32, copy=False)

    def correction(self, expected: NDArray[np.float32]) -> NDArray[np.float32]:
        """By how much each target was better here than expected of all its evidence together."""
        surprise = self.score - expected
        held = self.evidence + self.shrink
        # Of each target the share that is not its own; what is common is what these shares tell.
        shrunk = self.shrink / held
        common = (surprise @ shrunk) / (self.evidence @ shrunk + np.float32(SHRINK_COMMON))
        return (surprise / held + common * shrunk).astype(np.float32, copy=False)


class Neighbours:
    """The memory of prompts; columns are targets, in the order in which they are added."""

    def __init__(
        self,
        dimensions: int,
        capacity: int = CAPACITY,
        index: Callable[[int], VectorIndex] = SketchIndex,
    ) -> None:
        """`index` is called with the number of dimensions."""
        self._index = index(dimensions)
        self._capacity = capacity
        self._weight = np.zeros((64, 0), np.float32)
        self._score = np.zeros((64, 0), np.float32)
        self._mass = np.zeros(64, np.float32)
        self._row_of: dict[bytes, int] = {}
        self._digests: list[bytes] = []
        self._total_weight = np.zeros(0)
        self._total_given = np.zeros(0)
        self._shrink = np.zeros(0, np.float32)

    def __len__(self) -> int:
        """How many prompts are remembered."""
        return len(self._index)

    def add_target(self) -> int:
        """Make a column for a target; its number."""
        column = self._weight.shape[1]
        empty = np.zeros((len(self._weight), 1), np.float32)
        self._weight = np.concatenate([self._weight, empty], 1)
        self._score = np.concatenate([self._score, empty], 1)
        self._total_weight = np.append(self._total_weight, 0.0)
        self._total_given = np.append(self._total_given, 0.0)
        self._shrink = np.append(self._shrink, np.float32(SHRINK))
        return column

    def near(
        self, direction: NDArray[np.float32], scale: float, columns: Sequence[int]
    ) -> Near | None:
        """The prompts most like this one; `scale` is what evidence of today weighs.

        `columns` are those of the targets in question.
        """
        if not len(self._index):
            return None
        rows, similar, vectors = self._index.search(direction, NEAREST)
        closeness = np.exp((similar - max(STRANGE, similar.max())) * np.float32(1 / SOFTNESS))
        others = len(rows) - NEAREST
        if others > 0:
            closeness[np.argpartition(similar, others)[:others]] = 0
        closeness *= np.float32(1 / scale)
        weight, score, shrink = self._weight.take(rows, 0), self._score.take(rows, 0), self._shrink
        if list(columns) != list(range(weight.shape[1])):
            # In the same layout: else the order of columns would change the last digit of sums.
            weight, score = weight.take(columns, 1), score.take(columns, 1)
            shrink = shrink.take(columns)
        return Near(
            vectors, closeness[:, None] * weight, closeness @ weight, closeness @ score, shrink
        )

    def add(
        self,
        direction: NDArray[np.float32],
        column: int,
        score: float,
        weight: float,
        *,
        given: bool = False,
    ) -> None:
        """One more observation; `weight` is on the scale of its day.

        One is `given` where the target was not chosen by what was thought of it.
        """
        row = self._row_for(direction)
        self._weight[row, column] += weight
        self._score[row, column] += weight * score
        self._mass[row] += weight
        self._total_weight[column] += weight
        if given:
            self._total_given[column] += weight
        self._weigh(column)

    def correct(self, direction: NDArray[np.float32], column: int, by: float) -> None:
        """Add to the scores of a prompt, if it is remembered still."""
        row = self._row_of.get(_digest(direction))
        if row is not None:
            self._score[row, column] += by

    def rescale(self, factor: float, column: int | None = None) -> None:
        """Let all evidence, or that of one target, weigh so many times what it does."""
        which = slice(None) if column is None else slice(column, column + 1)
        for array in (self._weight, self._score):
            array[:, which] *= np.float32(factor)
        self._mass = self._weight.sum(1)
        self._total_weight[which] *= factor
        self._total_given[which] *= factor

    def evidence(self, scale: float) -> NDArray[np.float64]:
        """How many observations of each target still count."""
        return self._total_weight / scale

    def inherit(self, column: int, parent: int, share: float) -> None:
        """Let a target have a share of another's evidence, and none else."""
        for array in (self._weight, self._score):
            array[:, column] = np.float32(share) * array[:, parent]
        self._mass = self._weight.sum(1)
        for total in (self._total_weight, self._total_given):
            total[column] = share * total[parent]
        self._weigh(column)

    def _weigh(self, column: int) -> None:
        given = self._total_given[column] / max(1e-9, self._total_weight[column])
        self._shrink[column] = SHRINK + given * (SHRINK_GIVEN - SHRINK)

    def _row_for(self, direction: NDArray[np.float32]) -> int:
        # Looked up, not searched for: nearly the same prompt may have a row of its own.
        digest = _digest(direction)
        found = self._row_of.get(digest)
        if found is not None:
            return found
        count = len(self._index)
        if count < self._capacity:
            row = count
            self._digests.append(digest)
            if row == len(self._mass):
                self._weight = np.concatenate([self._weight, np.zeros_like(self._weight)])
                self._score = np.concatenate([self._score, np.zeros_like(self._score)])
                self._mass = np.concatenate([self._mass, np.zeros_like(self._mass)])
        else:
            row = self._evict()
            del self._row_of[self._digests[row]]
            self._digests[row] = digest
        self._row_of[digest] = row
        self._index.put(row, direction)
        return row

    def _evict(self) -> int:
        row = int(self._mass[: len(self._index)].argmin())
        rows, similar, _ = self._index.search(self._index.vectors(row), 2)
        similar = np.where(rows == row, -np.inf, similar)
        if len(rows) > 1:
            heir = rows[similar.argmax()]
            for array in (self._weight, self._score, self._mass):
                array[heir] += array[row]
        for array in (self._weight, self._score, self._mass):
            array[row] = 0
        return row


def _digest(direction: NDArray[np.float32]) -> bytes:
    return blake2b(direction.tobytes(), digest_size=16).digest()
