"""What is told of a request: each try, and one end, whatever happens."""

import asyncio
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Caller, Chunk, Engine, PenstockError, RequestCancelled
from penstock.config.settings import PoolConfig
from penstock.contract.errors import (
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Cancelled, Complete, Error
from penstock.contract.exchange import Usage
from penstock.telemetry.records import RequestRecord, RequestStarted
from penstock.testing import FakeProvider, FakeReply, Recorder, engine_with

PATIENT = PoolConfig(retries=2, longest_retry_wait_s=0.001)


def listened(*providers: FakeProvider, pool: PoolConfig | None = None) -> tuple[Engine, Recorder]:
    engine, recorder = engine_with(*providers, pool=pool), Recorder()
    engine.hooks.subscribe(recorder)
    return engine, recorder


def only(recorder: Recorder) -> RequestRecord:
    (record,) = recorder.requests
    (started,) = recorder.started
    assert started.request_id == record.request_id
    assert {each.request_id for each in recorder.attempts} <= {record.request_id}
    assert list(record.attempts) == recorder.attempts
    assert [each.number for each in recorder.attempted] == [*range(1, len(record.attempts) + 1)]
    return record


async def test_a_whole_answer_is_told_from_its_beginning_to_its_end() -> None:
    engine, recorder = listened(FakeProvider(["Good day to you"]))
    result = await engine.create_message("Hi", max_tokens=9, temperature=0.5, request_id="mine")
    record = only(recorder)
    assert recorder.started == [
        RequestStarted(
            request_id="mine",
            operation="chat",
            started=record.started,
            max_tokens=9,
            temperature=0.5,
        )
    ]
    assert (record.request_id, record.outcome, record.stream) == ("mine", "ok", False)
    assert (record.provider, record.model) == ("fake", "echo")
    assert (record.stop_reason, record.response_id) == ("endTurn", "fake")
    assert record.usage == result.usage == Usage(1, 4)
    assert record.duration_s >= record.attempts[0].duration_s
    assert record.first_token_s is None


async def test_a_stream_is_told_at_its_end_with_the_time_of_its_first_token() -> None:
    engine, recorder = listened(FakeProvider(["Good day"]))
    async with await engine.create_message_stream("Hi", max_tokens=9) as stream:
        await anext(stream)
        assert recorder.requests == []
        await stream.result()
    record = only(recorder)
    assert (record.outcome, record.stream, record.usage) == ("ok", True, Usage(1, 2))
    assert record.first_token_s is not None
    assert record.attempts[0].first_token_s is not None


async def test_each_try_is_told_with_its_error_and_bills_nothing() -> None:
    first = FakeProvider([RateLimited("slow"), ProviderUnavailable("down", status=503)], name="a")
    pool = PoolConfig(retries=1, longest_retry_wait_s=0.001)
    engine, recorder = listened(first, FakeProvider(["Hello"], name="b"), pool=pool)
    await engine.create_message("Hi", max_tokens=9)
    record = only(recorder)
    assert [
        (each.provider, each.outcome, each.error, each.status, each.usage)
        for each in record.attempts
    ] == [
        ("a", "failed", "RateLimited", None, None),
        ("a", "failed", "ProviderUnavailable", 503, None),
        ("b", "ok", None, None, Usage(1, 1)),
    ]
    assert record.provider == "b"


async def test_a_broken_stream_is_billed_where_it_broke_and_where_it_went_on() -> None:
    broken = FakeReply(text="one two three ", error=StreamInterrupted("cut"))
    engine, recorder = listened(
        FakeProvider([broken], name="a"), FakeProvider(["four five"], name="b")
    )
    async with await engine.create_message_stream("Count", max_tokens=99) as stream:
        result = await stream.result()
    assert result.text == "one two three four five"
    record = only(recorder)
    cut, rest = record.attempts
    assert cut.usage is not None
    assert cut.usage.estimated
    assert cut.usage.output_tokens
    assert rest.usage is not None
    assert result.usage == cut.usage + rest.usage == record.usage
    rows = {row.provider: row.usage for row in (await engine.usage_stats()).models}
    assert rows == {"a": cut.usage, "b": rest.usage}


async def test_a_cancelled_stream_is_billed_for_what_was_delivered() -> None:
    engine, recorder = listened(FakeProvider(["one two three four"]))
    stream = await engine.create_message_stream("Count", max_tokens=99)
    assert await anext(stream) == Chunk("one ")
    assert await engine.cancel_request(stream.request_id)
    record = only(recorder)
    assert (record.outcome, record.error) == ("cancelled", None)
    assert record.usage is not None
    assert record.usage.estimated
    stats = await engine.usage_stats()
    assert stats.total.failures == {"RequestCancelled": 1}
    assert stats.total.usage == record.usage


async def test_a_stream_that_was_dropped_ends_as_well() -> None:
    engine, recorder = listened(FakeProvider(["one two three four"]))
    stream = await engine.create_message_stream("Count", max_tokens=99)
    ended = asyncio.Event()
    engine.hooks.subscribe(lambda record: ended.set() if record in recorder.requests else None)
    del stream
    gc.collect()
    await ended.wait()
    assert only(recorder).outcome == "cancelled"


async def test_a_request_that_is_no_good_ends_without_a_try() -> None:
    engine, recorder = listened(FakeProvider())
    with pytest.raises(InvalidRequest):
        await engine.create_message("Hi", max_tokens=0)
    record = only(recorder)
    assert (record.outcome, record.error, record.attempts) == ("failed", "InvalidRequest", ())


async def test_a_call_that_was_cancelled_by_its_id_is_no_failure() -> None:
    reached = asyncio.Event()

    def silent(_request: object) -> FakeReply:
        reached.set()
        return FakeReply(text="never", delay_s=3600)

    engine, recorder = listened(FakeProvider([silent]))
    call = asyncio.create_task(engine.create_message("Hi", max_tokens=9, request_id="mine"))
    await reached.wait()
    assert await engine.cancel_request("mine")
    with pytest.raises(RequestCancelled):
        await call
    record = only(recorder)
    assert (record.outcome, record.attempts[0].outcome) == ("cancelled", "cancelled")
    # The provider had the request, and may have read it.
    assert record.usage is not None
    assert (record.usage.output_tokens, record.usage.estimated) == (0, True)


async def test_embeddings_and_transcripts_are_requests_too() -> None:
    engine, recorder = listened(FakeProvider(transcripts=["words"]))
    await engine.embed(["a text", "two"], model="fake/echo")
    await engine.transcribe(b"RIFF\x00\x00\x00\x00WAVE", model="fake/echo")
    assert [(each.operation, each.outcome) for each in recorder.requests] == [
        ("embeddings", "ok"),
        ("transcription", "ok"),
    ]
    assert recorder.requests[0].usage == Usage(3)


async def test_counts_of_tokens_are_no_requests() -> None:
    engine, recorder = listened(FakeProvider())
    await engine.count_tokens("Hi")
    assert recorder.records == []


async def test_what_was_said_is_told_only_to_those_who_ask_for_it() -> None:
    engine, recorder = listened(FakeProvider(["a secret answer"]))
    await engine.create_message("a secret question", max_tokens=9, metadata={"user": "secret"})
    assert "secret" not in repr(recorder.records)
    curious = Recorder()
    engine.hooks.subscribe(curious, content=True)
    await engine.create_message("What?", max_tokens=9)
    (content,) = curious.contents
    assert content.request.messages[0].text == "What?"
    assert content.answer[0].text == "What?"  # type: ignore[union-attr]
    # Before the request's end, which is the last that is told of it.
    assert isinstance(curious.records[-1], RequestRecord)


async def test_where_a_request_came_from_is_told() -> None:
    engine, recorder = listened(FakeProvider())
    caller = Caller(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await engine.create_message("Hi", max_tokens=9, caller=caller)
    await engine.embed(["a text"], model="fake/echo", caller=caller)
    assert [each.traceparent for each in recorder.started] == [caller.traceparent] * 2


FAILURES = st.sampled_from(
    [
        RateLimited,
        ProviderUnavailable,
        ProviderTimeout,
        AuthenticationFailed,
        ModelNotFound,
        ContextLengthExceeded,
        ContentRejected,
        InvalidRequest,
        StreamInterrupted,
    ]
)
TEXTS = st.sampled_from(["", "one ", "one two three "])


def _failing(kind: type[PenstockError], text: str) -> FakeReply:
    return FakeReply(text=text, error=kind("as the script says"))


STEPS = st.builds(_failing, FAILURES, TEXTS) | st.just(FakeReply(text="one two three four"))
SCRIPTS = st.lists(st.lists(STEPS, max_size=4), min_size=1, max_size=3)


@settings(max_examples=150)
@given(scripts=SCRIPTS, stream=st.booleans(), taken=st.integers(0, 3) | st.none())
async def test_any_sequence_of_failures_has_one_end_and_one_bill(
    scripts: list[list[FakeReply]], stream: bool, taken: int | None
) -> None:
    """`taken` events are read of a stream before its reader goes away; None: all of them."""
    providers = [FakeProvider(script, name=f"p{number}") for number, script in enumerate(scripts)]
    engine, recorder = listened(*providers, pool=PATIENT)
    ends = 0
    try:
        if not stream:
            await engine.create_message("Count", max_tokens=99)
            ends += 1
        else:
            handle = await engine.create_message_stream("Count", max_tokens=99)
            async with handle:
                read = 0
                async for event in handle:
                    ends += isinstance(event, Complete | Error | Cancelled)
                    read += 1
                    if read == taken:
                        break
    except PenstockError:
        ends += 1
    assert ends == 1 or (stream and taken is not None)
    record = only(recorder)
    assert sum(len(provider.requests) for provider in providers) == len(record.attempts)
    billed = [each.usage for each in record.attempts if each.usage is not None]
    assert record.usage == (sum(billed[1:], billed[0]) if billed else None)
    assert all(state.in_flight == state.waiting == 0 for state in engine.target_health())
    stats = await engine.usage_stats()
    assert stats.total.requests == 1
    await engine.aclose()
