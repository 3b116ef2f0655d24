"""The choice among offers: utilities, likelihoods and chances, without any learning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.ports import Target
from penstock.routing.selection import FLOOR, Offer, Weights, choose

ONE, TWO, THREE = (Target("p", name) for name in ("one", "two", "three"))
COST_ONLY = Weights(0.0, 1.0, 0.0)
QUALITY_ONLY = Weights(1.0, 0.0, 0.0)


def dice() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("total", [0.0, 30.0, 1e6])
def test_who_asks_for_the_cheapest_gets_what_is_cheapest_for_this_prompt(total: float) -> None:
    # Usually the first is cheaper, but not for this one.
    offers = [
        Offer(ONE, 0.9, total=total, cost_usd=0.05, usual_cost_usd=0.001),
        Offer(TWO, 0.1, total=total, cost_usd=0.04, usual_cost_usd=0.010),
    ]
    assert choose(offers, COST_ONLY, dice()).chosen.target == TWO
    # Whoever cares for little else is served so as well, if the difference is worth it.
    sparing = choose(offers, Weights(0.001, 1.0, 0.0), dice(), floor=0.0, noise=0.0)
    assert sparing.chosen.target == TWO


def test_until_much_is_known_a_dear_prompt_is_not_spared() -> None:
    def best(total: float) -> Target:
        offers = [
            Offer(ONE, 0.55, total=total, cost_usd=0.001, usual_cost_usd=0.001),
            Offer(TWO, 0.65, total=total, cost_usd=0.050, usual_cost_usd=0.010),
        ]
        return choose(offers, Weights(1.0, 0.3, 0.0), dice(), floor=0.0, noise=0.0).best.target

    assert best(50.0) == TWO
    assert best(50_000.0) == ONE


@given(
    qualities=st.lists(st.floats(0, 1), min_size=1, max_size=12),
    total=st.floats(0, 5_000),
    weights=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    in_force=st.booleans(),
)
def test_likelihoods_add_up_to_one_whatever_counts(
    qualities: list[float], total: float, weights: tuple[float, float, float], in_force: bool
) -> None:
    offers = [
        Offer(
            Target("p", str(number)),
            quality,
            deviation=0.1,
            evidence=float(number),
            total=total,
            cost_usd=0.01 * number,
            latency_ms=100.0 * number,
        )
        for number, quality in enumerate(qualities)
    ]
    made = choose(offers, Weights(*weights), dice(), in_force=in_force)
    shares = [each.propensity for each in made.ranked]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    assert sorted(each.target.model for each in made.ranked) == sorted(
        each.target.model for each in offers
    )
    assert made.best.utility == max(each.utility for each in made.ranked)


def test_chosen_is_as_often_as_is_said() -> None:
    offers = [
        Offer(ONE, 0.60, deviation=0.1, total=100.0, evidence=9.0),
        Offer(TWO, 0.62, deviation=0.1, total=100.0),
        Offer(THREE, 0.2, deviation=0.1, total=100.0),
    ]
    luck, times, said = dice(), dict.fromkeys((ONE, TWO, THREE), 0), dict[Target, float]()
    for _ in range(4_000):
        made = choose(offers, Weights(), luck, floor=0.1)
        times[made.chosen.target] += 1
        for each in made.ranked:
            said[each.target] = said.get(each.target, 0.0) + each.propensity
    for target, number in times.items():
        assert number == pytest.approx(said[target], abs=4 * said[target] ** 0.5)
    assert times[TWO] > times[ONE] > times[THREE] > 0


def test_without_force_the_first_is_chosen_but_for_the_floor() -> None:
    offers = [Offer(ONE, 0.1, total=1_000.0), Offer(TWO, 0.9, total=1_000.0)]
    made = choose(offers, Weights(), dice(), in_force=False)
    said = {each.target: each.propensity for each in made.ranked}
    assert 1 - FLOOR < said[ONE] < 1
    assert made.first.target == ONE
    assert made.best.target == TWO


@pytest.mark.parametrize(
    "weights",
    [Weights(5e-324, 0.0, 0.0), Weights(1e-323, 1.0, 0.0), Weights(1e-320, 0.0, 1e-320)],
)
@pytest.mark.parametrize("in_force", [True, False])
def test_a_priority_that_is_next_to_nothing_is_no_error(weights: Weights, in_force: bool) -> None:
    offers = [Offer(ONE, 0.4, deviation=0.1, total=3.0), Offer(TWO, 0.6, deviation=0.1)]
    made = choose(offers, weights, dice(), in_force=in_force)
    assert sum(each.propensity for each in made.ranked) == pytest.approx(1)


@pytest.mark.parametrize("usual", [0.0, 1e-300], ids=["free", "all but free"])
@pytest.mark.parametrize("weights", [COST_ONLY, Weights(0.5, 0.5, 0.0)])
def test_prices_count_from_the_first_although_all_answers_were_free(
    usual: float, weights: Weights
) -> None:
    offers = [
        Offer(ONE, 0.60, cost_usd=0.05, usual_cost_usd=usual, total=1e5),
        Offer(TWO, 0.59, cost_usd=0.01, usual_cost_usd=usual, total=1e5),
    ]
    made = choose(offers, weights, dice(), floor=0.0, noise=0.0)
    assert made.chosen.target == TWO
    assert made.chosen.spent < made.ranked[1].spent <= 1


@pytest.mark.parametrize("now", [0.0001, 0.02, 0.7], ids=["short", "usual", "long"])
@pytest.mark.parametrize("weights", [COST_ONLY, Weights(0.5, 0.5, 0.0), Weights()])
def test_a_target_without_a_price_is_as_dear_as_the_dearest_for_prompts_of_any_size(
    now: float, weights: Weights
) -> None:
    offers = [
        Offer(ONE, 0.5, cost_usd=None, total=50.0),
        Offer(TWO, 0.5, cost_usd=now, usual_cost_usd=0.02, total=900.0),
        Offer(THREE, 0.5, cost_usd=now / 9, usual_cost_usd=0.02 / 9, total=900.0),
    ]
    made = choose(offers, weights, dice(), floor=0.0, noise=0.0)
    spent = {each.target: each.spent for each in made.ranked}
    assert spent[ONE] == spent[TWO] > spent[THREE]


def test_where_no_target_has_a_price_none_is_dear() -> None:
    offers = [Offer(ONE, 0.5, cost_usd=None), Offer(TWO, 0.6, cost_usd=None)]
    made = choose(offers, Weights(), dice(), floor=0.0, noise=0.0)
    assert [(each.target, each.spent) for each in made.ranked] == [(TWO, 0.0), (ONE, 0.0)]


def test_an_amount_that_is_next_to_nothing_is_nothing() -> None:
    offers = [Offer(ONE, 0.5, cost_usd=0.0), Offer(TWO, 0.6, cost_usd=1e-310)]
    made = choose(offers, Weights(), dice(), floor=0.0, noise=0.0)
    assert [(each.target, each.spent) for each in made.ranked] == [(TWO, 0.0), (ONE, 0.0)]


@pytest.mark.parametrize(("usually", "hopes"), [(0.85, True), (0.3, False)])
def test_a_stranger_is_given_up_by_usual_prompts_and_not_by_this_one(
    usually: float, hopes: bool
) -> None:
    known = Offer(ONE, 0.9, deviation=0.01, total=900.0, asked=900.0, usual_quality=0.9)
    for quality in (0.2, 0.85):
        stranger = Offer(
            TWO, quality, deviation=0.05, total=40.0, asked=40.0, usual_quality=usually
        )
        made = choose([known, stranger], QUALITY_ONLY, dice(), noise=0.0)
        propensity = {each.target: each.propensity for each in made.ranked}[TWO]
        assert (propensity > 0.05) is hopes


def test_a_stranger_that_was_asked_often_enough_long_ago_is_not_hardly_known() -> None:
    known = Offer(ONE, 0.9, deviation=0.01, total=900.0, asked=900.0)
    for asked, tried in ((5.0, True), (40.0, False)):
        made = choose(
            [known, Offer(TWO, 0.2, deviation=0.05, total=5.0, asked=asked)],
            QUALITY_ONLY,
            dice(),
            noise=0.0,
        )
        propensity = {each.target: each.propensity for each in made.ranked}[TWO]
        assert (propensity > 0.05) is tried
