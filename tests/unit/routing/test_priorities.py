"""Priorities of a request order the targets of models without a strategy of their own."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import RouteDecision, Target
from penstock.engine.engine import Engine
from penstock.providers.fake.provider import FakeProvider
from penstock.routing.forecast import Outlook
from penstock.routing.router import TargetTable, Ways
from penstock.routing.strategies import Cheapest, Fastest, Preferred, Strategy
from tests.unit.routing.test_ranking import Down
from tests.unit.routing.test_strategies import (
    BEST,
    CHEAP,
    MODEL,
    QUICK,
    learned,
    outlook,
    served,
    with_preferences,
)

OFF = "The request's priorities are not used: `priorities` is \"off\" for the model 'm'."


def table(
    *down: Target,
    ahead: Outlook | None = None,
    targets: Sequence[Target] = MODEL,
    strategy: Strategy | None = None,
    off: bool = False,
) -> TargetTable:
    ahead = ahead or outlook()
    ways = Ways(
        strategies={} if strategy is None else {"m": strategy},
        outlook=ahead,
        preferred=Preferred(ahead),
        priorities_off={"m"} if off else (),
    )
    providers = {target.provider for target in targets}
    return TargetTable({"m": tuple(targets)}, providers, "m", health=Down(*down), ways=ways)


@pytest.mark.parametrize(
    ("preferences", "winner"),
    [
        (ModelPreferences(cost=1.0), CHEAP),
        (ModelPreferences(cost=0.1), CHEAP),
        (ModelPreferences(speed=1.0), QUICK),
        (ModelPreferences(intelligence=0.3), BEST),
        (ModelPreferences(cost=0.01, speed=0.0, intelligence=1.0), BEST),
    ],
)
@pytest.mark.parametrize("targets", [MODEL, MODEL[::-1]])
async def test_each_priority_orders_the_targets(
    preferences: ModelPreferences, winner: Target, targets: Sequence[Target]
) -> None:
    request = with_preferences(preferences)
    decision = await table(targets=targets).explain(request)
    assert decision.targets[0] == winner
    assert decision.strategy == "priorities"
    assert decision.reason.startswith(
        f"{winner} is first of 3 targets (priorities): it has the best utility of "
    )
    assert "by the request's priorities" in decision.reason
    scores = [each.score for each in decision.ranked]
    assert scores == sorted(scores, reverse=True)
    assert await table(targets=targets).rank(request, request_id="r") == decision.targets


@pytest.mark.parametrize(
    "preferences",
    [None, ModelPreferences(), ModelPreferences(cost=0.0), ModelPreferences(cost=0.0, speed=0.0)],
)
@pytest.mark.parametrize("targets", [MODEL, MODEL[::-1]])
async def test_without_a_positive_priority_the_configured_order_holds(
    preferences: ModelPreferences | None, targets: Sequence[Target]
) -> None:
    assert await table(targets=targets).rank(with_preferences(preferences)) == tuple(targets)


async def test_equal_targets_keep_their_configured_order() -> None:
    twins = (Target("b", "same"), Target("a", "same"))
    for targets in (twins, twins[::-1]):
        for preferences in (ModelPreferences(cost=1.0), ModelPreferences(intelligence=1.0)):
            router = table(targets=targets)
            assert await router.rank(with_preferences(preferences)) == targets


async def test_an_unknown_price_counts_as_the_highest() -> None:
    unknown = Target("x", "gpt-6-astra")
    request = with_preferences(ModelPreferences(cost=1.0))
    decision = await table(targets=(unknown, *MODEL)).explain(request)
    assert decision.targets == (CHEAP, QUICK, unknown, BEST)
    assert "no known price" in decision.ranked[2].reasons[0]
    # Without any price and any time there is nothing to go by.
    alone = (unknown, Target("x", "gpt-6-astra-2"))
    assert await table(targets=alone).rank(request) == alone


async def test_measured_times_replace_those_of_the_catalogue() -> None:
    ahead = outlook(*[served(QUICK, seconds=90.0)] * 3, served(CHEAP, seconds=0.1))
    request = with_preferences(ModelPreferences(speed=1.0))
    decision = await table(ahead=ahead).explain(request)
    assert decision.targets == (CHEAP, BEST, QUICK)
    assert "100 ms by its last answers" in decision.reason


async def test_health_then_hints_go_before_priorities() -> None:
    request = with_preferences(ModelPreferences(("astra",), cost=1.0))
    assert await table().rank(request) == (BEST, CHEAP, QUICK)
    assert await table(BEST).rank(request) == (CHEAP, QUICK, BEST)
    cheap = with_preferences(ModelPreferences(cost=1.0))
    assert await table(CHEAP).rank(cheap) == (QUICK, BEST, CHEAP)


async def test_switched_off_priorities_change_nothing_and_the_reason_says_so() -> None:
    request = with_preferences(ModelPreferences(cost=1.0))
    router, told = table(off=True), list[RouteDecision]()
    assert await router.rank(request, request_id="r", told=told.append) == MODEL
    assert told[0].reason == f"{BEST} is first of 3 targets (ordered): it is target 1 of 'm'. {OFF}"
    assert (await router.explain(request)).reason == told[0].reason
    # Without priorities, or without a choice, there is nothing to say.
    assert OFF not in (await router.explain(with_preferences(None))).reason
    assert OFF not in (await table(targets=(BEST,), off=True).explain(request)).reason


async def test_switched_off_priorities_do_not_reach_a_learned_model() -> None:
    for off, winner in ((True, BEST), (False, CHEAP)):
        router = table(strategy=learned(outlook()), off=off)
        decision = await router.explain(with_preferences(ModelPreferences(cost=1.0)))
        assert decision.targets[0] == winner
        assert (OFF in decision.reason) is off


@pytest.mark.parametrize("kind", [Cheapest, Fastest])
async def test_a_strategy_without_priorities_says_so(kind: Callable[[Outlook], Strategy]) -> None:
    strategy = kind(outlook())
    router = table(strategy=strategy)
    plain = await router.explain(with_preferences(None))
    asked = await router.explain(with_preferences(ModelPreferences(intelligence=1.0)))
    assert asked.targets == plain.targets
    assert asked.reason == (
        f"{plain.reason} The request's priorities are not used: "
        f"`routing` of the model 'm' is \"{strategy.name}\"."
    )


def config(**model: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"dear": {"kind": "fake"}, "free": {"kind": "fake"}},
            "models": {
                "m": {
                    "targets": ["dear/gpt-6-astra", "free/gpt-6-luna"],
                    "prices": {
                        "dear/gpt-6-astra": {"input": 10.0, "output": 50.0},
                        "free/gpt-6-luna": {"input": 0.1, "output": 0.5},
                    },
                    **model,
                }
            },
        }
    )


async def test_the_engine_asks_the_preferred_target() -> None:
    for settings, provider in (({}, "free"), ({"priorities": "off"}, "dear")):
        async with Engine(config(**settings)) as engine:
            engine.use(FakeProvider(["yes"], name="dear"))
            engine.use(FakeProvider(["yes"], name="free"))
            result = await engine.create_message(
                "Hi", max_tokens=9, model_preferences=ModelPreferences(cost=1.0)
            )
            assert result.metadata.provider == provider
            plain = await engine.create_message("Hi", max_tokens=9)
            assert plain.metadata.provider == "dear"


async def test_a_session_goes_before_priorities() -> None:
    async with Engine(config(sticky=True)) as engine:
        engine.use(FakeProvider(["yes"] * 9, name="dear"))
        engine.use(FakeProvider(["yes"] * 9, name="free"))
        metadata = {"session_id": "s"}
        await engine.create_message("Hi", max_tokens=9, metadata=metadata)
        result = await engine.create_message(
            "Hi", max_tokens=9, metadata=metadata, model_preferences=ModelPreferences(cost=1.0)
        )
        assert result.metadata.provider == "dear"


async def test_an_ordered_model_learns_how_long_its_targets_take() -> None:
    async with Engine(config()) as engine:
        engine.use(FakeProvider(["yes"] * 9, name="dear"))
        await engine.create_message("Hi", max_tokens=9)
        decision = await engine.route(
            "Hi", max_tokens=9, model_preferences=ModelPreferences(speed=1.0)
        )
        assert decision.targets[0] == Target("dear", "gpt-6-astra")
        assert "by its last answers" in decision.reason


def test_priorities_need_no_extra() -> None:
    script = """
import sys
sys.modules["numpy"] = None
from penstock.engine.build.routing import ways_of
"""
    subprocess.run([sys.executable, "-c", script], check=True)
