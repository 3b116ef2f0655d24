"""Which target is tried first, and why."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import ModelNotFound
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.options import ModelPreferences
from penstock.contract.ports import RankedTarget, Target
from penstock.routing.explanation import explained
from penstock.routing.ranking import Candidate, distinct, order, tried
from penstock.routing.router import TargetTable, Ways
from penstock.routing.strategies import Opinion, Strategy

SOL = Target("openai", "gpt-6.1-sol")
SONNET = Target("claude", "claude-sonnet-5-5")
HAIKU = Target("claude", "claude-haiku-5")
QWEN = Target("local", "qwen3")
MODELS = {
    "assistant": (SOL, SONNET, QWEN),
    "small": (HAIKU, QWEN),
    "vectors": (Target("local", "nomic-embed"),),
}


class Down:
    """The health of these, which are down, and of all others, which are not."""

    def __init__(self, *targets: Target) -> None:
        self._down = targets

    def available(self, target: Target) -> tuple[bool, str]:
        return (False, "breaker open") if target in self._down else (True, "")


def table(*down: Target, strategy: Strategy | None = None) -> TargetTable:
    providers = {"openai", "claude", "local"}
    ways = Ways(strategies={} if strategy is None else {"assistant": strategy})
    return TargetTable(MODELS, providers, "assistant", health=Down(*down), ways=ways)


def ask(*hints: str, model: str | None = None, **priorities: float) -> SamplingRequest:
    return SamplingRequest(
        messages=(user("hi"),),
        max_tokens=9,
        model=model,
        model_preferences=ModelPreferences(hints, **priorities) if hints or priorities else None,
    )


async def test_without_hints_the_configured_order_holds() -> None:
    decision = await table().explain(ask())
    assert decision.targets == (SOL, SONNET, QWEN)
    assert decision.model is None
    assert decision.ranked[1] == RankedTarget(SONNET, True, ("target 2 of 'assistant'",))
    assert decision.left_out == ()


@pytest.mark.parametrize(
    ("hints", "targets"),
    [
        (("claude",), (SONNET, SOL, QWEN)),
        (("CLAUDE/claude-Son",), (SONNET, SOL, QWEN)),
        (("local",), (QWEN, SOL, SONNET)),
        (("qwen", "gpt"), (QWEN, SOL, SONNET)),
        (("gpt", "qwen"), (SOL, QWEN, SONNET)),
        (("unheard-of", "sonnet"), (SONNET, SOL, QWEN)),
        (("unheard-of",), (SOL, SONNET, QWEN)),
        ((" ", ""), (SOL, SONNET, QWEN)),
    ],
)
async def test_hints_are_parts_of_names_and_the_first_that_matches_wins(
    hints: tuple[str, ...], targets: tuple[Target, ...]
) -> None:
    request = ask(*hints, model="assistant")
    assert await table().rank(request) == targets
    decision = await table().explain(request)
    assert decision.targets == targets
    assert decision.model == "assistant"


async def test_reasons_tell_the_hint_and_the_place() -> None:
    decision = await table(QWEN).explain(ask("nothing", "claude", model="assistant"))
    assert [each.reasons for each in decision.ranked] == [
        ("matches hint 2, 'claude'", "target 2 of 'assistant'"),
        ("matches no hint", "target 1 of 'assistant'"),
        ("not available: breaker open", "matches no hint", "target 3 of 'assistant'"),
    ]
    assert [each.available for each in decision.ranked] == [True, True, False]


async def test_a_target_that_is_down_is_last_even_if_it_is_the_one_hinted_at() -> None:
    assert await table(SONNET).rank(ask("claude", model="assistant")) == (SOL, QWEN, SONNET)
    assert await table(SOL).rank(ask()) == (SONNET, QWEN, SOL)


async def test_when_all_are_down_they_are_still_tried_in_their_order() -> None:
    assert await table(SOL, SONNET, QWEN).rank(ask("qwen", model="assistant")) == (
        QWEN,
        SOL,
        SONNET,
    )


async def test_without_a_model_hints_choose_among_all_that_are_configured() -> None:
    decision = await table().explain(ask("haiku", "qwen"))
    assert decision.targets == (HAIKU, QWEN, SOL, SONNET)
    assert decision.ranked[0].reasons == ("matches hint 1, 'haiku'", "target 1 of 'small'")
    # Served by two models, and told once, as a target of the model that serves.
    assert decision.ranked[1].reasons[-1] == "target 3 of 'assistant'"


async def test_targets_of_other_models_that_no_hint_names_are_left_out_and_told_so() -> None:
    decision = await table().explain(ask("sonnet"))
    assert decision.targets == (SONNET, SOL, QWEN)
    assert [(str(each.target), each.reasons) for each in decision.left_out] == [
        ("claude/claude-haiku-5", ("matches no hint", "target 1 of 'small'")),
        ("local/nomic-embed", ("matches no hint", "target 1 of 'vectors'")),
    ]


async def test_a_model_that_is_named_is_not_left_for_a_hint() -> None:
    assert await table().rank(ask("gpt", model="small")) == (HAIKU, QWEN)
    assert await table().rank(ask("gpt", model="local/qwen3")) == (QWEN,)
    with pytest.raises(ModelNotFound):
        await table().rank(ask("gpt", model="nowhere"))


async def test_priorities_break_ties_only() -> None:
    class Thrifty:
        name = "thrifty"

        async def judge(
            self,
            request: SamplingRequest,
            targets: Sequence[Target],
            *,
            deciding: bool,
            request_id: str | None,
            key: str | None,
        ) -> Sequence[Opinion]:
            preferences = request.model_preferences
            return [self._one(target, preferences) for target in targets]

        def _one(self, target: Target, preferences: ModelPreferences | None) -> Opinion:
            if preferences is None or preferences.cost is None or target == SOL:
                return Opinion()
            if target == QWEN:
                return Opinion(-1.0, utility=1.0, note="free")
            return Opinion(1.0, utility=-1.0, note="dear")

    router = table(strategy=Thrifty())
    assert await router.rank(ask(model="assistant", cost=1)) == (QWEN, SOL, SONNET)
    assert await router.rank(ask("claude", model="assistant", cost=1)) == (SONNET, QWEN, SOL)
    assert await router.rank(ask("claude", model="assistant")) == (SONNET, SOL, QWEN)
    decision = await router.explain(ask(model="assistant", cost=1))
    assert decision.ranked[0] == RankedTarget(QWEN, True, ("free", "target 3 of 'assistant'"), 1.0)


TARGETS = st.builds(Target, st.sampled_from("abc"), st.sampled_from("xyz"))


@given(
    st.lists(TARGETS, max_size=6),
    st.lists(TARGETS, max_size=4),
    st.sets(TARGETS),
    st.lists(st.sampled_from(["a", "b/", "X", "c/z", "nothing"]), max_size=3),
)
def test_every_candidate_is_told_once_and_none_that_is_down_is_before_one_that_is_not(
    served: list[Target], others: list[Target], down: Collection[Target], hints: list[str]
) -> None:
    candidates = [Candidate(target, "served", 1) for target in served]
    candidates += [Candidate(target, "other", 1, only_if_hinted=True) for target in others]
    preferences = ModelPreferences(tuple(hints))
    ranked = order(distinct(candidates), preferences, Down(*down))
    decision = explained(None, ranked, preferences)
    assert decision.targets == tried(ranked, preferences)
    told: list[Any] = [each.target for each in (*decision.ranked, *decision.left_out)]
    assert sorted(map(str, told)) == sorted({str(target) for target in (*served, *others)})
    available = [each.available for each in decision.ranked]
    assert available == sorted(available, reverse=True)
    assert set(served) <= set(decision.targets)
