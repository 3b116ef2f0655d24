"""Which target is chosen, from what is expected of each; pure, given the dice.

utility = intelligence x quality - cost x relative cost - speed x relative time

Quality is from 0 to 1. Cost and time are relative to the dearest and the slowest target for usual
prompts, and so that equal priorities ask of the dearest target to be right in `WORTH` more of all
cases than a free one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Logged
from penstock.routing.strategies import FREE, WORTH, Weights

SIZED = 3_000.0
"""With so many observations of a target, half of what it costs more or less than usual for this one
prompt counts. Long prompts are dear, and they are the ones for which a better target is worth its
price: until enough is known of that, to spare the dear prompts would be to spare the wrong ones.
But ..."""
SPARING = 10.0
"""... when cost is so many times as important as intelligence, half of it counts from the first."""
FLOOR = 0.02
"""The share of requests that goes to any target by chance, so that none is forgotten, ..."""
IN_FORCE = 0.25
"""... and so much of that once what is learnt is followed, for doubts try targets then: ..."""
EVEN = 0.2
"""... so much of it to all alike, the rest by how near their utility is to the best; ..."""
NEAR = 0.05
"""... by so much less utility, at full intelligence, a target gets e times less, ..."""
LOCALLY = 3.0
"""... and with so many observations of similar prompts half as much as with none: a target that is
thought of as worse for some kind of prompt is hardly ever asked there, and so would be for ever."""
NOISE = 1.0
"""How much of its doubts a target's quality is drawn with: 1 is plain Thompson sampling; ..."""
CALM = 200.0
"""... with so many observations of a target half of that, and ever less: prompts differ little in
how much better one target is than another, and who doubts much follows no difference."""
STRANGER = 120.0
"""A target with fewer observations than this is a stranger, ..."""
STRANGERS = 0.5
"""... and up to so many requests go to strangers, for no estimate speaks for them yet."""
HARDLY_KNOWN = 20.0
HOPE = 1.5
"""A stranger with so many observations is given up early when even so many of its doubts would not
make it the best."""
_MOST_A_STRANGER = 0.1
_DRAWS = 64


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A target that may be chosen, and what is expected of it."""

    target: Target
    quality: float
    deviation: float = 0.0
    evidence: float = 0.0
    """Observations of similar prompts."""
    total: float = STRANGER
    """Observations of any prompts, ..."""
    asked: float = STRANGER
    """... and as if they did not age."""
    usual_quality: float | None = None
    """For usual prompts, where that is known."""
    cost_usd: float | None = 0.0
    """None where nobody knows: then it counts as much as the dearest of the others."""
    latency_ms: float = 0.0
    usual_cost_usd: float | None = None
    """For usual prompts, where that is known."""


class Scored(msgspec.Struct, frozen=True, gc=False):
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
    floor: float = FLOOR,
    noise: float = NOISE,
    in_force: bool = True,
) -> Choice:
    """Choose among the offers, which stand in the configured order.

    Each quality is drawn from what it may be, many times, and the share of draws in which a target
    is the best is how likely it is chosen: the likelihood is exact and can be logged. Unless the
    estimates are `in_force`, the first offer is chosen, but for the share `floor`; if they are, a
    part of it is given out.
    """
    spent = _spent(offers, weights)
    utility = [weights.intelligence * o.quality - s for o, s in zip(offers, spent, strict=True)]
    best = utility.index(max(utility))
    expected = best if in_force else 0
    if in_force and noise > 0:
        likely = _drawn(offers, utility, noise * weights.intelligence, dice)
    else:
        likely = [float(number == expected) for number in range(len(offers))]
    likely = _with_chances(likely, offers, utility, weights, floor=floor, in_force=in_force)
    chosen = _thrown(likely, float(dice.random()))
    scored = [
        Scored(offer, u, s, p)
        for offer, u, s, p in zip(offers, utility, spent, likely, strict=True)
    ]
    rest = [number for number in range(len(offers)) if number != chosen]
    if in_force:
        rest.sort(key=lambda number: -utility[number])
    ranked = (scored[chosen], *(scored[number] for number in rest))
    return Choice(ranked, scored[best], scored[0], chosen != expected, weights)


def _spent(offers: Sequence[Offer], weights: Weights) -> list[float]:
    """What cost and time take off, by what the dearest and the slowest usually take.

    Not by what they take for this prompt: so a long one is dearer than a short one.
    """
    known = [(o.cost_usd, o.usual_cost_usd) for o in offers if o.cost_usd is not None]
    dearest = max((now if usual is None else usual for now, usual in known), default=0.0)
    if dearest < FREE:
        # All were free, and perhaps have a price now.
        dearest = max((now for now, _ in known), default=0.0)
    slowest = max(o.latency_ms for o in offers)
    a_usd = WORTH * weights.cost / dearest if dearest >= FREE else 0.0
    a_ms = WORTH * weights.speed / slowest if slowest else 0.0
    if not a_usd:
        return [a_ms * o.latency_ms for o in offers]
    sparing = weights.cost / (weights.cost + SPARING * weights.intelligence)
    counted = [_counted_cost(o, sparing) for o in offers]
    most = max(cost for cost in counted if cost is not None)
    return [
        a_usd * (most if cost is None else cost) + a_ms * o.latency_ms
        for o, cost in zip(offers, counted, strict=True)
    ]


def _counted_cost(offer: Offer, least: float) -> float | None:
    now, usual = offer.cost_usd, offer.usual_cost_usd
    if now is None or usual is None:
        return now
    known = offer.total / (offer.total + SIZED)
    return usual + (now - usual) * (least + (1 - least) * known)


def _drawn(
    offers: Sequence[Offer], utility: list[float], noise: float, dice: np.random.Generator
) -> list[float]:
    """How often each is the best when its quality is drawn from what it may be."""
    doubts = [noise * o.deviation * CALM / (CALM + o.total) for o in offers]
    drawn = dice.standard_normal((_DRAWS, len(offers))) * doubts + utility
    times: list[int] = np.bincount(drawn.argmax(1), minlength=len(offers)).tolist()
    return [each / _DRAWS for each in times]


def _thrown(likely: Sequence[float], luck: float) -> int:
    for number, share in enumerate(likely):
        luck -= share
        if luck < 0:
            return number
    # Shares add up to one, but for rounding.
    return max(range(len(likely)), key=lambda number: likely[number])


def _with_chances(
    likely: list[float],
    offers: Sequence[Offer],
    utility: Sequence[float],
    weights: Weights,
    *,
    floor: float,
    in_force: bool,
) -> list[float]:
    """Give every target its chance; the likely, the unasked and strangers a better one."""
    width = NEAR * weights.intelligence
    # A request that does not care for quality, or next to nothing, is not used to learn about it.
    if floor <= 0 or width <= 0:
        return likely
    cares = weights.intelligence / (weights.intelligence + weights.cost + weights.speed)
    most = max(utility)
    near = [
        math.exp((u - most) / width) / (1 + o.evidence / LOCALLY)
        for o, u in zip(offers, utility, strict=True)
    ]
    floor *= IN_FORCE if in_force else 1.0
    even = floor * EVEN / len(offers)
    share = floor * (1 - EVEN) / sum(near)
    chances = [share * each + even for each in near]
    strangers = _hopeful_strangers(offers, utility, weights) if in_force else []
    for number in strangers:
        chances[number] += min(_MOST_A_STRANGER, STRANGERS / len(strangers))
    left = 1 - cares * sum(chances)
    return [left * p + cares * chance for p, chance in zip(likely, chances, strict=True)]


def _hopeful_strangers(
    offers: Sequence[Offer], utility: Sequence[float], weights: Weights
) -> list[int]:
    """Those little known targets that may still turn out to be the best, or are hardly known.

    By what is expected of usual prompts: one that is tried where it seems nearly as good as others
    is tried on the hard prompts, on which all are nearly as bad, and then judged by these.
    """
    strangers = [number for number, o in enumerate(offers) if o.total < STRANGER]
    if not strangers:
        return []
    usually = [
        u if o.usual_quality is None else u + weights.intelligence * (o.usual_quality - o.quality)
        for o, u in zip(offers, utility, strict=True)
    ]
    doubts = [HOPE * weights.intelligence * o.deviation for o in offers]
    least = max(u - doubt for u, doubt in zip(usually, doubts, strict=True))
    return [
        number
        for number in strangers
        if offers[number].asked < HARDLY_KNOWN or usually[number] + doubts[number] > least
    ]
