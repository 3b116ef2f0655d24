"""Routers that have decided millions of times: evidence ages, and nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.contract.ports import Target
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.router import LearnedRouter, RoutingSettings
from penstock.routing.outcomes.outcome import Logged, Outcome, Quality
from penstock.routing.selection import Weights

GOOD, BAD = Target("p", "good"), Target("p", "bad")
BEST = Weights(1.0, 0.0, 0.0)
MAKER = FeatureMaker()
LATER = [3_000_000, 30_000_000, 10**15]
"""Decisions: 2 to the power of their half-lives is more than 32 bits hold, and more than 64."""


def outcome(number: int, tick: int) -> Outcome:
    target = (GOOD, BAD)[number % 2]
    score = float(target == GOOD)
    return Outcome(
        target=target,
        features=MAKER.vector(f"question number {number}"),
        prompt_tokens=5,
        quality=Quality(score),
        # No surprises: these would have evidence dropped, which is not looked at here.
        logged=Logged(tick, 0.5, GOOD, BAD, (score, 1.0, 0.0)),
    )


def qualities(router: LearnedRouter) -> list[float]:
    asked = MAKER.vector("question number 7")
    choice = router.explain(asked, 5, [GOOD, BAD], BEST)
    found = {each.target: each.offer for each in choice.ranked}
    return [
        number
        for target in (GOOD, BAD)
        for number in (found[target].quality, found[target].evidence, found[target].total)
    ]


def taught(router: LearnedRouter, first_tick: int) -> LearnedRouter:
    for number in range(60):
        router.learn(outcome(number, first_tick + number))
    return router


def fresh() -> LearnedRouter:
    return LearnedRouter(MAKER, RoutingSettings(in_force=True, seed=3))


@pytest.mark.parametrize("decisions", LATER)
def test_outcomes_of_a_router_that_has_decided_for_long_teach_the_same_after_a_restart(
    decisions: int,
) -> None:
    expected = qualities(taught(fresh(), 1))
    assert qualities(taught(fresh(), decisions)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("decisions", LATER)
def test_labels_that_come_after_millions_of_decisions_without_any_are_learnt(
    decisions: int,
) -> None:
    router = taught(fresh(), 1)
    # A request that failed has no label, but the number of its decision.
    nothing = outcome(0, decisions)
    router.learn(
        Outcome(target=GOOD, features=nothing.features, prompt_tokens=5, logged=nothing.logged)
    )
    decided = router.decide(nothing.features, 5, [GOOD, BAD], BEST)
    assert np.isfinite([each.utility for each in decided.choice.ranked]).all()
    _, _, total, *_ = qualities(router)
    assert total < 0.01
    taught(router, decisions + 1)
    assert qualities(router) == pytest.approx(qualities(taught(fresh(), 1)), abs=0.02, rel=0.02)


@pytest.mark.parametrize("decisions", LATER)
def test_a_label_of_a_request_that_is_long_past_changes_nothing(decisions: int) -> None:
    router = taught(fresh(), decisions)
    before = qualities(router)
    router.learn(outcome(1, 1))
    assert qualities(router) == pytest.approx(before, rel=1e-3)
