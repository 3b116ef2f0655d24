"""Limits of a sliding minute, by a clock of the test's own."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.keys.windows import WINDOW_S, Step, Window
from tests.support.clock import ManualClock

PAUSES = st.sampled_from([0.0, 0.001, 0.4, 0.999, 1.0, 1.5, 13.0, 59.0, 60.0, 61.0, 200.0])
STEPS = st.lists(st.tuples(PAUSES, st.integers(0, 7)), max_size=120)


def most_in_any_window(taken: list[tuple[float, int]]) -> int:
    """The largest sum within any 60 seconds, both ends included."""
    return max(
        (
            sum(amount for at, amount in taken if start <= at <= start + WINDOW_S)
            for start, _ in taken
        ),
        default=0,
    )


@given(STEPS, st.integers(1, 20), st.floats(0, 1e6))
def test_no_minute_whatever_has_more_than_the_limit(
    steps: list[tuple[float, int]], limit: int, start: float
) -> None:
    clock = ManualClock(start)
    window = Window(limit, clock)
    taken: list[tuple[float, int]] = []
    for pause, amount in steps:
        clock.now += pause
        if window.take(amount) is not None:
            taken.append((clock.now, amount))
        assert 0 <= window.remaining <= limit
    assert most_in_any_window(taken) <= limit


@given(STEPS, st.integers(1, 20))
def test_what_is_refused_is_let_in_after_the_time_that_was_named(
    steps: list[tuple[float, int]], limit: int
) -> None:
    clock = ManualClock()
    window = Window(limit, clock)
    for pause, amount in steps:
        clock.now += pause
        if window.take(amount) is None and amount <= limit:
            wait = window.wait_s(amount)
            assert 0 < wait <= WINDOW_S + 1
            clock.now += wait + 1e-6
            assert window.take(amount) is not None


@given(
    st.lists(
        st.tuples(PAUSES, st.integers(0, 5), st.integers(0, 9), st.floats(0, 130)), max_size=40
    )
)
def test_corrections_never_leave_anything_behind(
    calls: list[tuple[float, int, int, float]],
) -> None:
    clock = ManualClock()
    window = Window(30, clock)
    open_calls: list[tuple[float, Step, int]] = []
    for pause, expected, used, lasts in calls:
        clock.now += pause
        for each in [each for each in open_calls if each[0] <= clock.now]:
            window.correct(each[1], each[2])
            open_calls.remove(each)
        if (step := window.take(expected)) is not None:
            open_calls.append((clock.now + lasts, step, used - expected))
    for _, step, difference in open_calls:
        window.correct(step, difference)
    assert window.used >= 0
    clock.now += WINDOW_S + 1.001
    assert (window.left(), window.used) == ((30, 0.0), 0)


def test_a_window_stays_small_whatever_goes_through_it() -> None:
    clock = ManualClock()
    window = Window(10**9, clock)
    chance = random.Random(1)
    for _ in range(20_000):
        clock.now += chance.random() / 10
        assert window.take(1) is not None
    assert len(window._steps) <= WINDOW_S + 2  # pyright: ignore[reportPrivateUsage]


def test_less_than_expected_makes_room_and_more_takes_it() -> None:
    clock = ManualClock()
    window = Window(100, clock)
    step = window.take(90)
    assert step is not None
    assert window.take(11) is None
    window.correct(step, -80)
    assert window.remaining == 90
    window.correct(step, 200)
    assert window.remaining == 0
    assert window.take(1) is None
    clock.now += WINDOW_S + 1
    # Its minute is over: what comes out as less is not given back a second time.
    window.correct(step, -50)
    assert (window.used, window.remaining) == (0, 100)
    window.correct(step, 7)
    assert window.used == 7
