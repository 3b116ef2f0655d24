"""Which target is chosen, from what is expected of each; pure, given the dice.

utility = intelligence x quality - cost x relative cost - speed x relative time

Quality is from 0 to 1. Cost and time are relative to the dearest and the slowest target for usual
prompts, and so that equal priorities ask of the dearest target to be right in `WORTH` more of all
cases than a free one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.contract.options import ModelPreferences
from penstock.contract.ports import Target
from penstock.routing.outcomes import Logged

WORTH = 0.25
SIZED = 3_000.0
"""With so many observations of a target, half of what it costs more or less than usual for this one
prompt counts. Long prompts are dear, and they are the ones for which a better target is worth its
price: until enough is known of that, to spare the dear prompts would be to spare the wrong ones."""
FLOOR = 0.01
"""The share of requests that goes to any target by chance, so that none is forgotten: ..."""
EVEN = 0.2
"""... so much of it to all alike, the rest by how near their utility is to the best; ..."""
NEAR = 0.05
"""... by so much less utility, at full intelligence, a target gets e times less, ..."""
LOCALLY = 3.0
"""... and with so many observations of similar prompts half as much as with none: a target that is
thought of as worse for some kind of prompt is hardly ever asked there, and so would be for ever."""
NOISE = 0.3
"""How much of its doubts a target's quality is drawn with: 1 is plain Thompson sampling; ..."""
CALM = 100.0
"""... with more observations of a target than this, ever less of them: prompts differ little in how
much better one target is than another, and who doubts much follows no difference."""
STRANGER = 40.0
"""A target with fewer observations than this is a stranger, ..."""
STRANGERS = 0.5
"""... and up to so many requests go to strangers, for no estimate speaks for them yet."""
HARDLY_KNOWN = 20.0
HOPE = 3.0
"""A stranger with so many observations is given up early when even so many of its doubts would not
make it the best."""
_MOST_A_STRANGER = 0.1
_DRAWS = 64


def has_priorities(preferences: ModelPreferences | None) -> bool:
    """Whether a request says what counts."""
    return preferences is not None and any(
        each is not None for each in (preferences.intelligence, preferences.cost, preferences.speed)
    )


class Weights(msgspec.Struct, frozen=True):
    """What counts, and how much."""

    intelligence: float = 1.0
    cost: float = 0.3
    speed: float = 0.1

    @classmethod
    def of(cls, preferences: ModelPreferences | None) -> Weights:
        """The priorities of a request; when it has any, those that are left out count nothing."""
        if preferences is None or not has_priorities(preferences):
            return cls()
        given = (preferences.intelligence, preferences.cost, preferences.speed)
        return cls(*(each or 0.0 for each in given))


class Offer(msgspec.Struct, frozen=True):
    """A target that may be chosen, and what is expected of it."""

    target: Target
    quality: float
    deviation: float = 0.0
    evidence: float = 0.0
    """Observations of similar prompts."""
    total: float = STRANGER
    """Observations of any prompts."""
    cost_usd: float = 0.0
    latency_ms: float = 0.0
    usual_cost_usd: float | None = None
    """For usual prompts, where that is known."""


class Scales(NamedTuple):
    """What the dearest and the slowest target take for usual prompts; 0 when nobody knows."""

    cost_usd: float
    latency_ms: float

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> Scales:
        """By the offers for this one prompt."""
        return cls(max(o.cost_usd for o in offers), max(o.latency_ms for o in offers))


class Scored(msgspec.Struct, frozen=True):
    """A target with its utility, and what that is made of."""

    offer: Offer
    utility: float
    spent: float
    """What cost and time took off it."""
    propensity: float
    """How likely it was to be chosen."""

    @property
    def target(self) -> Target:
        """Which one it is."""
        return self.offer.target


class Choice(msgspec.Struct, frozen=True):
    """The targets in the order in which they are tried, and how that came about."""

    ranked: tuple[Scored, ...]
    """The chosen one first, the others by utility."""
    best: Scored
    """What the estimates put first."""
    first: Scored
    """What the configuration puts first."""
    explored: bool
    """Whether the chosen one is not the one that would be expected: it was tried to learn."""
    weights: Weights

    @property
    def chosen(self) -> Scored:
        """The target that is tried first."""
        return self.ranked[0]

    def logged(self, tick: int, target: Target | None = None) -> Logged:
        """What is kept for judging; of another target than the chosen, if that one answered."""
        at = next((s for s in self.ranked if s.target == target), self.chosen)
        three = (at, self.best, self.first)
        return Logged(
            tick,
            at.propensity,
            self.best.target,
            self.first.target,
            (three[0].offer.quality, three[1].offer.quality, three[2].offer.quality),
            (three[0].spent, three[1].spent, three[2].spent),
            self.weights.intelligence,
        )


