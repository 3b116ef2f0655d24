"""Down the list of targets: which errors go on, which stop, and nothing stays open."""

from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest

from penstock.contract import errors
from penstock.contract.adaptation import Adaptation
from penstock.contract.errors import (
    AllTargetsFailed,
    AuthenticationFailed,
    ConfigurationError,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
    UnsupportedOption,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest, Usage
from penstock.contract.messages import Text, user
from penstock.contract.options import Capabilities, OutputSchema
from penstock.contract.ports import Attempt, Provider, Target
from penstock.pool.error_policy import may_fail_over
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from tests.support.stub import FINISHED, HELLO, REPLY, StubProvider

REQUEST = SamplingRequest(messages=(user("hi"),), max_tokens=9)
GOING_ON: list[PenstockError] = [
    AuthenticationFailed("no"),
    ConfigurationError("no key"),
    ContextLengthExceeded("too long"),
    ModelNotFound("no such model"),
    ProviderTimeout("silent"),
    ProviderUnavailable("down"),
    RateLimited("slow down"),
    StreamInterrupted("cut"),
    errors.MalformedResponse("what?"),
    UnsupportedOption("no", options=["tools"], provider="p", model="m"),
]
STOPPING: list[PenstockError] = [InvalidRequest("bad"), ContentRejected("no")]


def pool_of(*providers: StubProvider) -> tuple[FailoverPool, list[Target]]:
    by_name: dict[str, Provider] = {provider.name: provider for provider in providers}
    pool = FailoverPool(by_name.__getitem__, settings=RetrySettings(retries=0))
    return pool, [Target(p.name, f"{p.name}-1") for p in providers]


async def read_all(
    pool: FailoverPool, ranked: Sequence[Target]
) -> tuple[Attempt, list[ProviderEvent]]:
    async with pool.open(ranked, REQUEST) as opened:
        events = [event async for batch in opened.batches for event in batch]
        return opened.attempt, events


@pytest.mark.parametrize("error", GOING_ON, ids=lambda error: type(error).__name__)
async def test_an_error_of_one_target_goes_on_to_the_next(error: PenstockError) -> None:
    assert may_fail_over(error)
    first, second = StubProvider([error], name="a"), StubProvider(name="b")
    pool, ranked = pool_of(first, second)
    attempt, reply = await pool.generate(ranked, REQUEST)
    assert (attempt, reply) == (Attempt(Target("b", "b-1"), 2), REPLY)
    # A pool of its own, for the first target may have lost its credit by now.
    pool, ranked = pool_of(first, second)
    attempt, events = await read_all(pool, ranked)
    assert attempt == Attempt(Target("b", "b-1"), 2)
    assert events == [Chunk("Hel"), Chunk("lo"), FINISHED]
    assert [provider.open_streams for provider in (first, second)] == [0, 0]


@pytest.mark.parametrize("error", STOPPING, ids=lambda error: type(error).__name__)
async def test_an_error_of_the_request_stops_at_once(error: PenstockError) -> None:
    assert not may_fail_over(error)
    first, second = StubProvider([error], name="a"), StubProvider(name="b")
    pool, ranked = pool_of(first, second)
    with pytest.raises(type(error)) as caught:
        await pool.generate(ranked, REQUEST)
    assert caught.value is error
    assert (error.provider, error.model) == ("a", "a-1")
    with pytest.raises(type(error)):
        await read_all(pool, ranked)
    assert second.requests == []


async def test_when_every_target_fails_each_attempt_is_kept_in_order() -> None:
    failures = [RateLimited("slow down", retry_after=3), ProviderTimeout("silent")]
    for streamed in (False, True):
        # A pool of its own, for the first target is in a pause by then.
        pool, ranked = pool_of(
            *(StubProvider([f], name=n) for f, n in zip(failures, "ab", strict=True))
        )
        with pytest.raises(AllTargetsFailed) as caught:
            await (read_all(pool, ranked) if streamed else pool.generate(ranked, REQUEST))
        assert caught.value.attempts == tuple(failures)
        assert caught.value.__cause__ is failures[-1]
        assert caught.value.retryable
        assert str(caught.value) == "all 2 targets failed: a/a-1: slow down; b/b-1: silent"
    assert [error.provider for error in failures] == ["a", "b"]


async def test_the_error_of_a_single_target_is_raised_as_it_is() -> None:
    error = RateLimited("slow down", retry_after=3)
    pool, ranked = pool_of(StubProvider([error], name="a"))
    with pytest.raises(RateLimited) as caught:
        await pool.generate(ranked, REQUEST)
    assert caught.value is error


async def test_an_error_that_is_no_part_of_the_tree_is_a_bug_and_not_routed_around() -> None:
    first, second = StubProvider([ZeroDivisionError()], name="a"), StubProvider(name="b")
    pool, ranked = pool_of(first, second)
    with pytest.raises(ZeroDivisionError):
        await pool.generate(ranked, REQUEST)
    assert second.requests == []


async def test_a_provider_that_cannot_be_built_is_passed_over_and_no_attempt() -> None:
    good = StubProvider(name="b")

    def provide(name: str) -> Provider:
        if name == "a":
            raise ConfigurationError("no key")
        return good

    attempt, _ = await FailoverPool(provide).generate([Target("a", "x"), Target("b", "y")], REQUEST)
    assert attempt == Attempt(Target("b", "y"), 1)


async def test_each_target_gets_the_request_that_fits_it() -> None:
    cold = StubProvider([RateLimited("slow down")], name="a", able=Capabilities(temperature=False))
    warm = StubProvider(name="b")
    pool, ranked = pool_of(cold, warm)
    asked = SamplingRequest(
        messages=(user("hi"),), max_tokens=9, temperature=1.0, ignore_invalid_options=True
    )
    attempt, _ = await pool.generate(ranked, asked)
    assert [request.temperature for _, request in cold.requests + warm.requests] == [None, 1.0]
    assert attempt.dropped_options == ()
    attempt, _ = await FailoverPool(
        lambda _: StubProvider(able=Capabilities(temperature=False))
    ).generate(ranked, asked)
    assert attempt == Attempt(ranked[0], 1, (Adaptation("temperature", "adapted"),))


async def test_a_target_that_cannot_take_an_option_is_passed_over() -> None:
    unable = StubProvider(name="a", able=Capabilities(temperature=False))
    able = StubProvider(name="b")
    pool, ranked = pool_of(unable, able)
    asked = SamplingRequest(messages=(user("hi"),), max_tokens=9, temperature=1.0)
    attempt, _ = await pool.generate(ranked, asked)
    assert attempt.target.provider == "b"
    assert unable.requests == []


async def test_a_stream_that_ends_before_it_begins_is_a_failure() -> None:
    pool, ranked = pool_of(StubProvider([], name="a"))
    with pytest.raises(StreamInterrupted, match="without its terminal event"):
        await read_all(pool, ranked)


async def test_empty_batches_are_no_beginning() -> None:
    first = StubProvider([[], RateLimited("slow down")], name="a")
    pool, ranked = pool_of(first, StubProvider([[], *HELLO], name="b"))
    attempt, events = await read_all(pool, ranked)
    assert attempt.number == 2
    assert events[0] == Chunk("Hel")


async def test_a_failure_after_the_first_event_is_made_good_by_the_next_target() -> None:
    broken = StubProvider([[Chunk("Hel")], StreamInterrupted("cut")], name="a")
    pool, ranked = pool_of(broken, StubProvider(name="b"))
    attempt, events = await read_all(pool, ranked)
    assert attempt == Attempt(Target("b", "b-1"), 2, continues=True)
    assert events[:-1] == [Chunk("Hel"), Chunk("lo")]
    assert broken.open_streams == 0


@pytest.mark.parametrize("read", [0, 1, 2])
async def test_leaving_the_context_closes_the_upstream_however_far_it_was_read(read: int) -> None:
    provider = StubProvider(name="a")
    pool, ranked = pool_of(provider)
    async with pool.open(ranked, REQUEST) as opened:
        for _ in range(read):
            await anext(opened.batches)
        assert provider.open_streams == 1
    assert provider.open_streams == 0


async def test_an_error_inside_the_context_closes_the_upstream() -> None:
    provider = StubProvider(name="a")
    pool, ranked = pool_of(provider)
    with pytest.raises(ZeroDivisionError):
        async with pool.open(ranked, REQUEST):
            raise ZeroDivisionError
    assert provider.open_streams == 0


async def test_the_stream_may_be_closed_by_its_reader_too() -> None:
    provider = StubProvider(name="a")
    pool, ranked = pool_of(provider)
    async with pool.open(ranked, REQUEST) as opened, aclosing(opened.batches):
        await anext(opened.batches)
    assert provider.open_streams == 0


def _broken_off(*said: str) -> StubProvider:
    return StubProvider([*([Chunk(each)] for each in said), StreamInterrupted("cut")], name="a")


@pytest.mark.parametrize("pieces", [["\n\n", "More"], ["\n", "\n", "More"], ["\nMore"], ["More"]])
async def test_white_space_that_the_next_one_repeats_is_not_doubled(pieces: list[str]) -> None:
    """However it is cut into pieces, for no API takes a beginning that ends in it."""
    reply = Reply((Text("".join(pieces)),), "m", "endTurn", Usage())
    steps = [*([Chunk(each)] for each in pieces), [Finished(reply)]]
    second = StubProvider(steps, name="b", able=Capabilities(prefill=True))
    pool, ranked = pool_of(_broken_off("Title\n\n"), second)
    _, events = await read_all(pool, ranked)
    assert second.requests[0][1].messages[-1].text == "Title"
    assert "".join(event.text for event in events if isinstance(event, Chunk)) == "Title\n\nMore"
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.reply.text == "Title\n\nMore"


@pytest.mark.parametrize(("rest", "fits"), [('"b": 2}', True), ('{"a": 1, "b": 2}', False)])
async def test_json_is_gone_on_with_only_where_both_halves_are_one(rest: str, fits: bool) -> None:
    """Some schema modes begin at the first brace, whatever the answer began with."""
    asked = msgspec.structs.replace(REQUEST, output_schema=OutputSchema({"type": "object"}))
    steps = [[Chunk(rest)], [Finished(Reply((Text(rest),), "m", "endTurn", Usage()))]]
    second = StubProvider(steps, name="b", able=Capabilities(prefill=True))
    third = StubProvider(name="c", able=Capabilities(prefill=True))
    pool, ranked = pool_of(_broken_off('{"a": 1, '), second, third)
    async with pool.open(ranked, asked) as opened:
        if fits:
            events = [event async for batch in opened.batches for event in batch]
            assert isinstance(events[-1], Finished)
            assert events[-1].reply.text == '{"a": 1, "b": 2}'
        else:
            with pytest.raises(StreamInterrupted, match="another one"):
                [batch async for batch in opened.batches]
    assert third.requests == []


@pytest.mark.parametrize("error", [ModelNotFound("no such model"), AuthenticationFailed("bad key")])
async def test_what_asking_again_cannot_change_is_heard_however_often(error: PenstockError) -> None:
    """And whoever has another target is sent there first."""
    first, second = StubProvider([error], name="a"), StubProvider(name="b")
    pool, ranked = pool_of(first, second)
    for _ in range(10):
        with pytest.raises(type(error)):
            await pool.generate(ranked[:1], REQUEST)
    attempt, _ = await pool.generate(ranked, REQUEST)
    assert attempt == Attempt(ranked[1], 1)


async def test_names_that_callers_make_up_do_not_fill_the_memory() -> None:
    pool, ranked = pool_of(StubProvider(name="a"))
    pool.states.mark_down(ranked[0], "maintenance")
    for number in range(5000):
        await pool.generate([Target("a", f"made-up-{number}")], REQUEST)
    assert len(list(pool.states)) < 2000
    assert pool.states.available(ranked[0]) == (False, "marked down: maintenance")
