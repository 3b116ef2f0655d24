"""The router that learns: features, estimates, a choice, and what became of it.

It decides and takes in outcomes without waiting for anything; who stores outcomes gives them to
`learn` again after a restart, in their order, and all is as it was, but for the age of what has no
decision of ours: it counts from the last one before it that has a label.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.contract.ports import Target
from penstock.routing.cost_model import Expected
from penstock.routing.index.exact import VectorIndex
from penstock.routing.index.sketch import SketchIndex
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.model import Estimate, Learner, LearnerSettings, Learnt
from penstock.routing.learning.trust import Evidence, Verdict
from penstock.routing.outcomes.outcome import Logged, Outcome
from penstock.routing.selection import FLOOR, NOISE, Choice, Offer, Weights, choose

MOST_LABELS = 20_000
"""How so many labels were learnt is remembered: an older one that is changed counts once more."""
MOST_KEYS = 64
"""With isolation, so many keys are remembered; the one that is unused for longest is forgotten."""


class RoutingSettings(msgspec.Struct, frozen=True):
    """How the router learns and tries."""

    learner: LearnerSettings = msgspec.field(default_factory=LearnerSettings)
    floor: float = FLOOR
    noise: float = NOISE
    isolated: bool = False
    """Whether each key learns from its own outcomes only."""
    in_force: bool = False
    """Whether what is learnt is followed always, with and without evidence that it helps."""
    seed: int | None = None
    """Identical seeds make identical decisions; None for dice of the system."""


class Decided(msgspec.Struct, frozen=True):
    """A choice, and what must be kept until its outcome is known."""

    choice: Choice
    features: NDArray[np.float32]
    prompt_tokens: int
    tick: int
    key: str | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets in the order in which they are tried."""
        return tuple(each.target for each in self.choice.ranked)

    def logged(self, target: Target | None = None) -> Logged:
        """What an outcome keeps of it; of the target that has answered, or the chosen one."""
        return self.choice.logged(self.tick, target)


class Known(msgspec.Struct, frozen=True, gc=False):
    """What the caller knows of a target and this request better than the past does."""

    cost_usd: float | None = None
    latency_ms: float | None = None


NOTHING: Mapping[Target, Known] = {}
_UNKNOWN = Known()


class _Scope:
    """What one key, or all of them together, have learnt."""

    def __init__(
        self, settings: RoutingSettings, index: Callable[[int], VectorIndex], number: int
    ) -> None:
        self.learner = Learner(settings.learner, index)
        self.evidence = Evidence(in_force=settings.in_force)
        seed = settings.seed
        self.dice = np.random.default_rng(None if seed is None else (seed, number))
        self._labels: OrderedDict[tuple[int, str], tuple[Learnt, int]] = OrderedDict()
        """How each label was learnt, and how many outcomes there was evidence of then."""

    def learn(self, outcome: Outcome) -> None:
        """Take in an outcome, or a label of it that is another one now."""
        if outcome.logged is not None:
            self.learner.tick = max(self.learner.tick, outcome.logged.tick)
        label = outcome.label
        before = None if label is None else self._labels.pop(label, None)
        if before is None:
            self.evidence.add(outcome)
            learnt, at = self.learner.learn(outcome), self.evidence.outcomes
        else:
            was, at = before
            self.evidence.correct(outcome, was.score, at)
            learnt = self.learner.correct(outcome, was)
        if label is not None and learnt is not None:
            self._labels[label] = learnt, at
            if len(self._labels) > MOST_LABELS:
                self._labels.popitem(last=False)

    def begin_with(self, other: _Scope) -> None:
        """Know what another knows; both learn on by themselves."""
        self.learner = copy.deepcopy(other.learner)
        self._labels = other._labels.copy()


