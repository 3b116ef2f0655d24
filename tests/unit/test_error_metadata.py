"""Errors carry what is known of the request that they ended."""

import asyncio
import copy
import pickle
from typing import Any

import pytest

import penstock
from penstock.config.settings import Config, PoolConfig
from penstock.contract.errors import (
    AllTargetsFailed,
    AuthenticationFailed,
    ContentRejected,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    RequestCancelled,
    StreamInterrupted,
    StructuredOutputInvalid,
    ToolFailed,
)
from penstock.contract.messages import Audio, ToolUse
from penstock.contract.metadata import ErrorMetadata, Usage
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with

CALL = FakeReply(tool_uses=(ToolUse("c", "look", {}),), usage=Usage(10, 5))
SLOW = FakeReply(text="one two three four", delay_s=60)


async def look() -> str:
    """Look."""
    return "x"


def facts(error: PenstockError) -> dict[str, Any]:
    assert error.metadata is not None
    return error.metadata.to_dict()


async def test_a_failed_answer_has_its_attempts() -> None:
    fake = FakeProvider([ProviderUnavailable("busy", retry_after=0.0)] * 3)
    async with engine_with(fake, pool=PoolConfig(retries=2)) as engine:
        with pytest.raises(ProviderUnavailable) as caught:
            await engine.create_message("Hi", max_tokens=9, request_id="mine")
    found = facts(caught.value)
    assert found.pop("latency_ms") >= 0
    assert found == {
        "provider": "fake",
        "model": "echo",
        "request_id": "mine",
        "api_calls": 3,
        "tool_rounds": 0,
        "attempts": 3,
        "cost_usd": 0.0,
        "cost_nanos": 0,
    }


async def test_all_targets_count_and_the_last_one_is_named() -> None:
    one = FakeProvider([AuthenticationFailed("no")], name="one")
    two = FakeProvider([ProviderUnavailable("no", retryable=False)], name="two")
    async with engine_with(one, two) as engine:
        with pytest.raises(AllTargetsFailed) as caught:
            await engine.create_message("Hi", max_tokens=9)
    assert (facts(caught.value)["attempts"], facts(caught.value)["provider"]) == (2, "two")


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"max_tokens": 0}, InvalidRequest), ({"model": "nope/x"}, ModelNotFound)],
)
async def test_what_reaches_no_target_says_so(
    options: dict[str, Any], kind: type[PenstockError]
) -> None:
    request: dict[str, Any] = {"messages": (penstock.user("Hi"),), "max_tokens": 9}
    async with engine_with(FakeProvider()) as engine:
        for ask in (engine.create_message, engine.create_message_stream):
            with pytest.raises(kind) as caught:
                await ask(penstock.SamplingRequest(**{**request, **options}))
            assert caught.value.metadata is not None
            assert caught.value.metadata.request_id == caught.value.request_id
            assert caught.value.metadata.attempts == 0
            assert caught.value.metadata.provider is None


async def test_an_error_before_any_request_has_none() -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.create_message("Hi", max_tokens=9, request_id="two words")
    assert caught.value.metadata is None
    assert PenstockError("of a caller").metadata is None


async def test_a_broken_stream_has_its_tokens_and_times() -> None:
    broken = FakeReply(text="one two", error=StreamInterrupted("gone"), usage=Usage(input_tokens=7))
    async with engine_with(FakeProvider([broken])) as engine:
        stream = await engine.create_message_stream("Hi", max_tokens=9)
        with pytest.raises(StreamInterrupted) as caught:
            await stream.result()
    found = caught.value.metadata
    assert found is not None
    assert (found.request_id, found.provider, found.attempts) == (stream.request_id, "fake", 1)
    assert found.first_token_ms is not None
    assert found.latency_ms >= found.first_token_ms
    # What was delivered is billed, by an estimate.
    assert found.usage.output_tokens
    assert found.usage.estimated


async def test_the_cost_of_what_failed_is_told() -> None:
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {
                "m": {
                    "targets": ["fake/echo"],
                    "prices": {"fake/echo": {"input": 1000.0, "output": 1000.0}},
                }
            },
            "pool": {"retries": 0},
        }
    )
    broken = FakeReply(text="one two", error=StreamInterrupted("gone"))
    async with Engine(config) as engine:
        engine.use(FakeProvider([broken]))
        stream = await engine.create_message_stream("Hi", max_tokens=9)
        with pytest.raises(StreamInterrupted) as caught:
            await stream.result()
    found = caught.value.metadata
    assert found is not None
    assert found.cost_nanos
    assert found.cost_usd == found.cost_nanos / 1e9
    assert facts(caught.value)["cost_nanos"] == found.cost_nanos


