"""A pause that a target asks for is the target's, whichever request has heard of it."""

import asyncio
import time

import pytest

from penstock.contract.errors import (
    AllTargetsFailed,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.ports import Provider, Target
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.targets.breaker import BreakerSettings
from penstock.pool.targets.states import Pause, TargetState, TargetStates
from tests.support import stub
from tests.support.clock import ManualClock
from tests.support.stub import HELLO, StubProvider

REQUEST = SamplingRequest(messages=(user("hi"),), max_tokens=9)
FIRST, SECOND = Target("first", "m"), Target("second", "m")
LIMITED = RateLimited("slow down", retry_after=120)


class Two:
    """Two targets; the clock of their states stands still."""

    def __init__(self, first: PenstockError = LIMITED, *, retries: int = 2) -> None:
        self.clock = ManualClock()
        self.first = StubProvider([first], name="first")
        self.second = StubProvider(name="second")
        providers: dict[str, Provider] = {"first": self.first, "second": self.second}
        self.shared: list[Pause] = []
        states = TargetStates(BreakerSettings(failures=1000), clock=self.clock)
        states.on_pause = self.shared.append
        self.pool = FailoverPool(
            providers.__getitem__, states=states, settings=RetrySettings(retries=retries)
        )
        self.states = states

    async def ask(self, *targets: Target) -> str:
        attempt, _ = await self.pool.generate(targets or (FIRST, SECOND), REQUEST)
        return attempt.target.provider


def failed(state: TargetState, error: PenstockError) -> None:
    permit = state.breaker.allow()
    assert permit is not None
    state.failed(permit, error)


@pytest.mark.parametrize(
    "error", [LIMITED, ProviderUnavailable("overloaded", retry_after=120)], ids=["429", "503"]
)
async def test_a_target_in_a_pause_is_not_asked_while_another_can_answer(
    error: PenstockError,
) -> None:
    two = Two(error)
    assert [await two.ask() for _ in range(5)] == ["second"] * 5
    assert len(two.first.requests) == 1
    two.clock.now += 119
    assert await two.ask() == "second"
    assert len(two.first.requests) == 1
    two.clock.now += 2
    two.first.steps = HELLO
    assert await two.ask() == "first"


async def test_streams_spare_it_as_well() -> None:
    two = Two()
    for _ in range(3):
        async with two.pool.open((FIRST, SECOND), REQUEST) as opened:
            assert opened.attempt.target == SECOND
            async for _ in opened.batches:
                pass
    assert len(two.first.requests) == 1


async def test_a_pause_that_begins_while_a_request_is_under_way_is_heeded() -> None:
    two = Two()
    spare = StubProvider(name="spare")
    broken = StubProvider([ProviderUnavailable("down")], name="broken")
    pause = stub.Pause()
    broken.steps = (pause, ProviderUnavailable("down"))
    providers: dict[str, Provider] = {"broken": broken, "first": two.first, "spare": spare}
    pool = FailoverPool(providers.__getitem__, states=two.states, settings=RetrySettings(retries=0))
    ranked = (Target("broken", "m"), FIRST, Target("spare", "m"))
    asked = asyncio.create_task(pool.generate(ranked, REQUEST))
    await pause.reached.wait()
    failed(two.states[FIRST], LIMITED)
    pause.over.set()
    attempt, _ = await asked
    assert attempt.target.provider == "spare"
    assert two.first.requests == []


async def test_who_has_no_other_target_gets_its_own_answer() -> None:
    two = Two(retries=0)
    for _ in range(2):
        with pytest.raises(RateLimited) as caught:
            await two.ask(FIRST)
        assert caught.value.retry_after == 120
    assert len(two.first.requests) == 2
    two.second.steps = (ProviderUnavailable("down"),)
    with pytest.raises(AllTargetsFailed) as both:
        await two.ask()
    assert [type(each) for each in both.value.attempts] == [ProviderUnavailable, RateLimited]


async def test_who_has_no_other_target_waits_for_the_end_of_a_short_pause() -> None:
    provider = StubProvider(name="first")
    pool = FailoverPool({"first": provider}.__getitem__)
    failed(pool.states[FIRST], RateLimited("slow down", retry_after=0.2))
    began = time.monotonic()
    attempt, _ = await pool.generate([FIRST], REQUEST)
    assert attempt.number == 1
    assert time.monotonic() - began >= 0.2
    assert len(provider.requests) == 1


async def test_a_success_of_a_later_request_ends_the_pause_and_that_of_an_earlier_does_not() -> (
    None
):
    two = Two()
    state = two.states[FIRST]
    early = state.breaker.allow()
    assert early is not None
    before = state.pauses
    failed(state, LIMITED)
    state.succeeded(early, before)
    assert state.paused_s == 120
    two.first.steps = HELLO
    assert await two.ask(FIRST) == "first"
    assert state.paused_s == 0


def test_a_pause_has_a_longest_time_and_is_never_shortened() -> None:
    clock = ManualClock()
    states = TargetStates(clock=clock, longest_pause_s=600)
    failed(states[FIRST], RateLimited("for a year", retry_after=366 * 86_400))
    assert states.paused_s(FIRST) == 600
    clock.now += 100
    failed(states[FIRST], RateLimited("a little", retry_after=1))
    assert states.paused_s(FIRST) == 500
    failed(states[SECOND], RateLimited("at once", retry_after=0))
    assert states.paused_s(SECOND) == 0


def test_a_pause_is_visible() -> None:
    clock = ManualClock()
    states = TargetStates(clock=clock)
    failed(states[FIRST], LIMITED)
    clock.now += 20
    health = states[FIRST].health
    assert (health.state, health.status, health.evidence) == ("closed", "degraded", "requests")
    assert health.retry_in_s == 100
    assert health.reason == "paused for 100 s more, as it asked: RateLimited: slow down"
    assert states.available(FIRST) == (False, health.reason)


def test_a_pause_is_told_once_and_again_when_it_becomes_longer() -> None:
    two = Two()
    state = two.states[FIRST]
    for _ in range(50):
        failed(state, LIMITED)
    assert two.shared == [Pause("first/m", 120.0, "RateLimited: slow down")]
    two.clock.now += 60
    failed(state, LIMITED)
    assert len(two.shared) == 2
    state.pause(300, "of another worker", shared=True)
    failed(state, LIMITED)
    assert len(two.shared) == 2
    assert state.paused_s == 300


def test_a_pause_outlasts_a_change_of_settings() -> None:
    clock = ManualClock()
    before, now = TargetStates(clock=clock), TargetStates(clock=clock)
    failed(before[FIRST], LIMITED)
    failed(before[SECOND], LIMITED)
    now.adopt(before, lambda name: False, lambda name: name == "first")
    assert (now.paused_s(FIRST), now.paused_s(SECOND)) == (120, 0)


def test_the_refusal_of_a_target_in_a_pause_is_a_429_with_the_time_left() -> None:
    clock = ManualClock()
    states = TargetStates(clock=clock)
    failed(states[FIRST], LIMITED)
    clock.now += 20
    refusal = states[FIRST].refusal()
    assert isinstance(refusal, RateLimited)
    assert refusal.retry_after == 100


def test_marking_up_ends_a_pause() -> None:
    states = TargetStates()
    failed(states[FIRST], LIMITED)
    states.mark_up(FIRST)
    assert states.available(FIRST) == (True, "")