class LearnedRouter:
    """Decides for the targets of one model."""

    def __init__(
        self,
        features: FeatureMaker,
        settings: RoutingSettings | None = None,
        index: Callable[[int], VectorIndex] = SketchIndex,
    ) -> None:
        """Nothing has been learnt."""
        self._features = features
        self._settings = settings or RoutingSettings()
        self._index = index
        self._scopes: OrderedDict[str | None, _Scope] = OrderedDict()
        self._unused: _Scope | None = None
        """That of keys that have not asked yet: they know what files have told."""

    def features(self, text: str) -> NDArray[np.float32]:
        """What is known of a prompt; it may be kept in the place of the text."""
        return self._features.vector(text)

    def decide(
        self,
        features: NDArray[np.float32],
        prompt_tokens: int,
        targets: Sequence[Target],
        weights: Weights | None = None,
        *,
        known: Mapping[Target, Known] = NOTHING,
        key: str | None = None,
    ) -> Decided:
        """Choose among the targets, which stand in the configured order and all may be asked."""
        scope = self._scope(key)
        scope.learner.tick += 1
        choice = self._choose(scope, features, prompt_tokens, targets, weights=weights, known=known)
        return Decided(choice, features, prompt_tokens, scope.learner.tick, key)

    def explain(
        self,
        features: NDArray[np.float32],
        prompt_tokens: int,
        targets: Sequence[Target],
        weights: Weights | None = None,
        *,
        known: Mapping[Target, Known] = NOTHING,
        key: str | None = None,
    ) -> Choice:
        """The choice without dice: what would be expected to be best, and its reasons."""
        scope = self._seen(key)
        return self._choose(
            scope, features, prompt_tokens, targets, weights=weights, known=known, still=True
        )

    def learn(self, outcome: Outcome) -> None:
        """Take in what became of a request."""
        if outcome.given and self._settings.isolated:
            # What a file tells is no key's, and known to all of them.
            for each in (self._beginning(), *self._scopes.values()):
                each.learn(outcome)
            return
        self._scope(outcome.key).learn(outcome)

    def expecting(self, key: str | None = None) -> Callable[[Target, int], Expected]:
        """What an answer to a prompt of so many tokens takes, by earlier ones of a target."""
        return self._seen(key).learner.expected

    def verdict(self, key: str | None = None) -> Verdict:
        """Whether what is learnt is in force, and what it gains."""
        return self._seen(key).evidence.verdict()

    def _choose(
        self,
        scope: _Scope,
        features: NDArray[np.float32],
        prompt_tokens: int,
        targets: Sequence[Target],
        *,
        weights: Weights | None,
        known: Mapping[Target, Known],
        still: bool = False,
    ) -> Choice:
        estimates = scope.learner.estimates(features, prompt_tokens, targets)
        return choose(
            _offers(targets, estimates, known),
            weights or Weights(),
            np.random.default_rng(0) if still else scope.dice,
            floor=0.0 if still else self._settings.floor,
            noise=0.0 if still else self._settings.noise,
            in_force=scope.evidence.in_force,
        )

    def _seen(self, key: str | None) -> _Scope:
        """What is known to a key, for questions: they take no other key's place."""
        found = self._scopes.get(key if self._settings.isolated else None)
        return self._beginning() if found is None else found

    def _beginning(self) -> _Scope:
        """What a key knows that has not asked yet."""
        self._unused = self._unused or _Scope(self._settings, self._index, 0)
        return self._unused

    def _scope(self, key: str | None) -> _Scope:
        mine = key if self._settings.isolated else None
        found = self._scopes.get(mine)
        if found is None:
            number = 0 if mine is None else 1 + crc32(mine.encode())
            found = self._scopes[mine] = _Scope(self._settings, self._index, number)
            if self._settings.isolated and self._unused is not None:
                found.begin_with(self._unused)
            if len(self._scopes) > MOST_KEYS:
                self._scopes.popitem(last=False)
        self._scopes.move_to_end(mine)
        return found


def _offers(
    targets: Sequence[Target], estimates: Sequence[Estimate], known: Mapping[Target, Known]
) -> list[Offer]:
    """What is expected of each; of times that nobody knows, the usual is assumed."""
    costs: list[float | None] = []
    times: list[float | None] = []
    for target, estimate in zip(targets, estimates, strict=True):
        said, learnt = known.get(target, _UNKNOWN), estimate.expected
        costs.append(learnt.cost_usd if said.cost_usd is None else said.cost_usd)
        times.append(learnt.latency_ms if said.latency_ms is None else said.latency_ms)
    told = [time for time in times if time is not None]
    usual = sum(told) / len(told) if told else 0.0
    return [
        Offer(
            target,
            estimate.quality,
            estimate.deviation,
            estimate.evidence,
            estimate.total,
            estimate.asked,
            estimate.usual,
            cost,
            usual if time is None else time,
            estimate.expected.usual_cost_usd,
        )
        for target, estimate, cost, time in zip(targets, estimates, costs, times, strict=True)
    ]
