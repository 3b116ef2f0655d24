"""The flow of a request: one id, one clock, and one end."""

import asyncio
import gc
from typing import Any

import pytest

from penstock.contract.errors import (
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderTimeout,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Complete, Error, Finished
from penstock.contract.exchange import EmbeddingRequest, Reply, SamplingRequest, Usage, Vectors
from penstock.contract.messages import Text, system, user
from penstock.contract.options import Capabilities
from penstock.contract.ports import ProviderStream, Target
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.validate import Limits
from penstock.pool.failover import FailoverPool
from penstock.pool.plan import RetrySettings
from penstock.routing.router import TargetTable
from tests.support.stub import FINISHED, HELLO, REPLY, Pause, StubProvider

TARGET = Target("stub", "stub-model")


def pipeline(*providers: StubProvider) -> Pipeline:
    by_name = {provider.name: provider for provider in providers}
    targets = tuple(Target(name, "stub-model") for name in by_name)
    router = TargetTable({"default": targets}, set(by_name), "default")
    return Pipeline(
        router, FailoverPool(by_name.__getitem__, settings=RetrySettings(retries=0)), Limits()
    )


def ask(**options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": (user("hi"),), "max_tokens": 9, **options}
    return SamplingRequest(**fields)


async def test_a_whole_answer_comes_with_its_metadata() -> None:
    failing = StubProvider([RateLimited("slow down")], name="first")
    able = Capabilities(temperature=False)
    provider = StubProvider(name="second", able=able)
    result = await pipeline(failing, provider).run(
        ask(temperature=1.0, ignore_invalid_options=True)
    )
    assert (result.text, result.stop_reason, result.model) == ("Hello", "endTurn", "stub-1")
    metadata = result.metadata
    assert metadata.provider == "second"
    assert (metadata.attempts, metadata.api_calls) == (2, 2)
    assert metadata.usage == Usage(3, 2)
    assert metadata.dropped_options == ("temperature",)
    assert (metadata.response_id, metadata.response_status) == ("resp_1", "stop")
    assert metadata.request_id.startswith("req_")
    assert metadata.latency_ms >= 0
    assert metadata.first_token_ms is None


async def test_a_stream_comes_with_the_same_metadata_and_its_first_token_time() -> None:
    stream = await pipeline(StubProvider()).start(ask())
    *deltas, end = [event async for event in stream]
    assert deltas == [Chunk("Hel"), Chunk("lo")]
    assert isinstance(end, Complete)
    metadata = end.result.metadata
    assert metadata.request_id == stream.request_id
    assert metadata.first_token_ms is not None
    assert 0 <= metadata.first_token_ms <= metadata.latency_ms


async def test_a_stream_knows_from_its_beginning_who_answers() -> None:
    failing = StubProvider([RateLimited("slow down")], name="first")
    stream = await pipeline(failing, StubProvider(name="second")).start(ask())
    assert (str(stream.attempt.target), stream.attempt.number) == ("second/stub-model", 2)
    await stream.aclose()


async def test_every_request_has_an_id_of_its_own() -> None:
    line = pipeline(StubProvider())
    results = [await line.run(ask()) for _ in range(20)]
    assert len({result.request_id for result in results}) == 20


async def test_a_provider_that_does_not_name_the_model_gets_the_targets_name() -> None:
    nameless = Finished(Reply((Text("a"),), "", "endTurn", Usage()))
    result = await pipeline(StubProvider([[nameless]])).run(ask())
    assert result.model == result.metadata.model == "stub-model"


async def test_the_provider_sees_the_validated_request() -> None:
    provider = StubProvider()
    await pipeline(provider).run(ask(messages=(system("Be brief."), user("hi"))))
    ((model, request),) = provider.requests
    assert model == "stub-model"
    assert (request.system_prompt, request.messages) == ("Be brief.", (user("hi"),))


@pytest.mark.parametrize(
    ("request_", "kind"),
    [(ask(max_tokens=0), InvalidRequest), (ask(model="nowhere"), ModelNotFound)],
)
async def test_errors_before_the_call_carry_the_requests_id(
    request_: SamplingRequest, kind: type[PenstockError]
) -> None:
    line = pipeline(StubProvider())
    for call in (line.run(request_), line.start(request_)):
        with pytest.raises(kind) as caught:
            await call
        assert caught.value.request_id is not None


async def test_an_error_before_the_first_event_is_raised_and_later_it_is_an_event() -> None:
    early = pipeline(StubProvider([RateLimited("slow down")]))
    with pytest.raises(RateLimited) as caught:
        await early.start(ask())
    assert caught.value.request_id is not None
    assert (caught.value.provider, caught.value.model) == ("stub", "stub-model")
    late = StubProvider([[Chunk("Hel")], StreamInterrupted("cut", partial="Hel")])
    stream = await pipeline(late).start(ask())
    first, end = [event async for event in stream]
    assert first == Chunk("Hel")
    assert isinstance(end, Error)
    assert isinstance(end.error, StreamInterrupted)
    assert end.error.request_id == stream.request_id
    assert late.open_streams == 0


async def test_an_answer_in_one_event_is_a_stream_of_its_end() -> None:
    stream = await pipeline(StubProvider([[FINISHED]])).start(ask())
    (end,) = [event async for event in stream]
    assert isinstance(end, Complete)
    assert end.result.text == REPLY.text


async def test_deltas_in_the_last_batch_come_before_the_end() -> None:
    stream = await pipeline(StubProvider([[Chunk("Hel"), Chunk("lo"), FINISHED]])).start(ask())
    assert [type(event) for event in [e async for e in stream]] == [Chunk, Chunk, Complete]


async def test_empty_batches_are_passed_over() -> None:
    stream = await pipeline(StubProvider([[], [Chunk("a")], [], [FINISHED]])).start(ask())
    assert [[type(event) for event in batch] async for batch in stream.batches()] == [
        [Chunk],
        [Complete],
    ]


async def test_a_provider_that_forgets_its_terminal_event_gives_an_error_not_a_success() -> None:
    stream = await pipeline(StubProvider([[Chunk("a")]])).start(ask())
    assert await anext(stream) == Chunk("a")
    with pytest.raises(StreamInterrupted, match="without its terminal event"):
        await stream.result()


async def test_the_upstream_is_given_back_before_the_caller_hears_of_the_end() -> None:
    provider = StubProvider()
    stream = await pipeline(provider).start(ask())
    async for event in stream:
        assert provider.open_streams == (0 if isinstance(event, Complete) else 1)


async def test_cancelling_a_stream_closes_the_upstream_at_once() -> None:
    pause = Pause()
    provider = StubProvider([[Chunk("a")], pause, [FINISHED]])
    stream = await pipeline(provider).start(ask())
    assert provider.open_streams == 1
    await stream.cancel()
    assert provider.open_streams == 0


async def test_a_bug_of_a_provider_in_mid_stream_is_the_end_of_the_request() -> None:
    line = pipeline(StubProvider([[Chunk("a")], ZeroDivisionError()]))
    stream = await line.start(ask())
    assert await anext(stream) == Chunk("a")
    with pytest.raises(ZeroDivisionError):
        await anext(stream)
    assert await line.in_flight.emptied(0)
    assert line.usage.stats().total.failures == {"ZeroDivisionError": 1}


async def test_dropping_a_stream_closes_the_upstream() -> None:
    provider = StubProvider()
    stream = await pipeline(provider).start(ask())
    del stream
    gc.collect()
    async with asyncio.timeout(30):
        await provider.idle.wait()


async def test_cancelling_the_caller_while_it_waits_for_the_first_event_closes_the_upstream() -> (
    None
):
    pause = Pause()
    provider = StubProvider([pause, *HELLO])
    task = asyncio.create_task(pipeline(provider).start(ask()))
    await pause.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.open_streams == 0


# The request's own time limit


async def test_a_whole_answer_that_takes_too_long_is_given_up() -> None:
    provider = StubProvider([Pause()])
    with pytest.raises(ProviderTimeout, match=r"request's own limit of 0\.01 s") as caught:
        await pipeline(provider).run(ask(timeout=0.01))
    assert caught.value.request_id is not None
    assert provider.open_streams == 0


async def test_a_stream_that_does_not_begin_in_time_is_given_up() -> None:
    provider = StubProvider([Pause()])
    with pytest.raises(ProviderTimeout):
        await pipeline(provider).start(ask(timeout=0.01))
    assert provider.open_streams == 0


async def test_a_stream_that_falls_silent_is_given_up_when_the_requests_time_is_over() -> None:
    provider = StubProvider([[Chunk("a")], Pause()])
    stream = await pipeline(provider).start(ask(timeout=2.0))
    async with asyncio.timeout(30):
        first, end = [event async for event in stream]
    assert first == Chunk("a")
    assert isinstance(end, Error)
    assert isinstance(end.error, ProviderTimeout)
    assert provider.open_streams == 0


async def test_the_limit_is_one_for_the_whole_answer_and_not_for_each_piece() -> None:
    class Ticking(StubProvider):
        async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
            while True:
                await asyncio.sleep(0.3)
                yield [Chunk("tick")]

    stream = await pipeline(Ticking()).start(ask(timeout=2.0))
    async with asyncio.timeout(30):
        events = [event async for event in stream]
    assert isinstance(events[-1], Error)
    assert 1 <= len(events) < 10


async def test_a_reader_that_comes_back_too_late_finds_the_request_given_up() -> None:
    provider = StubProvider()
    stream = await pipeline(provider).start(ask(timeout=1.5))
    assert await anext(stream) == Chunk("Hel")
    await asyncio.sleep(1.6)
    with pytest.raises(ProviderTimeout):
        await stream.result()
    assert provider.open_streams == 0


async def test_a_timeout_of_the_provider_itself_is_not_taken_for_the_requests() -> None:
    with pytest.raises(TimeoutError, match="of its own"):
        await pipeline(StubProvider([TimeoutError("of its own")])).run(ask(timeout=60.0))


async def test_a_fast_answer_is_not_touched_by_the_limit() -> None:
    line = pipeline(StubProvider())
    assert (await line.run(ask(timeout=60.0))).text == "Hello"
    assert (await (await line.start(ask(timeout=60.0))).result()).text == "Hello"


# Embeddings


async def test_vectors_come_with_their_metadata() -> None:
    vectors = Vectors(((1.0, 0.0), (0.0, 1.0)), "", Usage(4), api_calls=2)
    provider = StubProvider(vectors=lambda _: vectors)
    request = EmbeddingRequest(texts=("a", "b"), timeout=60.0)
    result = await pipeline(provider).embed(TARGET, request)
    assert result.vectors == ((1.0, 0.0), (0.0, 1.0))
    assert result.model == "stub-model"
    metadata = result.metadata
    assert (metadata.provider, metadata.model) == ("stub", "stub-model")
    assert (metadata.embedding_count, metadata.embedding_dims, metadata.api_calls) == (2, 2, 2)
    assert metadata.usage == Usage(4)


async def test_errors_of_embedding_carry_the_requests_id() -> None:
    def refuse(_: EmbeddingRequest) -> Vectors:
        raise RateLimited("slow down")

    provider = StubProvider(vectors=refuse)
    for texts, kind in ((("a",), RateLimited), ((), InvalidRequest)):
        with pytest.raises(kind) as caught:
            await pipeline(provider).embed(TARGET, EmbeddingRequest(texts=texts))
        assert caught.value.request_id is not None
