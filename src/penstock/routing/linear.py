"""Quality by what a prompt is like: a Bayesian linear model for each target.

An observation is a rank-one update: the weights stay those of ridge regression over all that was
seen, exactly, without anything being kept but one matrix. Evidence ages as everywhere in routing:
a new observation weighs more than the old ones, and now and then all is brought back to scale, by
which the belief of before the first observation gets its full strength again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.routing.features import SUMMARY

RIDGE = 100.0
"""How strongly weights are held near zero: in observations, for a feature of length one."""
BIAS_STRENGTH = 10.0
"""The same for the target's mean, which is free to move."""
SIZE = SUMMARY.stop - SUMMARY.start + 1
_BIAS = np.float32((RIDGE / BIAS_STRENGTH) ** 0.5)


def summarised(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features that the model takes, and a constant for the mean."""
    out = np.empty(SIZE, np.float32)
    out[0] = _BIAS
    out[1:] = vector[SUMMARY]
    return out


def means(
    vectors: NDArray[np.float32], weights: NDArray[np.float32], priors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The expected quality of rows of vectors, or of one, by models with these weights, as rows."""
    found = vectors[..., SUMMARY] @ weights[:, 1:].T
    return (found + (priors + _BIAS * weights[:, 0])).astype(np.float32)


class LinearHead:
    """One target's weights, and how sure they are."""

    def __init__(self, prior: float) -> None:
        """`prior` is the quality that was known before."""
        self.prior = prior
        self.weights = np.zeros(SIZE, np.float32)
        self._covariance = np.eye(SIZE, dtype=np.float32) / np.float32(RIDGE)

    def mean(self, features: NDArray[np.float32]) -> float:
        """The expected quality of an answer to such a prompt."""
        return self.prior + float(self.weights @ features)

    def add(self, features: NDArray[np.float32], score: float, weight: float) -> None:
        """One more observation; `weight` is on the scale of its day."""
        along = self._covariance @ features
        gain = along / np.float32(1 / weight + float(features @ along))
        self.weights += gain * np.float32(score - self.mean(features))
        self._covariance -= np.outer(gain, along)

    def rescale(self, factor: float) -> None:
        """Let the evidence weigh so many times what it does, and what was known before as ever."""
        precision = np.linalg.inv(self._covariance.astype(np.float64))
        evidence = precision @ self.weights
        ridge = RIDGE * np.eye(SIZE)
        kept = factor * (precision - ridge) + ridge
        # Rounding makes it slightly lopsided with time.
        covariance = np.linalg.inv((kept + kept.T) / 2)
        self.weights = (covariance @ (factor * evidence)).astype(np.float32)
        self._covariance = covariance.astype(np.float32)

    def child(self, share: float) -> LinearHead:
        """A model that begins with a share of this one's evidence."""
        born = LinearHead(self.prior)
        born.weights = self.weights.copy()
        born._covariance = self._covariance.copy()
        born.rescale(share)
        return born
