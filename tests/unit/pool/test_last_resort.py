"""Where every target is left alone, one call now and then beats none at all."""

import asyncio
import gc
import math

import msgspec
import pytest

from penstock.contract.errors import AllTargetsFailed, ProviderUnavailable
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.targets.breaker import LAST_RESORT_S, Breaker, BreakerSettings
from penstock.pool.targets.states import TargetStates
from tests.support.clock import ManualClock
from tests.support.stub import HELLO, Pause, StubProvider

REQUEST = SamplingRequest(messages=(user("hi"),), max_tokens=9)
TARGET = Target("stub", "m")
SETTINGS = BreakerSettings(failures=1, cooldown_s=60.0, half_open_successes=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(clock: ManualClock) -> Breaker:
    return Breaker(SETTINGS, clock)


def pool_of(provider: StubProvider, *, longest_wait_s: float = 10.0) -> FailoverPool:
    return FailoverPool(
        {provider.name: provider}.__getitem__,
        states=TargetStates(SETTINGS),
        settings=RetrySettings(retries=0, longest_wait_s=longest_wait_s),
    )


def opened_before_now(pool: FailoverPool, target: Target = TARGET) -> Breaker:
    """A breaker that opened long enough ago for a last resort."""
    clock = ManualClock()
    breaker = pool.states[target].breaker = Breaker(SETTINGS, clock)
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    return breaker


async def test_a_closed_breaker_gives_its_leave_at_once(breaker: Breaker) -> None:
    assert await breaker.probe(10) is not None


async def test_none_right_after_a_failure(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("down")
    assert await breaker.probe(10) is None
    clock.now += LAST_RESORT_S
    assert await breaker.probe(10) is not None
    assert breaker.state == "half_open"


async def test_none_for_what_is_down_by_hand(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("marked down", math.inf)
    clock.now += 1e9
    assert await breaker.probe(10) is None


async def test_the_others_wait_for_the_one_that_tries(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    first = await breaker.probe(10)
    assert first is not None
    waiting = [asyncio.create_task(breaker.probe(10)) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    first.success()
    # It takes two successes, so one of them is the next that tries.
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    (second,) = done
    permit = second.result()
    assert permit is not None
    permit.success()
    assert breaker.state == "closed"
    assert None not in [task.result() for task in (await asyncio.wait(rest))[0]]


async def test_the_others_are_refused_when_it_fails(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    first = await breaker.probe(10)
    assert first is not None
    waiting = [asyncio.create_task(breaker.probe(10)) for _ in range(5)]
    await asyncio.sleep(0)
    first.failure("still down")
    assert await asyncio.gather(*waiting) == [None] * 5


async def test_a_probe_that_was_dropped_without_a_word_holds_nobody_up(
    breaker: Breaker, clock: ManualClock
) -> None:
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    first = await breaker.probe(10)
    waiting = asyncio.create_task(breaker.probe(10))
    await asyncio.sleep(0)
    assert not waiting.done()
    del first
    gc.collect()
    assert await waiting is not None


async def test_waiting_has_an_end(breaker: Breaker, clock: ManualClock) -> None:
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    first = await breaker.probe(10)
    assert await breaker.probe(0.01) is None
    assert first is not None


async def test_the_only_target_is_asked_although_it_is_left_alone() -> None:
    provider = StubProvider()
    pool = pool_of(provider)
    breaker = opened_before_now(pool)
    attempt, _ = await pool.generate([TARGET], REQUEST)
    assert attempt.target == TARGET
    assert breaker.state == "half_open"


async def test_no_target_is_asked_twice_in_a_row_for_nothing() -> None:
    provider = StubProvider([ProviderUnavailable("down")])
    pool = pool_of(provider)
    with pytest.raises(ProviderUnavailable, match="down"):
        await pool.generate([TARGET], REQUEST)
    with pytest.raises(ProviderUnavailable, match="is not asked for now") as caught:
        await pool.generate([TARGET], REQUEST)
    # The breaker opened with the first; the next came within a second.
    assert len(provider.requests) == 1
    assert caught.value.retry_after is not None
    assert caught.value.retry_after <= LAST_RESORT_S


async def test_twenty_at_once_are_all_answered_when_it_is_back() -> None:
    pause = Pause()
    provider = StubProvider([pause, *HELLO])
    pool = pool_of(provider)
    breaker = opened_before_now(pool)
    asking = [asyncio.create_task(pool.generate([TARGET], REQUEST)) for _ in range(20)]
    await pause.reached.wait()
    assert len(provider.requests) == 1
    pause.over.set()
    assert len(await asyncio.gather(*asking)) == 20
    assert breaker.state == "closed"


async def test_nobody_is_asked_as_a_last_resort_when_another_has_failed() -> None:
    other = StubProvider([ProviderUnavailable("down too")], name="other")
    provider = StubProvider()
    both = {"stub": provider, "other": other}
    pool = FailoverPool(
        both.__getitem__, states=TargetStates(SETTINGS), settings=RetrySettings(retries=0)
    )
    opened_before_now(pool)
    with pytest.raises(AllTargetsFailed):
        await pool.generate([TARGET, Target("other", "m")], REQUEST)
    assert provider.requests == []


async def test_one_that_cannot_take_the_request_is_no_reason_to_spare_the_next() -> None:
    unable = StubProvider(name="unable", able=Capabilities(temperature=False))
    able = StubProvider()
    both = {"unable": unable, "stub": able}
    pool = FailoverPool(
        both.__getitem__, states=TargetStates(SETTINGS), settings=RetrySettings(retries=0)
    )
    for target in (first := Target("unable", "m"), TARGET):
        opened_before_now(pool, target)
    warm = msgspec.structs.replace(REQUEST, temperature=0.5)
    attempt, _ = await pool.generate([first, TARGET], warm)
    assert attempt.target == TARGET


async def test_a_probe_that_has_begun_to_answer_holds_nobody_up() -> None:
    pause = Pause()
    provider = StubProvider([HELLO[0], pause, *HELLO[1:]])
    pool = pool_of(provider)
    opened_before_now(pool)
    async with pool.open([TARGET], REQUEST) as opened:
        assert await anext(opened.batches)
        provider.steps = HELLO
        # It is the only probe, and may last as long as it likes.
        attempt, _ = await pool.generate([TARGET], REQUEST)
        assert attempt.target == TARGET


async def test_a_probe_that_begins_and_breaks_still_fails(
    breaker: Breaker, clock: ManualClock
) -> None:
    breaker.trip("down")
    clock.now += LAST_RESORT_S
    first = await breaker.probe(10)
    assert first is not None
    first.alive()
    second = breaker.allow()
    assert second is not None
    assert breaker.allow() is None
    first.failure("broke off")
    assert (breaker.state, breaker.reason) == ("open", "broke off")
    second.success()
    assert breaker.state == "open"