async def test_a_request_that_is_out_of_time_has_its_latency() -> None:
    async with engine_with(FakeProvider([SLOW])) as engine:
        with pytest.raises(ProviderTimeout) as caught:
            await engine.create_message("Hi", max_tokens=9, timeout=0.05)
    assert 50 <= facts(caught.value)["latency_ms"] < 30_000


async def test_a_cancelled_answer_has_its_metadata() -> None:
    fake = FakeProvider([SLOW])
    async with engine_with(fake) as engine:
        work = asyncio.create_task(engine.create_message("Hi", max_tokens=9, request_id="stopped"))
        async with asyncio.timeout(10):
            while not fake.requests:  # noqa: ASYNC110 - the provider has no event for it
                await asyncio.sleep(0)
        assert await engine.cancel_request("stopped")
        with pytest.raises(RequestCancelled) as caught:
            await work
    assert (facts(caught.value)["request_id"], facts(caught.value)["attempts"]) == ("stopped", 1)


async def test_a_cancelled_stream_has_its_metadata() -> None:
    async with engine_with(FakeProvider(["one two three"])) as engine:
        stream = await engine.create_message_stream("Hi", max_tokens=9)
        await anext(stream)
        assert await stream.cancel()
        with pytest.raises(RequestCancelled) as caught:
            await stream.result()
    assert caught.value.metadata is not None
    assert caught.value.metadata.request_id == stream.request_id
    assert caught.value.metadata.attempts == 1
    assert caught.value.metadata.first_token_ms is not None


async def test_embeddings_and_transcripts_too() -> None:
    busy = ProviderUnavailable("busy", retryable=False)
    async with engine_with(FakeProvider(transcripts=[busy])) as engine:
        with pytest.raises(ProviderUnavailable) as caught:
            await engine.transcribe(Audio("AAAA", "audio/wav"), model="fake/echo")
        assert facts(caught.value)["attempts"] == 1
        with pytest.raises(PenstockError) as refused:
            await engine.embed([], model="fake/echo")
        assert (facts(refused.value)["attempts"], facts(refused.value)["tool_rounds"]) == (0, 0)


async def test_a_later_round_adds_what_the_earlier_ones_took() -> None:
    fake = FakeProvider([CALL, CALL, ContentRejected("no", partial="")])
    async with engine_with(fake) as engine:
        with pytest.raises(ContentRejected) as caught:
            await engine.string_generator("Go.", tools=[look]).generate()
    found = caught.value.metadata
    assert found is not None
    assert (found.tool_rounds, found.attempts, found.api_calls) == (2, 3, 3)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (20, 10)
    assert found.request_id == caught.value.request_id


async def test_a_tool_that_fails_the_run_has_the_rounds_before_it() -> None:
    def fails() -> str:
        """Fail."""
        raise ValueError("no")

    first = FakeReply(tool_uses=(ToolUse("c", "fails", {}),), usage=Usage(10, 5))
    async with engine_with(FakeProvider([first])) as engine:
        stream = engine.string_generator("Go.", tools=[fails], tool_errors="raise").stream()
        with pytest.raises(ToolFailed) as caught:
            await stream.result()
    found = caught.value.metadata
    assert found is not None
    assert (found.tool_rounds, found.attempts, found.usage.total_tokens) == (1, 1, 15)


async def test_an_answer_of_the_wrong_type_has_all_rounds() -> None:
    async with engine_with(FakeProvider([CALL, "no", "neither"])) as engine:
        with pytest.raises(StructuredOutputInvalid) as caught:
            await engine.structured_generator(list[int], "Go.", tools=[look]).generate()
    assert (facts(caught.value)["tool_rounds"], facts(caught.value)["attempts"]) == (1, 3)


def test_the_sync_api_keeps_it() -> None:
    engine = penstock.sync.open(Config.model_validate({"providers": {"fake": {}}, "models": {}}))
    with engine, pytest.raises(ModelNotFound) as caught:
        engine.create_message("Hi", max_tokens=9, model="fakes/echo")
    assert facts(caught.value)["request_id"] == caught.value.request_id


def test_it_survives_pickling_and_copies() -> None:
    error = RateLimited("slow down")
    error.metadata = ErrorMetadata(request_id="r", latency_ms=5, usage=Usage(1, 2))
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert twin.metadata == error.metadata
