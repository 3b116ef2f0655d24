"""Routers that have seen a half of the prompts with all outcomes, judged on the other half."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from _routing_data import Floats, Outcomes, tokens
from _routing_measures import (
    Curve,
    TwoModels,
    aiq,
    at_costs,
    hull,
    reached,
    single_models,
    two_models,
)
from numpy.typing import NDArray

from penstock.routing.cost_model import Traffic
from penstock.routing.learning.model import Learner
from penstock.routing.outcomes.outcome import Outcome, Quality
from penstock.routing.selection import Offer, Weights, choose

COST_WEIGHTS = [0.0, *np.geomspace(0.02, 200, 36).tolist()]
Rows = NDArray[np.intp]
Estimator = Callable[[Rows, Rows], Floats]
"""Takes the rows to learn from and those to judge; the quality expected of each model."""


class Offline(NamedTuple):
    """What a router reaches; of several splits, the mean."""

    two: TwoModels | None
    """Of the splits in which the dearer of two models is the better one; None if there is none."""
    aiq: float
    no_routing: float
    worst: float
    """The least by which it is above no routing at the same cost, along the whole curve."""
    worst_error: float
    """The standard error of that, by the prompts of one split: other splits have the same ones."""
    curve: Curve


def splits(number: int, seeds: int, most: int | None = None) -> Iterator[tuple[Rows, Rows]]:
    """Random halves; of the first at most so many."""
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(number)
        half = number // 2
        yield order[: half if most is None else min(half, most)], order[half:]


def penstock_estimator(data: Outcomes, features: NDArray[np.float32]) -> Estimator:
    """The project's own learner, an outcome at a time."""

    def estimate(learnt: Rows, judged: Rows) -> Floats:
        learner = Learner()
        row: int
        for row in learnt.tolist():
            for column, target in enumerate(data.targets):
                learner.learn(
                    Outcome(
                        target=target,
                        features=features[row],
                        prompt_tokens=tokens(data.prompts[row]),
                        quality=Quality(float(data.scores[row, column])),
                        cost_usd=float(data.costs[row, column]),
                        given=True,
                    )
                )
        return np.asarray(
            [
                [each.quality for each in learner.estimates(features[row], 0, data.targets)]
                for row in judged.tolist()
            ]
        )

    return estimate


def plain_neighbours(data: Outcomes, vectors: NDArray[np.float32], number: int) -> Estimator:
    """The mean of the nearest prompts, without anything else."""

    def estimate(learnt: Rows, judged: Rows) -> Floats:
        similar = vectors[judged] @ vectors[learnt].T
        nearest = np.argpartition(-similar, min(number, len(learnt) - 1), axis=1)[:, :number]
        return data.scores[learnt][nearest].mean(1)

    return estimate


def by_chance(data: Outcomes) -> Estimator:
    """Noise."""

    def estimate(learnt: Rows, judged: Rows) -> Floats:
        return np.random.default_rng(int(judged[0])).random((len(judged), len(data.targets)))

    return estimate


def digests(prompts: list[str]) -> NDArray[np.float32]:
    """SHA-256 of each prompt as a vector of bits, which was the first idea."""
    raw = np.asarray([list(hashlib.sha256(prompt.encode()).digest()) for prompt in prompts])
    bits = np.unpackbits(raw.astype(np.uint8), axis=1)
    return ((bits.astype(np.float32) * 2 - 1) / 16).astype(np.float32)


