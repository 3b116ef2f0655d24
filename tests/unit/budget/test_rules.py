"""Which budgets a request touches, and what a budget may not be."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.budget.pricing.amounts import MOST, dollars
from penstock.budget.rules import Budget, Rule, Rules
from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Target

PROVIDERS = st.sampled_from(["claude", "openai", "local"])
MODELS = st.sampled_from(["small", "large", "vendor/large"])
KEYS = st.sampled_from(["ci", "app"])
TAGS = st.dictionaries(st.sampled_from(["team", "user"]), st.sampled_from(["a", "b"]))
BUDGETS = st.builds(
    Budget,
    name=st.uuids().map(str),
    limit_nanos=st.just(1),
    provider=st.none() | PROVIDERS,
    model=st.none() | MODELS | st.builds("{}/{}".format, PROVIDERS, MODELS),
    key=st.none() | KEYS,
    tags=TAGS,
)


def covers(budget: Budget, target: Target, key: str | None, tags: Mapping[str, str]) -> bool:
    """The definition, one budget at a time."""
    return (
        budget.provider in (None, target.provider)
        and budget.model in (None, target.model, str(target))
        and budget.key in (None, key)
        and all(tags.get(name) == value for name, value in budget.tags.items())
    )


@given(
    budgets=st.lists(BUDGETS, max_size=30),
    target=st.builds(Target, PROVIDERS, MODELS),
    key=st.none() | KEYS,
    tags=TAGS,
)
def test_the_index_finds_what_the_definition_says(
    budgets: list[Budget], target: Target, key: str | None, tags: dict[str, str]
) -> None:
    rules = Rules(Rule(number, budget) for number, budget in enumerate(budgets))
    found = [rule.budget.name for rule in rules.matching(target, key, tags)]
    expected = [each.name for each in budgets if covers(each, target, key, tags)]
    assert sorted(found) == sorted(expected)


def test_without_a_target_only_those_match_that_ask_for_none() -> None:
    budgets = [
        Budget(name="all", limit_nanos=1),
        Budget(name="provider", limit_nanos=1, provider="claude"),
        Budget(name="model", limit_nanos=1, model="large"),
        Budget(name="key", limit_nanos=1, key="ci"),
    ]
    rules = Rules(Rule(number, budget) for number, budget in enumerate(budgets))
    assert {rule.budget.name for rule in rules.matching(None, "ci", {})} == {"all", "key"}


def test_a_thousand_budgets_cost_no_more_look_ups_than_the_ways_they_are_narrowed() -> None:
    class Counting(str):
        """A name that counts how often it is compared or hashed."""

        __slots__ = ()
        asked = 0

        def __hash__(self) -> int:
            Counting.asked += 1
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            Counting.asked += 1
            return super().__eq__(other)

    def asked(number: int) -> int:
        rules = Rules(
            Rule(each, Budget(name=f"b{each}", limit_nanos=1, key=f"key-{each}"))
            for each in range(number)
        )
        Counting.asked = 0
        assert len(rules.matching(Target("p", "m"), Counting("key-7"), {})) == 1
        return Counting.asked

    assert asked(1000) == asked(10) > 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"limit_nanos": -1}, "limit_nanos=-1"),
        ({"limit_nanos": MOST + 1}, "limit_nanos=10000"),
        ({"limit_nanos": 1.5}, "whole nano-dollars"),
        ({"limit_nanos": True}, "whole nano-dollars"),
        ({"name": ""}, "give it a name"),
        ({"period": "fortnight"}, "'fortnight' is not known: give hour, day"),
        ({"timezone": "Mars/Olympus"}, "'Mars/Olympus' is not known"),
        ({"provider": ""}, "provider is empty"),
        ({"key": ""}, "key is empty"),
        ({"warn_at": (0.0,)}, "warn_at has 0.0"),
        ({"warn_at": (float("nan"),)}, "warn_at has nan"),
    ],
)
def test_nonsense_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    fields: dict[str, object] = {"name": "total", "limit_nanos": 5, **wrong}
    with pytest.raises(ConfigurationError) as caught:
        Budget(**fields)  # pyright: ignore[reportArgumentType]
    assert said in str(caught.value)


def test_thresholds_are_exact_and_a_soft_budget_warns_at_its_limit() -> None:
    limit = 10**17 + 1
    hard = Budget(name="h", limit_nanos=limit, warn_at=(0.9, 0.8))
    assert hard.thresholds == (limit * 8 // 10, limit * 9 // 10)
    soft = Budget(name="s", limit_nanos=limit, hard=False)
    assert soft.thresholds == (limit * 8 // 10, limit)


@pytest.mark.parametrize(
    ("nanos", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (12_500_000_000, "$12.50"),
        (-1_230_000_000, "-$1.23"),
        (10**18 + 1, "$1000000000.000000001"),
    ],
)
def test_money_is_shown_exactly(nanos: int, shown: str) -> None:
    assert dollars(nanos) == shown
