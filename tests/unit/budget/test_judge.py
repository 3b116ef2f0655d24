"""What is admitted, what is held for it, and what a refusal says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.budget.admission import Admission, judge
from penstock.budget.ports import Reservation
from penstock.budget.pricing.amounts import NANOS
from penstock.budget.rules import Budget, Rule, Rules
from penstock.contract.errors import BudgetExceeded
from penstock.contract.ports import Target

NOON = 1_777_636_800.0  # 2026-05-01 12:00 UTC
A, B, C = Target("a", "m"), Target("b", "m"), Target("c", "m")


def judged(
    candidates: list[tuple[Target, int]], budgets: list[Budget], taken: dict[str, int]
) -> Admission | BudgetExceeded:
    rules = Rules(Rule(number, budget) for number, budget in enumerate(budgets))
    asked = Reservation("r", candidates, None, {}, NOON, 60)
    return judge(asked, rules, lambda id, _: taken.get(rules.by_id[id].budget.name, 0))


def test_a_budget_holds_the_dearest_target_that_it_covers() -> None:
    budgets = [
        Budget(name="all", limit_nanos=100),
        Budget(name="of a", limit_nanos=100, provider="a"),
        Budget(name="of c", limit_nanos=100, provider="c"),
    ]
    found = judged([(A, 30), (B, 50)], budgets, {})
    assert isinstance(found, Admission)
    assert found.targets == (A, B)
    assert (found.dearest, found.amount_nanos) == (B, 50)
    assert {posting.budget: posting.held for posting in found.postings} == {0: 50, 1: 30}


def test_a_target_whose_own_budget_is_spent_is_left_out_with_the_reason() -> None:
    budgets = [
        Budget(name="all", limit_nanos=100, period="day"),
        Budget(name="of b", limit_nanos=60, provider="b", period="day"),
    ]
    found = judged([(A, 30), (B, 50)], budgets, {"of b": 11})
    assert isinstance(found, Admission)
    assert found.targets == (A,)
    assert [posting.held for posting in found.postings] == [30]
    (left_out,) = found.left_out
    assert (left_out.target, left_out.budget) == (B, "of b")
    assert (left_out.asked_nanos, left_out.remaining_nanos) == (50, 49)
    assert left_out.resets_at == NOON + 12 * 3600
    assert "'of b' has $0.000000049 left of $0.00000006 (day)" in left_out.reason


def test_what_is_free_is_never_refused() -> None:
    found = judged([(A, 0)], [Budget(name="all", limit_nanos=5)], {"all": 9})
    assert isinstance(found, Admission)


def test_a_soft_budget_never_refuses_and_still_counts() -> None:
    found = judged([(A, 50)], [Budget(name="soft", limit_nanos=5, hard=False)], {"soft": 9})
    assert isinstance(found, Admission)
    assert [posting.held for posting in found.postings] == [50]


def test_a_refusal_names_the_budget_and_when_it_is_worth_to_come_again() -> None:
    budget = Budget(name="total", limit_nanos=2 * NANOS, period="day", timezone="Asia/Tokyo")
    found = judged([(A, NANOS)], [budget], {"total": 3 * NANOS // 2})
    assert isinstance(found, BudgetExceeded)
    assert found.budget == "total"
    assert (found.limit_nanos, found.asked_nanos) == (2 * NANOS, NANOS)
    assert found.remaining_nanos == NANOS // 2
    assert found.resets_at == NOON + 3 * 3600
    assert found.retry_after == 3 * 3600
    assert str(found) == (
        "budget 'total' has $0.50 left of $2.00 (day), and a/m may cost $1.00; "
        "it resets at 2026-05-01 15:00:00 UTC"
    )


@pytest.mark.parametrize("period", ["day", "forever"])
def test_who_can_never_fit_is_not_told_to_come_again(period: str) -> None:
    budget = Budget(name="total", limit_nanos=5, period=period)  # pyright: ignore[reportArgumentType]
    asked = 6 if period == "day" else 4
    found = judged([(A, asked)], [budget], {"total": 3})
    assert isinstance(found, BudgetExceeded)
    assert found.retry_after is None
    assert "raise" in str(found)


def test_of_several_the_one_that_is_free_first_is_named_and_by_what_holds_it_longest() -> None:
    budgets = [
        Budget(name="hour of a", limit_nanos=9, provider="a", period="hour"),
        Budget(name="day of a", limit_nanos=9, provider="a", period="day"),
        Budget(name="week of b", limit_nanos=9, provider="b", period="week"),
        Budget(name="never of c", limit_nanos=1, provider="c", period="hour"),
    ]
    taken = dict.fromkeys([budget.name for budget in budgets], 8)
    found = judged([(C, 3), (B, 2), (A, 2)], budgets, taken)
    assert isinstance(found, BudgetExceeded)
    assert (found.budget, found.retry_after) == ("day of a", 12 * 3600)
    assert "2 other targets did not fit either" in str(found)


AMOUNTS = st.integers(0, 100)


@given(
    candidates=st.lists(st.tuples(st.sampled_from([A, B, C]), AMOUNTS), min_size=1, max_size=4),
    limits=st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), AMOUNTS, AMOUNTS, st.booleans()),
        max_size=5,
    ),
)
def test_exactly_what_fits_is_admitted_and_no_hold_is_above_what_is_left(
    candidates: list[tuple[Target, int]], limits: list[tuple[str | None, int, int, bool]]
) -> None:
    budgets = [
        Budget(name=str(number), limit_nanos=limit, provider=provider, hard=hard)
        for number, (provider, limit, _, hard) in enumerate(limits)
    ]
    taken = {str(number): used for number, (_, _, used, _) in enumerate(limits)}

    def fits(target: Target, cost: int) -> bool:
        return cost == 0 or all(
            cost <= limit - used
            for provider, limit, used, hard in limits
            if hard and provider in (None, target.provider)
        )

    found = judged(candidates, budgets, taken)
    expected = [target for target, cost in candidates if fits(target, cost)]
    if isinstance(found, BudgetExceeded):
        assert not expected
        assert found.asked_nanos is not None
        assert found.remaining_nanos is not None
        assert found.asked_nanos > found.remaining_nanos
        return
    assert list(found.targets) == expected
    assert len(found.left_out) == len(candidates) - len(expected)
    for posting in found.postings:
        _, limit, used, hard = limits[posting.budget]
        assert not hard or posting.held == 0 or posting.held <= limit - used
