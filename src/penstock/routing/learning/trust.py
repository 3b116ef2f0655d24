"""Whether what was learnt is better than the configured order, judged by what really happened.

Every decision logs how likely its target was to be chosen. From that, what *another* way to choose
would have earned can be estimated without having chosen so (the doubly robust estimate): what the
estimates expect of its choice, corrected by the surprise whenever its choice is what happened, the
more the less likely that was. It is right when either the estimates or the likelihoods are.
"""

from __future__ import annotations

import msgspec

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Logged, Outcome

ENOUGH = 200
"""Labelled outcomes without which nothing is decided, and between two verdicts: looked at after
every single one, chance alone would soon give any verdict."""
MEMORY = 3_000
"""Labelled outcomes after which one counts e times less."""
_KEEP = 1 - 1 / MEMORY
SURE = 2.6
"""Standard errors above nothing that take over; as many below give back."""
_LEAST = 0.005
"""A propensity below this counts as this: one outcome must not decide."""


class Verdict(msgspec.Struct, frozen=True):
    """What is known of the gain over the configured order."""

    in_force: bool
    gain: float
    """Utility a request."""
    error: float
    """Its standard error."""
    outcomes: int


class Evidence:
    """Decides between advice and force; starts with advice, unless told otherwise."""

    def __init__(self, *, in_force: bool = False) -> None:
        """Nothing has been seen; `in_force`: whatever will be seen, what is learnt is followed."""
        self._always = self._in_force = in_force
        self._outcomes = 0
        self._weight = self._squares = self._sum = self._sum_squares = 0.0

    @property
    def in_force(self) -> bool:
        """Whether the learned order is the one that is used."""
        return self._in_force

    @property
    def outcomes(self) -> int:
        """Labelled outcomes so far."""
        return self._outcomes

    def add(self, outcome: Outcome) -> None:
        """One more labelled outcome of a request that was decided here."""
        if outcome.quality is None or outcome.logged is None:
            return
        gain = gained(outcome.logged, outcome.target, outcome.quality.score)
        weight = outcome.quality.weight
        self._outcomes += 1
        self._weight = self._weight * _KEEP + weight
        self._squares = self._squares * _KEEP * _KEEP + weight * weight
        self._sum = self._sum * _KEEP + weight * gain
        self._sum_squares = self._sum_squares * _KEEP + weight * gain * gain
        if self._always or self._outcomes % ENOUGH:
            return
        verdict = self.verdict()
        if abs(verdict.gain) > SURE * verdict.error:
            self._in_force = verdict.gain > 0

    def correct(self, outcome: Outcome, before: float, at: int) -> None:
        """Let the score of an outcome that was added be another one; `at` is how many there were.

        It counts as much as what it was still does.
        """
        if outcome.quality is None or outcome.logged is None:
            return
        weight = outcome.quality.weight * _KEEP ** (self._outcomes - at)
        was = gained(outcome.logged, outcome.target, before)
        now = gained(outcome.logged, outcome.target, outcome.quality.score)
        self._sum += weight * (now - was)
        self._sum_squares += weight * (now * now - was * was)

    def verdict(self) -> Verdict:
        """What has been found so far."""
        if not self._weight:
            return Verdict(self._in_force, 0.0, 0.0, 0)
        mean = self._sum / self._weight
        variance = max(0.0, self._sum_squares / self._weight - mean * mean)
        error = (variance * self._squares) ** 0.5 / self._weight
        return Verdict(self._in_force, mean, error, self._outcomes)


def gained(logged: Logged, target: Target, score: float) -> float:
    """By how much more utility the learned choice is estimated to earn than the configured one."""
    at, learned, static = logged.predicted
    _, spent_learned, spent_static = logged.spent
    if logged.learned == logged.static:
        return 0.0
    gain = logged.intelligence * (learned - static) - (spent_learned - spent_static)
    surprise = logged.intelligence * (score - at) / max(_LEAST, logged.propensity)
    if target == logged.learned:
        return gain + surprise
    return gain - surprise if target == logged.static else gain