def choose(
    offers: Sequence[Offer],
    weights: Weights,
    dice: np.random.Generator,
    *,
    scales: Scales | None = None,
    floor: float = FLOOR,
    noise: float = NOISE,
    in_force: bool = True,
) -> Choice:
    """Choose among the offers, which stand in the configured order.

    Each quality is drawn from what it may be, many times, and the share of draws in which a target
    is the best is how likely it is chosen: the likelihood is exact and can be logged. Unless the
    estimates are `in_force`, the first offer is chosen, but for the share `floor`.
    """
    scales = scales or Scales.of(offers)
    spent = [_spent(offer, weights, scales) for offer in offers]
    utility = np.asarray(
        [weights.intelligence * o.quality - s for o, s in zip(offers, spent, strict=True)]
    )
    best = int(utility.argmax())
    if in_force and noise > 0:
        doubts = np.asarray([_drawn_doubt(o) for o in offers]) * (noise * weights.intelligence)
        drawn = utility + doubts * dice.standard_normal((_DRAWS, len(offers)))
        likely = np.bincount(drawn.argmax(1), minlength=len(offers)) / _DRAWS
    else:
        likely = np.zeros(len(offers))
        likely[best if in_force else 0] = 1.0
    strange = np.asarray([in_force and o.total < STRANGER for o in offers])
    strange &= _hopeful(offers, utility, weights)
    unasked = 1 / (1 + np.asarray([o.evidence for o in offers]) / LOCALLY)
    likely = _with_chances(likely, utility, unasked, strange, weights, floor=floor)
    chosen = int(min(np.searchsorted(likely.cumsum(), dice.random()), len(offers) - 1))
    scored = [
        Scored(offer, float(utility[i]), spent[i], float(likely[i]))
        for i, offer in enumerate(offers)
    ]
    rest = sorted((i for i in range(len(offers)) if i != chosen), key=lambda i: -utility[i])
    expected = best if in_force else 0
    order = rest if in_force else sorted(rest)
    return Choice(
        tuple(scored[i] for i in (chosen, *order)),
        scored[best],
        scored[0],
        chosen != expected,
        weights,
    )


def _hopeful(
    offers: Sequence[Offer], utility: NDArray[np.float64], weights: Weights
) -> NDArray[np.bool_]:
    """Which targets may still turn out to be the best, or are hardly known at all."""
    doubts = HOPE * weights.intelligence * np.asarray([o.deviation for o in offers])
    hardly = np.asarray([o.total < HARDLY_KNOWN for o in offers])
    return hardly | (utility + doubts > (utility - doubts).max())


def _with_chances(
    likely: NDArray[np.float64],
    utility: NDArray[np.float64],
    unasked: NDArray[np.float64],
    strange: NDArray[np.bool_],
    weights: Weights,
    *,
    floor: float,
) -> NDArray[np.float64]:
    """Give every target its chance; the likely, the unasked and strangers a better one."""
    whole = weights.intelligence + weights.cost + weights.speed
    # A request that does not care for quality is not used to learn about it.
    cares = weights.intelligence / whole if whole else 0.0
    if floor <= 0 or cares <= 0:
        return likely
    near = unasked * np.exp((utility - utility.max()) / (NEAR * weights.intelligence))
    chances = floor * ((1 - EVEN) * near / near.sum() + EVEN / len(utility))
    if strange.any():
        chances[strange] += min(_MOST_A_STRANGER, STRANGERS / int(strange.sum()))
    chances *= cares
    return (1 - chances.sum()) * likely + chances


def _spent(offer: Offer, weights: Weights, scales: Scales) -> float:
    cost = _counted_cost(offer) / scales.cost_usd if scales.cost_usd else 0.0
    time = offer.latency_ms / scales.latency_ms if scales.latency_ms else 0.0
    return WORTH * (weights.cost * cost + weights.speed * time)


def _drawn_doubt(offer: Offer) -> float:
    return offer.deviation * (CALM / (CALM + offer.total)) ** 0.5


def _counted_cost(offer: Offer) -> float:
    usual = offer.usual_cost_usd
    if usual is None:
        return offer.cost_usd
    return usual + (offer.cost_usd - usual) * offer.total / (offer.total + SIZED)
