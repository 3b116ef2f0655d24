"""How good each target will be for a prompt: learnt one outcome at a time.

An estimate begins with a linear model of the target (`linear`), which leans on what all targets
have in common. By how much better or worse it did on similar prompts than the model says corrects
it (`neighbours`). The target's mean as a beginning would not do: one that is asked the hard
questions has a bad mean, and would be thought of as bad.

Evidence ages: after `half_life` decisions an outcome counts half. That keeps up
with slow changes; a sudden one is noticed by its surprises (`drift`), and then almost all that
was known of that target is forgotten at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.contract.ports import Target
from penstock.routing.cost_model import Expected, Traffic
from penstock.routing.index.exact import VectorIndex
from penstock.routing.index.sketch import SketchIndex
from penstock.routing.learning import neighbours
from penstock.routing.learning.drift import Drift
from penstock.routing.learning.features import SIZE, SUMMARY, unit
from penstock.routing.learning.linear import BIAS_STRENGTH, Common, Heads, LinearHead, summarised
from penstock.routing.learning.neighbours import Neighbours
from penstock.routing.outcomes.outcome import Logged, Outcome
from penstock.routing.versions import predecessor

HALF_LIFE = 20_000
"""Decisions after which evidence counts half."""
UNKNOWN_QUALITY = 0.5
INHERITED = 0.5
"""The share of a predecessor's evidence that a new version begins with."""
AFTER_DRIFT = 20.0
"""So many observations are left of a target's evidence when it must have changed."""
_DEVIATION = 0.45
"""Of single scores, most of which are 0 or 1."""
_LOCAL = 0.05
"""How much doubt about one kind of prompt counts beside that about the target as a whole."""
_MOST_SCALE = 4.0
_MOST_HALVED = 1_000.0
"""Evidence that was halved so often is nothing; more, and floats overflow."""
SELDOM = 2.0
"""An outcome of a target that was unlikely to be chosen teaches the linear model up to so many
times as much. A target is chosen where it is thought of as better, which is where prompts are
harder than the model knows: without this it would be thought of as worse than it is."""
USUAL = 200
"""The mean of about so many prompts is what is usual."""
_SETTLED = 16
"""After so many observations all targets take in what they have in common."""


class Estimate(NamedTuple):
    """What is expected of one target for one prompt."""

    quality: float
    deviation: float
    """How far off that may be."""
    evidence: float
    """Observations of similar prompts behind it."""
    total: float
    """Observations of any prompts."""
    asked: float
    """The same as if they did not age: since it was first met, or changed."""
    usual: float
    """The quality that is expected for a usual prompt."""
    expected: Expected


class Learnt(NamedTuple):
    """A score as it was learnt."""

    score: float
    tick: int
    """The decision that its age counts from."""
    kept: float
    """How much was left of the target's evidence by then."""


class LearnerSettings(msgspec.Struct, frozen=True):
    """How a learner remembers."""

    capacity: int = neighbours.CAPACITY
    half_life: float = HALF_LIFE
    priors: Mapping[Target, float] = msgspec.field(default_factory=dict[Target, float])
    """Qualities known before; of others `UNKNOWN_QUALITY` is assumed."""


class _Known(NamedTuple):
    column: int
    head: LinearHead
    traffic: Traffic
    drift: Drift
    answered: bool = False
    """Whether there is any outcome of it."""


