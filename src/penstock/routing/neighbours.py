"""Quality by what happened to similar prompts: a soft and shrunk mean over the nearest of them.

Prompts are rows. Each holds, for every target, how much evidence there is and what it adds up to;
outcomes of the same prompt share a row. An estimate weighs the nearest rows by their similarity
and adds some evidence for the target's mean, which itself starts at what was known before: with
few neighbours it says what is true of the target in general, which never misleads.

The number of rows is bounded. When all are taken, the row with the least evidence left gives it to
the row nearest to it, and its place to the new prompt: memory keeps what counts, and recent things.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.routing.index import ExactIndex, VectorIndex

CAPACITY = 4_096
"""Rows; compared exactly, in about a fifth of a millisecond."""
NEAREST = 200
SOFTNESS = 0.1
"""By so much less similarity a row counts e times less."""
SHRINK = 5.0
"""So many observations of the target's mean are added to those of the neighbours."""
PRIOR_STRENGTH = 10.0
"""So many observations is what was known before worth."""
STRANGE = 0.3
"""A nearest row below this similarity, and all others with it, counts less."""
SAME = 0.999
"""Two prompts at least so similar are one."""


class Near(NamedTuple):
    """What the neighbourhood says, one number a target."""

    mean: NDArray[np.float64]
    evidence: NDArray[np.float64]
    """Observations near the prompt, each counted by how near and how recent it is."""
    overall: NDArray[np.float64]
    """The mean of each target over all prompts."""


class Neighbours:
    """The memory of prompts; columns are targets, in the order in which they are added."""

    def __init__(
        self,
        dimensions: int,
        capacity: int = CAPACITY,
        index: Callable[[int], VectorIndex] = ExactIndex,
    ) -> None:
        """`index` is called with the number of dimensions."""
        self._index = index(dimensions)
        self._capacity = capacity
        self._weight = np.zeros((64, 0), np.float32)
        self._score = np.zeros((64, 0), np.float32)
        self._total_weight = np.zeros(0)
        self._total_score = np.zeros(0)
        self._priors = np.zeros(0)

    def __len__(self) -> int:
        """How many prompts are remembered."""
        return len(self._index)

    def add_target(self, prior: float) -> int:
        """Make a column for a target of which this quality was known before; its number."""
        column = self._weight.shape[1]
        empty = np.zeros((len(self._weight), 1), np.float32)
        self._weight = np.concatenate([self._weight, empty], 1)
        self._score = np.concatenate([self._score, empty], 1)
        self._total_weight = np.append(self._total_weight, 0.0)
        self._total_score = np.append(self._total_score, 0.0)
        self._priors = np.append(self._priors, prior)
        return column

    def near(self, direction: NDArray[np.float32], scale: float) -> Near:
        """What similar prompts say of every target; `scale` is what evidence of today weighs."""
        overall = self._means(scale)
        if not len(self._index):
            return Near(overall, np.zeros(len(overall)), overall)
        rows, similar = self._index.search(direction, NEAREST)
        closeness = np.exp((similar - max(STRANGE, float(similar.max()))) / SOFTNESS)
        evidence = (closeness @ self._weight[rows]) / scale
        score = (closeness @ self._score[rows]) / scale
        mean = (score + SHRINK * overall) / (evidence + SHRINK)
        return Near(mean, evidence.astype(np.float64), overall)

    def add(
        self, direction: NDArray[np.float32], column: int, score: float, weight: float
    ) -> None:
        """One more observation; `weight` is on the scale of its day."""
        row = self._row_for(direction)
        self._weight[row, column] += weight
        self._score[row, column] += weight * score
        self._total_weight[column] += weight
        self._total_score[column] += weight * score

    def rescale(self, factor: float, column: int | None = None) -> None:
        """Let all evidence, or that of one target, weigh so many times what it does."""
        which = slice(None) if column is None else slice(column, column + 1)
        for array in (self._weight, self._score):
            array[:, which] *= np.float32(factor)
        self._total_weight[which] *= factor
        self._total_score[which] *= factor

    def evidence(self, scale: float) -> NDArray[np.float64]:
        """How many observations of each target still count."""
        return self._total_weight / scale

    def inherit(self, column: int, parent: int, share: float) -> None:
        """Let a target begin with a share of another's evidence."""
        for array in (self._weight, self._score):
            array[:, column] += np.float32(share) * array[:, parent]
        for total in (self._total_weight, self._total_score):
            total[column] += share * total[parent]
        self._priors[column] = self._priors[parent]

    def _means(self, scale: float) -> NDArray[np.float64]:
        weight = self._total_weight / scale
        known = self._priors * PRIOR_STRENGTH
        return (self._total_score / scale + known) / (weight + PRIOR_STRENGTH)

    def _row_for(self, direction: NDArray[np.float32]) -> int:
        count = len(self._index)
        if count:
            rows, similar = self._index.search(direction, 1)
            if float(similar[0]) >= SAME:
                return int(rows[0])
        row = count if count < self._capacity else self._evict()
        if row == len(self._weight):
            self._weight = np.concatenate([self._weight, np.zeros_like(self._weight)])
            self._score = np.concatenate([self._score, np.zeros_like(self._score)])
        self._index.put(row, direction)
        return row

    def _evict(self) -> int:
        count = len(self._index)
        row = int(self._weight[:count].sum(1).argmin())
        rows, similar = self._index.search(self._index.vector(row), 2)
        others = [(float(s), int(r)) for r, s in zip(rows, similar, strict=True) if r != row]
        if others:
            heir = max(others)[1]
            self._weight[heir] += self._weight[row]
            self._score[heir] += self._score[row]
        self._weight[row] = 0
        self._score[row] = 0
        return row
