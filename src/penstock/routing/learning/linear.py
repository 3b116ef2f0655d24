"""Quality by what a prompt is like: a Bayesian linear model for each target, and one of them all.

What makes a prompt hard is hard for every target. So each target's weights are held near weights
that they have in common, which every outcome teaches, whoever answered: a target that is never
asked the hard questions is not thought of as good at them.

An observation is a rank-one update of the target's matrix, and by that a rank-one update of the
common one: the weights stay those of ridge regression in two levels over all that was seen,
exactly, without anything being kept but the matrices. Evidence ages as everywhere in routing: a new
observation weighs more than the old ones, and now and then all is brought back to scale, by which
the belief of before the first observation gets its full strength again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.routing.learning.features import SUMMARY

RIDGE = 300.0
"""How strongly a target's weights are held near the common ones: in observations, for a feature of
length one."""
COMMON_RIDGE = 20.0
"""How strongly the common ones are held near zero; of the mean nothing is common."""
BIAS_STRENGTH = 30.0
"""The same for the target's mean, which is free to move."""
SIZE = SUMMARY.stop - SUMMARY.start + 1
_BIAS = np.float32((RIDGE / BIAS_STRENGTH) ** 0.5)


def summarised(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features that the model takes, and a constant for the mean."""
    out = np.empty(SIZE, np.float32)
    out[0] = _BIAS
    out[1:] = vector[SUMMARY]
    return out


class Heads(NamedTuple):
    """The models of some targets, one row each, in the form that computes."""

    slopes: NDArray[np.float32]
    offsets: NDArray[np.float32]

    @classmethod
    def none(cls) -> Heads:
        """Of no target."""
        return cls(np.zeros((0, SIZE - 1), np.float32), np.zeros(0, np.float32))

    def met(self) -> Heads:
        """With a row for one more target."""
        slopes = np.concatenate([self.slopes, np.zeros((1, SIZE - 1), np.float32)])
        return Heads(slopes, np.append(self.offsets, np.float32(0)))

    def put(self, row: int, head: LinearHead) -> None:
        """Write a target's model."""
        self.slopes[row] = head.weights[1:]
        self.offsets[row] = head.prior + _BIAS * head.weights[0]

    def of(self, rows: Sequence[int]) -> Heads:
        """Those of some targets."""
        return Heads(self.slopes.take(rows, 0), self.offsets.take(rows))

    def means(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The quality that each expects of a vector."""
        return self.slopes @ vector[SUMMARY] + self.offsets

    def means_of_sums(
        self, sums: NDArray[np.float32], numbers: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What each expects of its so many vectors, whose summarised parts add up to `sums`.

        The same as the sum of what it expects of each, and much less to compute.
        """
        return np.einsum("ij,ij->i", sums, self.slopes) + numbers * self.offsets


class Common:
    """The weights that the models of all targets have in common."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.weights = np.zeros(SIZE, np.float32)
        self._covariance = np.eye(SIZE, dtype=np.float32) / np.float32(COMMON_RIDGE)
        self._covariance[0, 0] = 0.0

    def add(self, along: NDArray[np.float32], gain: float, surprise: float) -> None:
        """One more observation of a target, by what it did to that target's own matrix."""
        toward = self._covariance @ along
        strength = RIDGE * RIDGE * gain
        share = 1 / (1 + strength * float(along @ toward))
        step = RIDGE * gain * surprise - strength * float(along @ self.weights)
        self.weights += toward * np.float32(step * share)
        self._covariance -= np.outer(toward * np.float32(strength * share), toward)

    def correct(self, step: NDArray[np.float32]) -> None:
        """Follow a step of one target's own weights that no observation more is behind."""
        self.weights += self._covariance @ step * np.float32(RIDGE)

    def rebuild(self, heads: Iterable[LinearHead]) -> None:
        """Begin again from what the targets know by themselves."""
        precision = COMMON_RIDGE * np.eye(SIZE)
        evidence = np.zeros(SIZE)
        for head in heads:
            precision += RIDGE * (np.eye(SIZE) - RIDGE * head.covariance.astype(np.float64))
            evidence += RIDGE * head.own.astype(np.float64)
        covariance = np.linalg.inv((precision + precision.T)[1:, 1:] / 2)
        self._covariance[1:, 1:] = covariance
        self.weights[1:] = covariance @ evidence[1:]


class LinearHead:
    """One target's weights, and how sure they are."""

    def __init__(self, prior: float) -> None:
        """`prior` is the quality that was known before."""
        self.prior = prior
        self.own: NDArray[np.float32] = np.zeros(SIZE, np.float32)
        """The weights as they would be without anything in common."""
        self.weights: NDArray[np.float32] = self.own.copy()
        self.covariance = np.eye(SIZE, dtype=np.float32) / np.float32(RIDGE)

    def add(
        self,
        features: NDArray[np.float32],
        score: float,
        weight: float,
        common: Common | None = None,
    ) -> None:
        """One more observation, which teaches what is common too; `weight` is of its day."""
        along = self.covariance @ features
        gain = 1 / (1 / weight + float(features @ along))
        surprise = score - self.prior - float(self.own @ features)
        self.own += along * np.float32(gain * surprise)
        self.covariance -= np.outer(along * np.float32(gain), along)
        if common is not None:
            common.add(along, gain, surprise)

    def correct(self, features: NDArray[np.float32], by: float, common: Common) -> None:
        """Add to the score of an observation that was there; `by` times what it weighs."""
        step = self.covariance @ features * np.float32(by)
        self.own += step
        common.correct(step)

    def lean(self, common: NDArray[np.float32]) -> None:
        """Make the weights those that are held near these common ones."""
        toward = self.covariance @ common
        self.weights = (self.own + toward * np.float32(RIDGE)).astype(np.float32)

    def rescale(self, factor: float) -> None:
        """Let the evidence weigh so many times what it does, and what was known before as ever."""
        precision = np.linalg.inv(self.covariance.astype(np.float64))
        evidence = precision @ self.own
        ridge = RIDGE * np.eye(SIZE)
        kept = factor * (precision - ridge) + ridge
        # Rounding makes it slightly lopsided with time.
        covariance = np.linalg.inv((kept + kept.T) / 2)
        self.own = (covariance @ (factor * evidence)).astype(np.float32)
        self.covariance = covariance.astype(np.float32)

    def child(self, share: float, prior: float) -> LinearHead:
        """A model with a prior of its own that begins with a share of this one's evidence."""
        born = LinearHead(prior)
        born.own = self.own.copy()
        born.covariance = self.covariance.copy()
        # Scores are kept as differences from the prior. What they have added up to along the
        # constant tells how many there were of each feature.
        precision = np.linalg.inv(self.covariance.astype(np.float64))
        seen = (precision - RIDGE * np.eye(SIZE))[:, 0] / _BIAS
        born.own += (self.covariance @ ((self.prior - prior) * seen)).astype(np.float32)
        born.rescale(share)
        return born