class Learner:
    """All that is known of the targets of a model; not for several threads at once."""

    def __init__(
        self,
        settings: LearnerSettings | None = None,
        index: Callable[[int], VectorIndex] = SketchIndex,
    ) -> None:
        """Nothing is known but the priors."""
        self._settings = settings or LearnerSettings()
        self._neighbours = Neighbours(SIZE, self._settings.capacity, index)
        self._targets: dict[Target, _Known] = {}
        self._common = Common()
        self._settled = self._common.weights.copy()
        self._heads = Heads.none()
        """By column."""
        self._asked: list[float] = []
        """By column too, ..."""
        self._kept: list[float] = []
        """... and how much is left of the evidence from the first on, after what was forgotten."""
        self._usual = np.zeros(SIZE, np.float32)
        """The mean of the prompts so far; old ones are forgotten."""
        self._observed = 0
        self._base = 0
        self.tick = 0
        """Decisions so far."""

    def estimates(
        self, features: NDArray[np.float32], prompt_tokens: int, targets: Sequence[Target]
    ) -> list[Estimate]:
        """What each of the targets will do, by what is known now."""
        known = [self._known(target) for target in targets]
        columns = [each.column for each in known]
        direction, scale = unit(features), self._scale
        heads = self._heads.of(columns)
        quality, usual = heads.means(direction), heads.means(self._usual).tolist()
        near = self._neighbours.near(direction, scale, columns)
        evidence = [0.0] * len(known)
        if near is not None:
            evidence = near.evidence.tolist()
            quality += near.correction(heads.means_of_sums(near.sums(SUMMARY), near.evidence))
        total: list[float] = self._neighbours.evidence(scale).take(columns).tolist()
        return [
            Estimate(
                min(1.0, max(0.0, q)),
                _deviation(n, t),
                n,
                t,
                self._asked[e.column],
                u,
                e.traffic.expected(prompt_tokens),
            )
            for q, n, t, u, e in zip(quality.tolist(), evidence, total, usual, known, strict=True)
        ]

    def learn(self, outcome: Outcome) -> Learnt | None:
        """Take in what became of a request; what is needed to correct its score, if it has one."""
        known = self._answered(outcome.target)
        known.traffic.add(
            outcome.prompt_tokens,
            cost_usd=outcome.cost_usd,
            output_tokens=outcome.output_tokens,
            latency_ms=outcome.latency_ms,
        )
        quality = outcome.quality
        if quality is None:
            return None
        if self._scale >= _MOST_SCALE:
            # Before anything is added: after a restart the first outcome may be of a late decision.
            self._rebase()
        tick = self.tick if outcome.logged is None else outcome.logged.tick
        weight = quality.weight * self._weighs(tick)
        if outcome.logged is not None and known.drift.add(
            quality.score - outcome.logged.predicted[0], quality.weight
        ):
            self._forget(known)
        direction = unit(outcome.features)
        self._neighbours.add(direction, known.column, quality.score, weight, given=outcome.given)
        known.head.add(
            summarised(direction), quality.score, weight * _balance(outcome.logged), self._common
        )
        self._asked[known.column] += quality.weight
        self._observed += 1
        self._usual += (direction - self._usual) * np.float32(1 / min(self._observed, USUAL))
        if self._observed % _SETTLED == 0:
            self._settle()
        else:
            self._lean(known)
        return Learnt(quality.score, tick, self._kept[known.column])

    def correct(self, outcome: Outcome, learnt: Learnt) -> Learnt:
        """Let a score that was learnt be this one: another sum, and no more evidence.

        It counts as much as what was learnt still does. When the prompt is not remembered any more,
        only the linear model is corrected.
        """
        quality, known = outcome.quality, self._known(outcome.target)
        if quality is None:
            return learnt
        left = self._kept[known.column] / learnt.kept if learnt.kept else 0.0
        by = left * quality.weight * self._weighs(learnt.tick) * (quality.score - learnt.score)
        direction = unit(outcome.features)
        self._neighbours.correct(direction, known.column, by)
        known.head.correct(summarised(direction), by * _balance(outcome.logged), self._common)
        self._lean(known)
        return learnt._replace(score=quality.score)

    def expected(self, target: Target, prompt_tokens: int) -> Expected:
        """What an answer of a target takes, by what its earlier ones took."""
        return self._known(target).traffic.expected(prompt_tokens)

    def evidence(self, target: Target) -> float:
        """How many observations of a target still count."""
        return float(self._neighbours.evidence(self._scale)[self._known(target).column])

    def __len__(self) -> int:
        """How many prompts are remembered."""
        return len(self._neighbours)

    @property
    def _scale(self) -> float:
        return self._weighs(self.tick)

    def _weighs(self, tick: int) -> float:
        """What evidence of a decision weighs, beside that of when all was last brought to scale."""
        halved = (tick - self._base) / self._settings.half_life
        return 2.0 ** min(_MOST_HALVED, max(-_MOST_HALVED, halved))

    def _known(self, target: Target) -> _Known:
        found = self._targets.get(target)
        if found is None:
            found = self._targets[target] = self._meet(target)
        return found

    def _answered(self, target: Target) -> _Known:
        """A target with an outcome; with the first it inherits anew what there is by then.

        When it was first asked about is known to nobody after a restart, and its outcomes are.
        """
        known = self._known(target)
        if not known.answered:
            parent = self._parent(target)
            if parent is not None:
                known = self._inherit(known, parent)
            known = self._targets[target] = known._replace(answered=True)
        return known

    def _meet(self, target: Target) -> _Known:
        head = LinearHead(self._settings.priors.get(target, UNKNOWN_QUALITY))
        self._heads = self._heads.met()
        self._asked.append(0.0)
        self._kept.append(1.0)
        known = _Known(self._neighbours.add_target(), head, Traffic(), Drift())
        parent = self._parent(target)
        if parent is not None:
            return self._inherit(known, parent)
        self._lean(known)
        return known

    def _parent(self, target: Target) -> _Known | None:
        """The version before it, of those that have any outcome; it may be configured no more."""
        answered = [each for each, known in self._targets.items() if known.answered]
        older = predecessor(target, answered)
        return None if older is None else self._targets[older]

    def _inherit(self, known: _Known, parent: _Known) -> _Known:
        # What is common has learnt from its predecessor already.
        known = known._replace(head=parent.head.child(INHERITED, known.head.prior))
        self._neighbours.inherit(known.column, parent.column, INHERITED)
        self._lean(known)
        return known

    def _lean(self, known: _Known) -> None:
        known.head.lean(self._settled)
        self._heads.put(known.column, known.head)

    def _forget(self, known: _Known) -> None:
        evidence = float(self._neighbours.evidence(self._scale)[known.column])
        factor = min(1.0, AFTER_DRIFT / max(evidence, 1.0))
        self._neighbours.rescale(factor, known.column)
        known.head.rescale(factor)
        self._asked[known.column] = 0.0
        self._kept[known.column] *= factor
        self._again()

    def _rebase(self) -> None:
        factor = 1 / self._scale
        self._base = self.tick
        self._neighbours.rescale(factor)
        for known in self._targets.values():
            known.head.rescale(factor)
        self._again()

    def _again(self) -> None:
        # In an order that does not depend on when each target was first heard of.
        named = sorted(self._targets.items(), key=lambda item: (item[0].provider, item[0].model))
        self._common.rebuild(known.head for _, known in named)
        self._settle()

    def _settle(self) -> None:
        self._settled = self._common.weights.copy()
        for known in self._targets.values():
            self._lean(known)


def _balance(logged: Logged | None) -> float:
    return 1.0 if logged is None else min(SELDOM, 1 / max(logged.propensity, 1e-3))


def _deviation(near: float, total: float) -> float:
    overall = 1 / (total + BIAS_STRENGTH)
    local = _LOCAL * _LOCAL / (near + neighbours.SHRINK)
    return _DEVIATION * (overall + local) ** 0.5
