"""A target that is late gets company, and one answer comes of it."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.contract.errors import AllTargetsFailed, InvalidRequest, PenstockError, RateLimited
from penstock.contract.errors import ProviderUnavailable as Unavailable
from penstock.contract.events import Chunk
from penstock.contract.exchange import SamplingRequest, Usage
from penstock.contract.messages import user
from penstock.contract.ports import Target
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.pool.targets.latency import Waits
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.record_builder import Trail
from penstock.telemetry.records import AttemptRecord, Record, RequestStarted
from tests.support.stub import FINISHED, HELLO, Pause, Step, StubProvider

REQUEST = SamplingRequest(messages=(user("hi"),), max_tokens=9)
FIRST, SECOND = Target("first", "m"), Target("second", "m")
BOTH = (FIRST, SECOND)
USUAL = 20


class Race:
    """Two targets, of which the first is known to be quick."""

    def __init__(
        self,
        first: Sequence[Step],
        second: Sequence[Step] = HELLO,
        *,
        retries: int = 0,
        usual_s: float = 0.0,
    ) -> None:
        self.first = StubProvider(first, name="first")
        self.second = StubProvider(second, name="second")
        by_name = {"first": self.first, "second": self.second}
        settings = RetrySettings(retries=retries, hedge_quantile=0.9)
        self.pool = FailoverPool(by_name.__getitem__, settings=settings)
        self.usually_takes(usual_s)
        self.tried = asyncio.Event()
        hooks = Hooks()
        hooks.subscribe(self._hear)
        begun = RequestStarted(request_id="r", operation="chat", started=0.0)
        self.trail = Trail(hooks, begun)

    def usually_takes(self, seconds: float) -> None:
        state = self.pool.states[FIRST]
        state.first_tokens, state.answers = Waits(), Waits()
        for _ in range(USUAL):
            state.first_tokens.add(seconds)
            state.answers.add(seconds)

    def _hear(self, record: Record) -> None:
        if isinstance(record, AttemptRecord):
            self.tried.set()

    async def ask(self, *, stream: bool) -> str:
        """Who answers."""
        if not stream:
            attempt, _ = await self.pool.generate(BOTH, REQUEST, self.trail)
            return attempt.target.provider
        async with self.pool.open(BOTH, REQUEST, self.trail) as opened:
            events = [event async for batch in opened.batches for event in batch]
            assert events == [Chunk("Hel"), Chunk("lo"), FINISHED]
            return opened.attempt.target.provider

    @property
    def ends(self) -> dict[str, str]:
        return {each.provider: each.outcome for each in self.trail.attempts}

    @property
    def busy(self) -> int:
        return sum(state.slots.in_flight for state in self.pool.states)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_late_target_is_outrun_and_stopped_and_billed_for_its_prompt(stream: bool) -> None:
    race = Race([Pause(), *HELLO])
    assert await race.ask(stream=stream) == "second"
    assert race.ends == {"first": "cancelled", "second": "ok"}
    assert race.first.open_streams == race.busy == 0
    outrun, winner = sorted(race.trail.attempts, key=lambda each: each.number)
    assert outrun.usage is not None
    assert outrun.usage.estimated
    assert outrun.usage.input_tokens
    assert outrun.usage.output_tokens == 0
    assert winner.usage == Usage(3, 2)
    # That it was slower once is no failure.
    assert race.pool.states[FIRST].breaker.state == "closed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_target_in_time_stays_alone(stream: bool) -> None:
    race = Race(HELLO, usual_s=60.0)
    assert await race.ask(stream=stream) == "first"
    assert race.second.requests == []
    assert race.ends == {"first": "ok"}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_late_one_may_still_win(stream: bool) -> None:
    late, never = Pause(), Pause()
    race = Race([late, *HELLO], [never])
    asking = asyncio.create_task(race.ask(stream=stream))
    await never.reached.wait()
    late.over.set()
    assert await asking == "first"
    assert race.ends == {"first": "ok", "second": "cancelled"}
    assert race.second.open_streams == race.busy == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_late_one_fails_the_other_goes_on(stream: bool) -> None:
    late, slow = Pause(), Pause()
    race = Race([late, Unavailable("down")], [slow, *HELLO])
    asking = asyncio.create_task(race.ask(stream=stream))
    await slow.reached.wait()
    late.over.set()
    await race.first.idle.wait()
    slow.over.set()
    assert await asking == "second"
    assert race.ends == {"first": "failed", "second": "ok"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [Unavailable("down"), InvalidRequest("not with this model")])
async def test_when_the_other_fails_the_late_one_goes_on(
    error: PenstockError, stream: bool
) -> None:
    late = Pause()
    race = Race([late, *HELLO], [error])
    asking = asyncio.create_task(race.ask(stream=stream))
    await late.reached.wait()
    await race.tried.wait()
    late.over.set()
    assert await asking == "first"
    assert race.ends == {"second": "failed", "first": "ok"}


@pytest.mark.parametrize("stream", [False, True])
async def test_when_both_fail_both_are_named(stream: bool) -> None:
    late = Pause()
    race = Race([late, Unavailable("first is down")], [Unavailable("second is down")])
    asking = asyncio.create_task(race.ask(stream=stream))
    await late.reached.wait()
    await race.tried.wait()
    late.over.set()
    with pytest.raises(AllTargetsFailed) as caught:
        await asking
    assert sorted(str(error) for error in caught.value.attempts) == [
        "first is down",
        "second is down",
    ]
    assert race.busy == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_nobody_can_answer_stops_both(stream: bool) -> None:
    late, never = Pause(), Pause()
    race = Race([late, InvalidRequest("nonsense")], [never])
    asking = asyncio.create_task(race.ask(stream=stream))
    await never.reached.wait()
    late.over.set()
    with pytest.raises(InvalidRequest, match="nonsense"):
        await asking
    assert race.second.open_streams == race.busy == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_goes_away_stops_both_and_owes_their_prompts(stream: bool) -> None:
    late, slow = Pause(), Pause()
    race = Race([late], [slow])
    asking = asyncio.create_task(race.ask(stream=stream))
    await slow.reached.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert race.first.open_streams == race.second.open_streams == race.busy == 0
    assert race.ends == {"first": "cancelled", "second": "cancelled"}
    # Both have the request, and nobody knows how far they came with it.
    for attempt in race.trail.attempts:
        assert attempt.usage is not None
        assert attempt.usage.estimated
        assert attempt.usage.input_tokens
        assert attempt.usage.output_tokens == 0


async def test_nobody_is_asked_who_is_ill_or_beyond_the_budget_of_retries() -> None:
    pause = Pause()
    race = Race([pause, *HELLO])
    race.pool.states.mark_down(SECOND, "by hand")
    asking = asyncio.create_task(race.ask(stream=True))
    await pause.reached.wait()
    pause.over.set()
    assert await asking == "first"
    assert race.second.requests == []


async def test_company_is_paid_for_as_a_retry_is() -> None:
    race = Race([Pause()])
    requests, hedged = 100, 0
    for _ in range(requests):
        race.usually_takes(0.0)
        race.first.steps = (pause := Pause(), *HELLO)
        asking = asyncio.create_task(race.ask(stream=False))
        await pause.reached.wait()
        # Either the second one answers, or there is none, and the first one has to.
        for _ in range(50):
            await asyncio.sleep(0)
        pause.over.set()
        hedged += await asking == "second"
    # Ten to begin with, and one more for five requests.
    assert hedged == 10 + requests // 5


async def test_a_retry_of_the_late_one_follows_when_both_have_failed() -> None:
    late = Pause()
    race = Race([late, RateLimited("slow", retry_after=0)], [Unavailable("down")], retries=1)
    asking = asyncio.create_task(race.ask(stream=False))
    await race.tried.wait()
    late.over.set()
    with pytest.raises(AllTargetsFailed):
        await asking
    assert [len(race.first.requests), len(race.second.requests)] == [2, 1]


async def test_an_answer_that_comes_at_the_same_moment_is_given_back() -> None:
    first, second = Pause(), Pause()
    race = Race([first, *HELLO], [second, *HELLO])
    asking = asyncio.create_task(race.ask(stream=True))
    await second.reached.wait()
    first.over.set()
    second.over.set()
    assert await asking in ("first", "second")
    assert race.first.open_streams == race.second.open_streams == race.busy == 0
    assert sorted(race.ends.values()) == ["cancelled", "ok"]


async def test_only_the_beginning_of_a_stream_is_hedged() -> None:
    pause = Pause()
    race = Race([[Chunk("Hel")], pause, [Chunk("lo")], [FINISHED]])
    asking = asyncio.create_task(race.ask(stream=True))
    await pause.reached.wait()
    pause.over.set()
    assert await asking == "first"
    assert race.second.requests == []


async def test_the_one_that_was_outrun_goes_on_when_the_winner_breaks_off() -> None:
    late = Pause()
    race = Race([late, *HELLO], [[Chunk("Hel")], Unavailable("cut")])
    events: list[object] = []
    async with race.pool.open(BOTH, REQUEST, race.trail) as opened:
        async for batch in opened.batches:
            events += batch
            late.over.set()
        assert opened.attempt.target == FIRST
    assert events == [Chunk("Hel"), Chunk("lo"), FINISHED]
    assert [(each.provider, each.outcome) for each in race.trail.attempts] == [
        ("first", "cancelled"),
        ("second", "failed"),
        ("first", "ok"),
    ]
    assert race.busy == 0


def test_what_is_usual_is_known_after_enough_calls() -> None:
    waits = Waits()
    for number in range(USUAL - 1):
        waits.add(float(number))
        assert waits.quantile(0.5) is None
    waits.add(float(USUAL - 1))
    assert waits.quantile(0.5) == 10.0
    assert waits.quantile(0.95) == 19.0
    for _ in range(1000):
        waits.add(1.0)
    assert waits.quantile(0.95) == 1.0
