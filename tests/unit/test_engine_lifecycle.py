"""An engine's own work beside requests, and its end."""

import asyncio

import pytest

from penstock import Cancelled, Complete, Engine, RequestCancelled, StreamHandle
from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.errors import ProviderUnavailable
from penstock.contract.events import StreamEvent
from penstock.contract.exchange import EmbeddingRequest, TranscriptionRequest, Vectors
from penstock.telemetry.records import Record, RequestRecord
from penstock.testing import FakeProvider, Transcript, engine_with
from tests.support.stub import HELLO, Pause, StubProvider


def engine_on(provider: StubProvider, **pool: float) -> Engine:
    engine = Engine(
        Config(
            providers={provider.name: ProviderConfig(kind="fake")},
            models={"default": ModelConfig(targets=(f"{provider.name}/m",))},
            pool=PoolConfig.model_validate({"retries": 0, **pool}),
        )
    )
    engine.use(provider)
    return engine


async def test_background_work_begins_with_the_block_and_ends_with_it() -> None:
    engine = engine_on(StubProvider())
    assert engine.background() == []
    async with engine:
        assert [(each.name, each.state, each.restarts) for each in engine.background()] == [
            ("health checks", "running", 0),
            ("ledger", "running", 0),
        ]
    assert {each.state for each in engine.background()} == {"stopped"}


async def test_a_failed_check_is_seen_in_the_health_of_targets_and_in_routes() -> None:
    provider = StubProvider()
    async with engine_on(provider, health_check_interval_s=0.01) as engine:
        await engine.create_message("Hi", max_tokens=9)
        async with asyncio.timeout(30):
            # A failed check is ignored where a request has succeeded since the check before it.
            while engine.target_health()[0].evidence != "check":  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.005)
            provider.listed = ProviderUnavailable("gone")
            while not engine.target_health()[0].reason:  # noqa: ASYNC110 - health tells nobody
                await asyncio.sleep(0.005)
        (ranked,) = (await engine.route("Hi")).ranked
        assert not ranked.available
        assert any("its health check failed" in reason for reason in ranked.reasons)


async def test_checks_that_crash_are_started_again_and_hurt_nobody() -> None:
    provider = StubProvider(models=RuntimeError("a bug"))
    async with engine_on(provider, health_check_interval_s=0.01) as engine:
        await engine.create_message("Hi", max_tokens=9)
        async with asyncio.timeout(30):
            while not engine.background()[0].restarts:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)
        assert engine.background()[0].last_error == "RuntimeError: a bug"
        assert (await engine.create_message("Hi", max_tokens=9)).text == "Hello"


async def test_closing_with_grace_lets_a_stream_finish() -> None:
    pause = Pause()
    engine = engine_on(StubProvider([HELLO[0], pause, *HELLO[1:]]))
    stream = await engine.create_message_stream("Hi", max_tokens=9)
    reading = asyncio.create_task(_end_of(stream))
    await pause.reached.wait()
    closing = asyncio.create_task(engine.aclose(grace_s=60))
    await asyncio.sleep(0)
    assert not closing.done()
    pause.over.set()
    assert isinstance(await reading, Complete)
    await closing


async def test_grace_has_an_end() -> None:
    pause = Pause()
    engine = engine_on(StubProvider([HELLO[0], pause]))
    stream = await engine.create_message_stream("Hi", max_tokens=9)
    reading = asyncio.create_task(_end_of(stream))
    await pause.reached.wait()
    await engine.aclose(grace_s=0.01)
    assert isinstance(await reading, Cancelled)


@pytest.mark.parametrize("what", ["vectors", "transcript"])
async def test_closing_stops_everything_that_runs(what: str) -> None:
    asked = asyncio.Event()

    class Endless(FakeProvider):
        async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
            asked.set()
            await asyncio.Event().wait()
            return await super().embed(model, request)

        async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
            asked.set()
            await asyncio.Event().wait()
            return await super().transcribe(model, request)

    engine = engine_with(Endless())
    sound = b"RIFF\x00\x00\x00\x00WAVE"
    asking = asyncio.ensure_future(
        engine.embed(["x"], model="default")
        if what == "vectors"
        else engine.transcribe(sound, model="default")
    )
    await asked.wait()
    await engine.aclose()
    # It was told to stop at once, and not left behind when the wait for it was over.
    assert isinstance(asking.exception(), RequestCancelled)


@pytest.mark.parametrize("grace_s", [0.0, 60.0])
async def test_closing_an_idle_engine_does_not_wait(grace_s: float) -> None:
    engine = engine_on(StubProvider())
    ends: list[Record] = []
    engine.hooks.subscribe(
        lambda record: ends.append(record) if isinstance(record, RequestRecord) else None
    )
    await engine.create_message("Hi", max_tokens=9)
    async with asyncio.timeout(30):
        await engine.aclose(grace_s)
    assert len(ends) == 1


async def _end_of(stream: StreamHandle) -> StreamEvent:
    return [event async for event in stream][-1]
