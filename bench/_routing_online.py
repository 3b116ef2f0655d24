"""Routers that learn while they serve: a stream of prompts, each answered by the chosen model.

The mean cost is held near a budget by the weight of cost, as an operator would turn it. Only the
chosen model's outcome is seen; with full information all are, which nobody has outside a bench.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np
from _routing_data import Outcomes, tokens
from _routing_measures import at_costs, hull, reached, single_models
from numpy.typing import NDArray

from penstock.providers.embedded.embeddings import TableEmbedder
from penstock.routing.catalogue import family_of
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.model import LearnerSettings
from penstock.routing.learning.router import LearnedRouter, RoutingSettings
from penstock.routing.outcomes.outcome import Outcome, Quality
from penstock.routing.selection import Weights

STREAMS = 36
"""Orders of the prompts: what only chosen outcomes teach depends much on the first of them, ..."""
FULL_STREAMS = 8
"""... and what all of them teach does not."""
BUDGET = 0.5
"""Of the way from the cheapest model's mean cost to the dearest one's."""
_STEP, _LEAST_STEP, _SETTLING = 0.05, 0.01, 200
"""The weight is turned in large steps at first, and in smaller ones after some hundred requests."""
_RANGE = (0.05, 20.0)
"""Of the weight of cost: no operator would let it vanish while the router is still trying."""


class Online(NamedTuple):
    """What was reached in the last two thirds of the stream; of several streams, the mean."""

    quality: float
    cost: float
    no_routing: float
    """The best mix of single models at that cost."""
    error: float = 0.0
    """The standard error of the gain, by how much the streams differ."""

    @property
    def gain(self) -> float:
        return self.quality - self.no_routing


def served(
    data: Outcomes, features: NDArray[np.float32], seeds: int, *, full_information: bool = False
) -> Online:
    """Serve the prompts in random orders, as many at a time as there are cores."""
    serve = functools.partial(_serve, data, features, full_information)
    found: list[Online] = []
    workers = min(seeds, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for each in pool.map(serve, range(seeds)):
            found.append(each)
            if sys.stderr.isatty():
                print(f"\rstream {len(found)} of {seeds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    error = float(np.std([each.gain for each in found]) / seeds**0.5)
    return Online(*np.mean(found, 0).tolist())._replace(error=error)


def _serve(
    data: Outcomes, features: NDArray[np.float32], full_information: bool, seed: int
) -> Online:
    order = np.random.default_rng(1000 + seed).permutation(len(data.prompts))
    # As an engine begins: with what the catalogue knows of the models by their names.
    priors = {target: family_of(target.model).quality for target in data.targets}
    settings = RoutingSettings(learner=LearnerSettings(priors=priors), in_force=True, seed=seed)
    if full_information:
        settings = msgspec.structs.replace(settings, floor=0.0, noise=0.0)
    router = LearnedRouter(FeatureMaker(TableEmbedder()), settings)
    column_of = {target: column for column, target in enumerate(data.targets)}
    means = data.costs.mean(0)
    span = float(means.max() - means.min())
    budget = float(means.min()) + BUDGET * span
    log_weight = math.log(0.3)
    chosen: list[int] = []
    row: int
    for number, row in enumerate(order.tolist()):
        size = tokens(data.prompts[row])
        weights = Weights(1.0, math.exp(log_weight), 0.0)
        decided = router.decide(features[row], size, data.targets, weights)
        column = column_of[decided.targets[0]]
        chosen.append(column)
        step = max(_LEAST_STEP, _STEP / (1 + number / _SETTLING))
        if span:
            log_weight += step * (float(data.costs[row, column]) - budget) / span
            log_weight = min(math.log(_RANGE[1]), max(math.log(_RANGE[0]), log_weight))
        for seen in range(len(data.targets)) if full_information else (column,):
            router.learn(
                Outcome(
                    target=data.targets[seen],
                    features=features[row],
                    prompt_tokens=size,
                    quality=Quality(float(data.scores[row, seen])),
                    cost_usd=float(data.costs[row, seen]),
                    logged=None if full_information else decided.logged(),
                    given=full_information,
                )
            )
    late = slice(len(order) // 3, None)
    scores, costs = data.scores[order[late]], data.costs[order[late]]
    cost, quality = reached(chosen[late], scores, costs)
    none = at_costs(hull(single_models(scores, costs)), np.asarray([cost]))
    return Online(quality, cost, float(none[0]))