def evaluate(data: Outcomes, estimator: Estimator, seeds: int) -> Offline:
    """Mean over the splits; the curve is that of the first."""
    twos: list[TwoModels] = []
    rows: list[tuple[float, float]] = []
    curves: list[Curve] = []
    margins: list[Floats] = []
    errors: list[Floats] = []
    for learnt, judged in splits(len(data.prompts), seeds):
        quality = estimator(learnt, judged)
        scores, costs = data.scores[judged], data.costs[judged]
        twos += _as_two(data, quality, judged)
        alone = single_models(scores, costs)
        lowest, highest = min(alone)[0], max(alone)[0]
        chosen = _swept(data, quality, learnt, judged)
        curve = [reached(each, scores, costs) for each in chosen]
        curves.append(curve)
        rows.append((aiq(curve, lowest, highest), aiq(alone, lowest, highest)))
        margins.append(_above(curve, hull(alone)))
        errors.append(_errors(chosen, scores, costs))
    ours, none = np.mean(rows, 0).tolist()
    two = TwoModels(*np.mean(twos, 0).tolist()) if twos else None
    above = np.mean(margins, 0)
    at = int(above.argmin())
    return Offline(two, ours, none, float(above[at]), float(np.mean(errors, 0)[at]), curves[0])


def apgr_with(data: Outcomes, estimator: Estimator, seeds: int, most: int) -> float | None:
    """The share of the gap recovered when only so many prompts have been seen."""
    found = [
        two.apgr
        for learnt, judged in splits(len(data.prompts), seeds, most)
        for two in _as_two(data, estimator(learnt, judged), judged)
    ]
    return float(np.mean(found)) if found else None


def _as_two(data: Outcomes, quality: Floats, judged: Rows) -> list[TwoModels]:
    if len(data.targets) != 2:
        return []
    alone = single_models(data.scores, data.costs)
    strong = alone.index(max(alone))
    scores = data.scores[judged]
    preference = quality[:, strong] - quality[:, 1 - strong]
    two = two_models(preference, scores[:, 1 - strong], scores[:, strong])
    return [] if two is None else [two]


def _swept(data: Outcomes, quality: Floats, learnt: Rows, judged: Rows) -> list[list[int]]:
    """What the project's own decision chooses with every weight of cost."""
    expected = _expected_costs(data, learnt, judged)
    usual: list[float] = data.costs[learnt].mean(0).tolist()
    offers = [
        [
            Offer(target, float(q), total=len(learnt), cost_usd=float(c), usual_cost_usd=u)
            for target, q, c, u in zip(data.targets, qualities, costs, usual, strict=True)
        ]
        for qualities, costs in zip(quality, expected, strict=True)
    ]
    column_of = {target: column for column, target in enumerate(data.targets)}
    dice = np.random.default_rng(0)
    chosen: list[list[int]] = []
    for weight in COST_WEIGHTS:
        weights = Weights(1.0, weight, 0.0)
        chosen.append(
            [
                column_of[choose(each, weights, dice, floor=0, noise=0).best.target]
                for each in offers
            ]
        )
    return chosen


def _expected_costs(data: Outcomes, learnt: Rows, judged: Rows) -> Floats:
    """What the project expects answers to cost; every router gets the same."""
    sizes = [tokens(prompt) for prompt in data.prompts]
    columns: list[list[float]] = []
    for column in range(len(data.targets)):
        traffic = Traffic()
        row: int
        for row in learnt.tolist():
            traffic.add(sizes[row], cost_usd=float(data.costs[row, column]))
        asked: list[int] = judged.tolist()
        columns.append([traffic.expected(sizes[row]).cost_usd or 0.0 for row in asked])
    return np.asarray(columns).T


def _above(curve: Curve, none: Curve) -> Floats:
    cost, quality = np.asarray(curve).T
    return quality - at_costs(none, cost)


def _errors(chosen: list[list[int]], scores: Floats, costs: Floats) -> Floats:
    """How sure each point of the curve is to be above or below the mix at its cost."""
    alone = single_models(scores, costs)
    best = hull(alone)
    corners = np.asarray([cost for cost, _ in best])
    columns = [alone.index(point) for point in best]
    found: list[float] = []
    for each in chosen:
        cost, _ = reached(each, scores, costs)
        place = float(np.interp(cost, corners, np.arange(len(corners))))
        low, share = int(place), place - int(place)
        mixed = (1 - share) * scores[:, columns[low]]
        if share:
            mixed = mixed + share * scores[:, columns[low + 1]]
        gained = scores[np.arange(len(scores)), each] - mixed
        found.append(float(gained.std() / len(gained) ** 0.5))
    return np.asarray(found)
