"""Subscribers hear every record once, in order, and none of them can harm a request."""

import asyncio
import logging
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import SamplingRequest, user
from penstock.contract.messages import Text
from penstock.telemetry.hooks import Hooks, current_attempt
from penstock.telemetry.recorder import Recorder
from penstock.telemetry.records import AttemptRecord, ConfigReloaded, Record, RequestContent
from tests.support.telemetry import ATTEMPT, ATTEMPTED, FINISHED, STARTED, attempted, play

CONTENT = RequestContent(
    "req_1", SamplingRequest(messages=(user("Hi"),), max_tokens=9), (Text(text="Hello"),)
)


def test_a_subscriber_hears_of_everything_in_its_order() -> None:
    hooks, recorder = Hooks(), Recorder()
    hooks.subscribe(recorder)
    play(hooks)
    assert recorder.records == [STARTED, ATTEMPT, ATTEMPTED, FINISHED]
    assert recorder.started == [STARTED]
    assert recorder.attempted == [ATTEMPT]
    assert recorder.attempts == [ATTEMPTED]
    assert recorder.requests == [FINISHED]
    assert recorder.contents == []
    recorder.clear()
    assert recorder.records == []


def test_whether_anybody_listens_is_known() -> None:
    hooks = Hooks()
    assert not hooks.active
    unsubscribe = hooks.subscribe(Recorder())
    assert hooks.active
    unsubscribe()
    unsubscribe()
    assert not hooks.active
    play(hooks)


def test_one_function_may_be_subscribed_twice_and_each_ends_on_its_own() -> None:
    hooks, recorder = Hooks(), Recorder()
    first = hooks.subscribe(recorder)
    hooks.subscribe(recorder)
    hooks.started(STARTED)
    first()
    first()
    hooks.finished(FINISHED)
    assert recorder.records == [STARTED, STARTED, FINISHED]


def test_content_is_told_only_to_those_who_asked_for_it() -> None:
    hooks, discreet, curious = Hooks(), Recorder(), Recorder()
    hooks.subscribe(discreet)
    assert not hooks.wants_content
    hooks.content(CONTENT)
    stop = hooks.subscribe(curious, content=True)
    assert hooks.wants_content
    hooks.content(CONTENT)
    assert curious.contents == [CONTENT]
    assert discreet.records == []
    stop()
    assert not hooks.wants_content


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()])
def test_a_failing_subscriber_is_logged_once_and_harms_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(record: Record) -> None:
        raise error

    hooks, before, after = Hooks(), Recorder(), Recorder()
    hooks.subscribe(before)
    hooks.subscribe(broken)
    hooks.subscribe(after)
    play(hooks)
    play(hooks)
    assert len(before.records) == len(after.records) == 8
    (logged,) = caplog.records
    assert logged.levelno == logging.ERROR
    assert "broken" in logged.getMessage()
    assert logged.exc_info is not None
    assert logged.exc_info[1] is error


def test_an_interrupt_by_the_user_is_no_failure_of_a_subscriber() -> None:
    def interrupted(record: Record) -> None:
        raise KeyboardInterrupt

    hooks = Hooks()
    hooks.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        hooks.started(STARTED)


def test_an_asynchronous_subscriber_is_refused() -> None:
    async def function(record: Record) -> None: ...

    class Thing:
        async def __call__(self, record: Record) -> None: ...

    for callback in (function, Thing()):
        with pytest.raises(TypeError, match="is asynchronous, and subscribers are called"):
            Hooks().subscribe(callback)  # pyright: ignore[reportArgumentType]


def test_subscribing_while_a_record_is_told_takes_effect_with_the_next() -> None:
    hooks, late = Hooks(), Recorder()
    ends: list[Callable[[], None]] = []

    def first(record: Record) -> None:
        if not ends:
            ends.append(hooks.subscribe(late))
        else:
            ends[0]()

    hooks.subscribe(first)
    hooks.started(STARTED)
    assert late.records == []
    hooks.attempt(ATTEMPTED)
    hooks.finished(FINISHED)
    assert late.records == [ATTEMPTED]


@given(st.lists(st.sampled_from(["add", "drop", "tell"]), max_size=30), st.randoms())
def test_each_subscription_hears_what_is_told_while_it_lasts(
    steps: list[str], random: Random
) -> None:
    hooks = Hooks()
    heard: list[list[int]] = []
    expected: list[list[int]] = []
    live: dict[int, Callable[[], None]] = {}
    for number, step in enumerate(steps):
        if step == "add":
            mine: list[int] = []
            heard.append(mine)
            expected.append([])

            def hear(record: Record, mine: list[int] = mine) -> None:
                assert isinstance(record, AttemptRecord)
                mine.append(record.number)

            live[len(heard) - 1] = hooks.subscribe(hear)
        elif step == "drop" and live:
            live.pop(random.choice(sorted(live)))()
        elif step == "tell":
            hooks.attempt(attempted(number=number))
            for index in live:
                expected[index].append(number)
    assert heard == expected
    assert hooks.active == bool(live)


async def test_the_current_attempt_is_that_of_the_running_task() -> None:
    hooks = Hooks()
    hooks.subscribe(Recorder())
    inside = asyncio.Event()
    leave = asyncio.Event()

    async def call() -> None:
        with hooks.attempting(ATTEMPT):
            inside.set()
            await leave.wait()
            assert current_attempt() == ATTEMPT
        assert current_attempt() is None

    task = asyncio.create_task(call())
    await inside.wait()
    assert current_attempt() is None
    leave.set()
    await task


def test_the_current_attempt_ends_with_an_error_too() -> None:
    hooks = Hooks()
    hooks.subscribe(Recorder())

    def call() -> None:
        with hooks.attempting(ATTEMPT):
            raise KeyError

    with pytest.raises(KeyError):
        call()
    assert current_attempt() is None


def test_what_belongs_to_no_request_is_told_too() -> None:
    hooks, recorder = Hooks(), Recorder()
    told = ConfigReloaded(source="penstock.toml", problem=None, at=0.0)
    hooks.happened(told)
    hooks.subscribe(recorder)
    hooks.happened(told)
    assert recorder.records == [told]
