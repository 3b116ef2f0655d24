"""Limits of a sliding minute, by a clock of the test's own."""

import contextlib
import multiprocessing
import random
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.keys.rate_limit import WINDOW_S, AnyWindow, Step, Window
from penstock.keys.shared_rate_limit import SharedWindows
from tests.support.clock import ManualClock

Made = Callable[[int, ManualClock], AbstractContextManager[AnyWindow]]


@contextlib.contextmanager
def own(limit: int, clock: ManualClock) -> Generator[AnyWindow]:
    """A window of this process."""
    yield Window(limit, clock)


@contextlib.contextmanager
def shared(limit: int, clock: ManualClock) -> Generator[AnyWindow]:
    """One of several processes, of which there is but this one."""
    with tempfile.TemporaryDirectory() as folder:
        windows = SharedWindows(Path(folder, "limits"), 4, clock)
        try:
            yield windows("ci/requests", limit)
        finally:
            windows.close()


both = pytest.mark.parametrize("made", [own, shared])

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


@both
@given(STEPS, st.integers(1, 20), st.floats(0, 1e6))
def test_no_minute_whatever_has_more_than_the_limit(
    made: Made, steps: list[tuple[float, int]], limit: int, start: float
) -> None:
    clock = ManualClock(start)
    taken: list[tuple[float, int]] = []
    with made(limit, clock) as window:
        for pause, amount in steps:
            clock.now += pause
            if window.take(amount) is not None:
                taken.append((clock.now, amount))
            assert 0 <= window.remaining <= limit
    assert most_in_any_window(taken) <= limit


@both
@given(STEPS, st.integers(1, 20))
def test_what_is_refused_is_let_in_after_the_time_that_was_named(
    made: Made, steps: list[tuple[float, int]], limit: int
) -> None:
    clock = ManualClock()
    with made(limit, clock) as window:
        for pause, amount in steps:
            clock.now += pause
            if window.take(amount) is None and amount <= limit:
                wait = window.wait_s(amount)
                assert 0 < wait <= WINDOW_S + 1
                clock.now += wait + 1e-6
                assert window.take(amount) is not None


@given(st.lists(st.tuples(PAUSES, st.integers(0, 5), st.integers(-5, 9)), max_size=60))
def test_a_shared_window_decides_as_one_of_a_single_process(
    calls: list[tuple[float, int, int]],
) -> None:
    clock = ManualClock(1000.0)
    with own(20, clock) as alone, shared(20, clock) as together:
        for pause, amount, difference in calls:
            clock.now += pause
            steps = [window.take(amount) for window in (alone, together)]
            assert (steps[0] is None) == (steps[1] is None)
            clock.now += pause / 2
            for window, step in zip((alone, together), steps, strict=True):
                if step is not None and amount + difference >= 0:
                    window.correct(step, difference)
            assert alone.remaining == together.remaining
            assert alone.wait_s(amount) == together.wait_s(amount)


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


def take_all(file: Path, tries: int) -> int:
    windows = SharedWindows(file)
    window = windows("ci/requests", 500)
    taken = sum(window.take(1) is not None for _ in range(tries))
    windows.close()
    return taken


def test_processes_together_take_no_more_than_the_limit(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        taken = pool.starmap(take_all, [(tmp_path / "limits", 400)] * 3)
    # A minute is long enough for all of them on any machine.
    assert sum(taken) == 500


def test_windows_are_told_apart_by_their_names(tmp_path: Path) -> None:
    windows = SharedWindows(tmp_path / "limits", 4)
    several = [windows(name, 1) for name in ("a/requests", "a/tokens", "b/requests", "c/requests")]
    assert all(window.take(1) is not None for window in several)
    assert all(window.take(1) is None for window in several)
    again = SharedWindows(tmp_path / "limits", 4)
    assert again("a/tokens", 1).take(1) is None
    again.close()
    windows.close()


def test_more_windows_than_there_is_room_for_count_by_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    windows = SharedWindows(tmp_path / "limits", 1)
    assert not isinstance(windows("a", 1), Window)
    alone = windows("b", 1)
    assert isinstance(alone, Window)
    assert "each process counts by itself" in caplog.text
    windows.close()


def test_a_process_that_died_between_two_numbers_is_forgotten_in_a_second(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    windows = SharedWindows(tmp_path / "limits", 4, clock)
    window = windows("ci", 10)
    assert window.take(3) is not None
    numbers = windows._numbers  # pyright: ignore[reportPrivateUsage]
    numbers[window._place + 2] = 9  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert window.take(2) is None
    clock.now += 1
    assert window.take(7) is not None
    windows.close()
