"""Which pause comes before a retry, and that retries stay a fraction of the traffic."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.pool.backoff import RetryBudget, pause_s

DOWN = ProviderUnavailable("503")
FINAL: list[PenstockError] = [
    AuthenticationFailed("401"),
    ContentRejected("no"),
    InvalidRequest("400"),
    ProviderTimeout("silent"),
    ProviderTimeout("silent", retryable=True, retry_after=1.0),
    RateLimited("no credit", retryable=False, retry_after=1.0),
]


def always(value: float) -> Callable[[], float]:
    return lambda: value


@pytest.mark.parametrize("retry", [1, 2, 3, 4, 5, 6, 7, 5000])
def test_the_pause_is_anything_up_to_a_ceiling_that_doubles_to_its_cap(retry: int) -> None:
    ceiling = {1: 0.25, 2: 0.5, 3: 1.0, 4: 2.0, 5: 4.0}.get(retry, 8.0)
    pauses = [pause_s(DOWN, retry, longest_s=60, random=always(r)) for r in (0.0, 0.5, 1.0)]
    assert pauses == [0.0, ceiling / 2, ceiling]


def test_base_and_cap_may_be_chosen() -> None:
    pauses = [
        pause_s(DOWN, n, base_s=1, cap_s=3, longest_s=60, random=always(1)) for n in (1, 2, 3)
    ]
    assert pauses == [1, 2, 3]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_what_cannot_succeed_and_a_silent_target_are_not_asked_again(error: PenstockError) -> None:
    assert pause_s(error, 1, longest_s=60, random=always(0.5)) is None


@pytest.mark.parametrize("error", [DOWN, MalformedResponse("?"), StreamInterrupted("cut")])
def test_what_may_succeed_is_asked_again(error: PenstockError) -> None:
    assert pause_s(error, 1, longest_s=60, random=always(0.5)) == 0.125


@pytest.mark.parametrize("error", [RateLimited("429", retry_after=4.0)])
@pytest.mark.parametrize("retry", [1, 9])
def test_the_pause_that_a_provider_asks_for_is_kept_and_jittered_upwards(
    error: PenstockError, retry: int
) -> None:
    pauses = [pause_s(error, retry, longest_s=60, random=always(r)) for r in (0.0, 0.5, 1.0)]
    assert pauses == pytest.approx([4.0, 4.2, 4.4])


def test_a_pause_that_is_too_long_is_not_waited_for() -> None:
    error = ProviderUnavailable("503", retry_after=30.0)
    assert pause_s(error, 1, longest_s=29.9, random=always(0)) is None
    assert pause_s(error, 1, longest_s=30, random=always(1)) == 30, "jitter broke the limit"


def test_at_once_still_spreads_the_retries() -> None:
    error = RateLimited("429", retry_after=0.0)
    assert pause_s(error, 1, longest_s=60, random=always(1)) == 0.25


def test_nothing_is_waited_for_when_the_time_is_over() -> None:
    assert pause_s(DOWN, 1, longest_s=-0.1, random=always(0)) is None
    assert pause_s(DOWN, 9, longest_s=0.75, random=always(1)) == 0.75


@given(
    retry=st.integers(1, 10_000),
    base=st.floats(0.001, 10),
    cap=st.floats(0.001, 100),
    longest=st.floats(0, 100),
    asked=st.none() | st.floats(0, 200),
    seed=st.integers(),
)
def test_a_pause_is_between_what_was_asked_for_and_the_limits(
    *, retry: int, base: float, cap: float, longest: float, asked: float | None, seed: int
) -> None:
    pause = pause_s(
        RateLimited("429", retry_after=asked),
        retry,
        base_s=base,
        cap_s=cap,
        longest_s=longest,
        random=random.Random(seed).random,
    )
    if asked is not None and asked > longest:
        assert pause is None
    else:
        assert pause is not None
        assert (asked or 0) <= pause <= longest
        assert pause <= (asked * 1.1 + 1e-9 if asked else cap)


def test_the_first_retries_are_free_and_then_every_fifth_request_pays_for_one() -> None:
    budget = RetryBudget(ratio=0.2, floor=2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    spent: list[bool] = []
    for _ in range(20):
        budget.request()
        spent.append(budget.spend())
    assert spent == [False, False, False, False, True] * 4


def test_a_quiet_time_saves_no_more_than_the_most() -> None:
    budget = RetryBudget(ratio=0.5, floor=1, most=3)
    assert budget.left == 1
    for _ in range(1000):
        budget.request()
    assert budget.left == 3
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
    assert budget.left == 0


def test_the_most_is_never_below_the_floor() -> None:
    budget = RetryBudget(floor=10, most=5)
    budget.request()
    assert budget.left == 10


@pytest.mark.parametrize("ratio", [-0.1, 1.5, 20, float("nan")])
def test_a_ratio_that_is_no_share_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"ratio=.*from 0 to 1"):
        RetryBudget(ratio=ratio)


@given(
    ratio=st.integers(0, 1000),
    floor=st.integers(0, 20),
    most=st.integers(0, 30),
    steps=st.lists(st.booleans(), max_size=300),
)
def test_retries_never_exceed_their_share_of_the_requests(
    ratio: int, floor: int, most: int, steps: list[bool]
) -> None:
    budget = RetryBudget(ratio / 1000, floor, most)
    requests = retries = 0
    for is_request in steps:
        if is_request:
            budget.request()
            requests += 1
        else:
            had = budget.left
            assert budget.spend() == (had > 0)
            retries += had > 0
        assert 0 <= budget.left <= max(floor, most)
        assert retries * 1000 <= floor * 1000 + ratio * requests
