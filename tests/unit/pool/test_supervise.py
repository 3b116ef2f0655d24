"""Children are restarted one for one, given up when it is no use, and never leave a task behind."""

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.background import LAST_WORDS_S, Backoff, ChildStatus, Restart, Supervisor
from tests.support.background import Job, Timers, cycles, until

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def timers() -> Timers:
    return Timers()


def supervisor_of(timers: Timers, *, intensity: int = 10, chance: float = 0.0) -> Supervisor:
    return Supervisor(
        intensity=intensity, clock=timers.clock, sleep=timers.sleep, chance=lambda: chance
    )


def others() -> set[asyncio.Task[object]]:
    """The tasks of this loop beside the test's own."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def crash(job: Job, error: BaseException) -> None:
    await until(lambda: job.running)
    job.crash(error)
    await until(lambda: not job.running)


async def test_children_start_in_their_order_and_stop_in_reverse(timers: Timers) -> None:
    diary: list[str] = []
    supervisor = supervisor_of(timers)
    for name in "abc":
        supervisor.add(name, Job(diary, name))
    assert [child.state for child in supervisor.children()] == ["stopped"] * 3
    async with supervisor:
        await until(lambda: len(diary) == 3)
        assert [child.state for child in supervisor.children()] == ["running"] * 3
    assert diary == ["start a", "start b", "start c", "end c", "end b", "end a"]
    assert supervisor.children() == [ChildStatus(name, "stopped") for name in "abc"]
    assert others() == set()


async def test_a_child_is_stopped_only_when_those_after_it_have_ended(timers: Timers) -> None:
    diary: list[str] = []
    tidied = asyncio.Event()

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            diary.append("tidying")
            await tidied.wait()

    supervisor = supervisor_of(timers)
    first = Job(diary, "first")
    supervisor.add("first", first)
    supervisor.add("second", tidy)
    async with supervisor:
        await until(lambda: first.running)
        closing = asyncio.create_task(supervisor.aclose())
        await until(lambda: "tidying" in diary)
        await cycles()
        assert first.running
        tidied.set()
        await closing
    assert diary == ["start first", "tidying", "end first"]


async def test_a_crash_restarts_that_child_alone_after_a_back_off(
    timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(timers)
    fragile, sound = Job(), Job()
    supervisor.add("fragile", fragile)
    supervisor.add("sound", sound)
    async with supervisor:
        await crash(fragile, ValueError("no luck"))
        await until(lambda: len(timers.sleepers) == 1)
        assert supervisor.children() == [
            ChildStatus("fragile", "restarting", 0, "ValueError: no luck"),
            ChildStatus("sound", "running"),
        ]
        assert timers.delays == [0.1]
        timers.wake()
        await until(lambda: fragile.running)
        assert supervisor.children()[0] == ChildStatus(
            "fragile", "running", 1, "ValueError: no luck"
        )
        assert sound.runs == 1
    assert "background work 'fragile' failed" in caplog.text


@pytest.mark.parametrize(
    ("restart", "end", "state"),
    [
        ("permanent", "finish", "restarting"),
        ("permanent", "crash", "restarting"),
        ("permanent", "lose", "restarting"),
        ("transient", "finish", "stopped"),
        ("transient", "crash", "restarting"),
        ("transient", "lose", "restarting"),
        ("temporary", "finish", "stopped"),
        ("temporary", "crash", "failed"),
        ("temporary", "lose", "failed"),
    ],
)
async def test_what_becomes_of_a_child_that_ends(
    timers: Timers, restart: Restart, end: Literal["finish", "crash", "lose"], state: str
) -> None:
    supervisor = supervisor_of(timers)
    job = Job()
    supervisor.add("job", job, restart)
    endings: dict[str, Callable[[], None]] = {
        "finish": job.finish,
        "crash": lambda: job.crash(OSError("gone")),
        "lose": job.lose,
    }
    async with supervisor:
        await until(lambda: job.running)
        endings[end]()
        await until(lambda: supervisor.children()[0].state != "running")
        (status,) = supervisor.children()
        assert status.state == state
        errors = {"finish": None, "crash": "OSError: gone", "lose": "CancelledError"}
        assert status.last_error == errors[end]
        await cycles()
        assert job.runs == 1
    final = "failed" if state == "failed" else "stopped"
    assert supervisor.children()[0].state == final


async def test_a_child_that_keeps_crashing_is_given_up_and_the_others_go_on(
    timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def hopeless() -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError(f"run {runs}")

    supervisor = Supervisor(clock=timers.clock, sleep=timers.instant, chance=lambda: 0.0)
    sound = Job()
    supervisor.add("hopeless", hopeless)
    supervisor.add("sound", sound)
    async with supervisor:
        await until(lambda: supervisor.children()[0].state == "failed")
        assert runs == 11
        assert supervisor.children() == [
            ChildStatus("hopeless", "failed", 10, "RuntimeError: run 11"),
            ChildStatus("sound", "running"),
        ]
        # The defaults wait longer than the period itself, so waiting must not count to it.
        assert timers.delays == [0.1 * 2**step for step in range(9)] + [30.0]
        assert sum(timers.delays) > 60
    assert [child.state for child in supervisor.children()] == ["failed", "stopped"]
    given_up = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "'hopeless' is given up: more than 10 restarts in 60 s" in given_up[0].getMessage()


async def test_a_permanent_child_that_keeps_returning_is_given_up_as_well(timers: Timers) -> None:
    async def hasty() -> None:
        return

    supervisor = Supervisor(intensity=2, clock=timers.clock, sleep=timers.instant)
    supervisor.add("hasty", hasty)
    async with supervisor:
        await until(lambda: supervisor.children()[0].state == "failed")
    assert supervisor.children() == [
        ChildStatus("hasty", "failed", 2, "it ended without an error, again and again")
    ]


async def test_crashes_far_apart_are_forgotten_and_so_is_the_back_off(timers: Timers) -> None:
    supervisor = supervisor_of(timers, intensity=2)
    job = Job()
    supervisor.add("job", job)
    async with supervisor:
        for run_s in (0, 0, 60, 30, 30, 30, 30):
            await until(lambda: job.running)
            timers.now += run_s
            await crash(job, ValueError())
            await until(lambda: bool(timers.sleepers))
            timers.wake()
        await until(lambda: job.running)
        assert supervisor.children()[0].restarts == 7
        assert timers.delays == [0.1, 0.2, 0.1, 0.2, 0.2, 0.2, 0.2]


@given(
    st.integers(0, 5000),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.001, 10),
    st.floats(0.001, 1000),
    st.floats(0, 1),
)
def test_the_back_off_grows_to_its_cap_and_jitter_only_shortens_it(
    restarts: int, chance: float, base_s: float, cap_s: float, jitter: float
) -> None:
    backoff = Backoff(base_s, cap_s, jitter)
    whole = [backoff.delay(number, 0.0) for number in range(70)]
    assert all(before <= after <= cap_s for before, after in pairwise(whole))
    assert whole[0] == min(base_s, cap_s)
    longest = backoff.delay(restarts, 0.0)
    assert longest * (1 - jitter) <= backoff.delay(restarts, chance) <= longest


async def test_a_child_in_its_back_off_is_stopped_at_once(timers: Timers) -> None:
    supervisor = supervisor_of(timers)
    job = Job()
    supervisor.add("job", job)
    async with supervisor:
        await crash(job, ValueError("x"))
        await until(lambda: bool(timers.sleepers))
    assert supervisor.children() == [ChildStatus("job", "stopped", 0, "ValueError: x")]
    assert timers.sleepers == []
    assert others() == set()


async def test_a_child_that_fails_while_it_stops_is_not_started_again(timers: Timers) -> None:
    runs = 0

    async def messy() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("disk full")

    supervisor = supervisor_of(timers)
    supervisor.add("messy", messy)
    async with supervisor:
        await until(lambda: runs == 1)
    assert supervisor.children() == [ChildStatus("messy", "stopped", 0, "OSError: disk full")]
    assert runs == 1
    assert others() == set()


async def test_a_child_that_catches_its_cancellation_and_returns_is_stopped(
    timers: Timers,
) -> None:
    runs = 0

    async def polite() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    supervisor = supervisor_of(timers)
    supervisor.add("polite", polite)
    async with supervisor:
        await until(lambda: runs == 1)
    assert runs == 1
    assert supervisor.children() == [ChildStatus("polite", "stopped")]


async def test_after_the_grace_period_the_rest_is_cancelled_together(timers: Timers) -> None:
    diary: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    supervisor = supervisor_of(timers)
    first, second = Job(diary, "first"), Job(diary, "second")
    supervisor.add("first", first)
    supervisor.add("second", second)
    supervisor.add("slow", slow)
    async with supervisor:
        await until(lambda: second.running)
        closing = asyncio.create_task(supervisor.aclose(grace_s=7.0))
        await until(lambda: timers.delays == [7.0])
        await cycles()
        assert first.running
        assert second.running
        timers.wake()
        await closing
    assert timers.delays == [7.0, LAST_WORDS_S]
    assert sorted(diary[2:]) == ["end first", "end second"]
    assert [child.state for child in supervisor.children()] == ["stopped"] * 3
    assert others() == set()


async def test_a_child_that_never_stops_is_named_and_left_behind(
    timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    enough = asyncio.Event()
    cancelled = 0

    async def stubborn() -> None:
        nonlocal cancelled
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                cancelled += 1

    supervisor = Supervisor(clock=timers.clock, sleep=timers.instant)
    supervisor.add("stubborn", stubborn)
    try:
        async with supervisor:
            await cycles()
            await supervisor.aclose(grace_s=3.0)
        assert cancelled == 3
        assert timers.delays == [3.0, LAST_WORDS_S, LAST_WORDS_S]
        (status,) = supervisor.children()
        assert status.state == "failed"
        assert status.last_error == "it did not stop within 3 s, though cancelled"
        assert "'stubborn' does not stop, and is left behind" in caplog.text
    finally:
        enough.set()
        await until(lambda: others() == set())


async def test_cancelling_the_close_cancels_the_children_and_leaves_no_task(
    timers: Timers,
) -> None:
    diary: list[str] = []
    tidied = 0

    async def tidy() -> None:
        nonlocal tidied
        try:
            await asyncio.Event().wait()
        finally:
            diary.append("tidying")
            await cycles(50)
            tidied += 1

    supervisor = supervisor_of(timers)
    for name in "ab":
        supervisor.add(name, tidy)
    async with supervisor:
        await cycles()
        closing = asyncio.create_task(supervisor.aclose())
        await until(lambda: diary == ["tidying"])
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert diary == ["tidying"] * 2
        assert others() == set()
    assert [child.state for child in supervisor.children()] == ["stopped"] * 2
    assert tidied == 1, "the one whose turn had not come was not cancelled a second time"


async def test_a_supervisor_that_is_left_at_once_stops_what_it_started(timers: Timers) -> None:
    job = Job()
    supervisor = supervisor_of(timers)
    supervisor.add("job", job)
    async with supervisor:
        pass
    assert not job.running
    assert supervisor.children() == [ChildStatus("job", "stopped")]
    assert others() == set()


async def test_an_error_in_the_block_stops_the_children_and_goes_on(timers: Timers) -> None:
    job = Job()
    supervisor = supervisor_of(timers)
    supervisor.add("job", job)

    async def fail_inside() -> None:
        async with supervisor:
            await until(lambda: job.running)
            raise KeyError

    with pytest.raises(KeyError):
        await fail_inside()
    assert not job.running
    assert others() == set()


def test_the_end_of_the_loop_stops_children_that_nobody_closed() -> None:
    timers = Timers()
    supervisor = supervisor_of(timers)
    job = Job()
    supervisor.add("job", job)

    async def forget() -> None:
        await supervisor.__aenter__()
        await until(lambda: job.running)

    asyncio.run(forget())
    assert job.runs == 1
    assert supervisor.children() == [ChildStatus("job", "stopped")]


async def test_a_child_that_is_added_late_starts_at_once(timers: Timers) -> None:
    supervisor = supervisor_of(timers)
    async with supervisor:
        job = Job()
        supervisor.add("late", job)
        await until(lambda: job.running)
    assert not job.running


async def test_names_are_unique_and_a_supervisor_runs_once(timers: Timers) -> None:
    supervisor = supervisor_of(timers)
    supervisor.add("job", Job())
    with pytest.raises(ValueError, match="a child 'job' already"):
        supervisor.add("job", Job())
    async with supervisor:
        with pytest.raises(RuntimeError, match="runs once"):
            await supervisor.__aenter__()
    await supervisor.aclose()
    with pytest.raises(RuntimeError, match="'more' comes too late"):
        supervisor.add("more", Job())
    with pytest.raises(RuntimeError, match="runs once"):
        await supervisor.__aenter__()


@pytest.mark.parametrize(("intensity", "period_s"), [(-1, 60.0), (10, 0.0), (10, -1.0)])
def test_limits_that_mean_nothing_are_refused(intensity: int, period_s: float) -> None:
    with pytest.raises(ValueError, match="at least 0 restarts in more than 0 seconds"):
        Supervisor(intensity=intensity, period_s=period_s)


async def test_a_long_error_is_cut_for_health(timers: Timers) -> None:
    supervisor = supervisor_of(timers, intensity=0)
    job = Job()
    supervisor.add("job", job)
    async with supervisor:
        await crash(job, ValueError("x" * 10_000))
        await until(lambda: supervisor.children()[0].state == "failed")
    error = supervisor.children()[0].last_error
    assert error is not None
    assert len(error) == 504
    assert error.startswith("ValueError: xxx")


async def test_real_time_and_luck_are_the_defaults() -> None:
    supervisor = Supervisor(backoff=Backoff(base_s=0.0))
    runs = 0

    async def fragile() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError
        await asyncio.Event().wait()

    supervisor.add("fragile", fragile)
    async with supervisor:
        await until(lambda: runs == 3)
        assert supervisor.children() == [ChildStatus("fragile", "running", 2, "ValueError")]
    assert others() == set()


async def test_a_child_whose_own_time_is_up_at_that_moment_is_stopped_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun: list[asyncio.Task[object]] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        begun.append(task)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As a time-out within the work does, which then goes on unless somebody else cancels.
            if task.uncancel():
                raise
        await asyncio.Event().wait()

    async with Supervisor(grace_s=1.0) as supervisor:
        supervisor.add("work", work)
        await until(lambda: bool(begun))
        closing = asyncio.create_task(supervisor.aclose())
        await asyncio.sleep(0)
        # Between the supervisor's resolve and its deed.
        begun[0].cancel()
        await closing
    assert supervisor.children()[0].state == "stopped"
    assert "did not end" not in caplog.text
