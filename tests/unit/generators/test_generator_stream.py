"""A generator's stream: one end, and nothing that runs on behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic
import pytest

import penstock
from penstock import (
    AnswerRejected,
    Chunk,
    Complete,
    Config,
    Error,
    RateLimited,
    StreamInterrupted,
    StructuredOutputInvalid,
)
from penstock.config.settings import ProviderConfig
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Pause, Scenario
from tests.support.wire.server import WireServer


class Point(pydantic.BaseModel):
    x: int


def _stream(*steps: Any) -> penstock.GeneratorStream[str]:
    return engine_with(FakeProvider(steps)).string_generator("Go.").stream()


async def test_a_good_stream_ends_with_its_only_complete() -> None:
    stream = _stream("one two")
    seen = [event async for event in stream]
    assert [type(event) for event in seen] == [Chunk, Chunk, Complete]
    assert [event async for event in stream] == []


async def test_the_result_can_be_asked_for_again_and_after_reading() -> None:
    stream = _stream("one two")
    assert [piece async for piece in stream.texts()] == ["one ", "two"]
    first = await stream.result()
    assert first[0] == "one two"
    assert await stream.result() == first
    await stream.aclose()
    assert await stream.result() == first


async def test_an_error_before_the_first_event_is_raised_and_kept() -> None:
    stream = _stream(RateLimited("slow down", retryable=False))
    with pytest.raises(RateLimited):
        await anext(stream)
    assert [event async for event in stream] == []
    with pytest.raises(RateLimited):
        await stream.result()


async def test_an_error_after_it_is_the_last_event() -> None:
    stream = _stream(FakeReply(text="one two", error=StreamInterrupted("gone", partial="one two")))
    seen = [event async for event in stream]
    assert [type(event) for event in seen] == [Chunk, Chunk, Error]
    assert [event async for event in stream] == []
    for _ in range(2):
        with pytest.raises(StreamInterrupted):
            await stream.result()


async def test_texts_raise_the_error_of_the_stream() -> None:
    stream = _stream(FakeReply(text="one two", error=StreamInterrupted("gone", partial="one two")))
    pieces: list[str] = []
    with pytest.raises(StreamInterrupted):
        pieces += [piece async for piece in stream.texts()]
    assert pieces == []


async def test_an_answer_that_does_not_fit_twice_ends_with_an_error() -> None:
    engine = engine_with(FakeProvider(["{}", "no"]))
    stream = engine.structured_generator(Point, "Go.").stream()
    seen = [event async for event in stream]
    assert [type(event) for event in seen] == [Chunk, AnswerRejected, Chunk, Error]
    with pytest.raises(StructuredOutputInvalid):
        await stream.result()


async def test_nothing_is_asked_before_the_first_event_is() -> None:
    provider = FakeProvider(["one"])
    stream = engine_with(provider).string_generator("Go.").stream()
    await stream.aclose()
    await stream.aclose()
    assert provider.requests == []
    assert [event async for event in stream] == []
    with pytest.raises(RuntimeError, match="closed before its end"):
        await stream.result()


async def test_an_error_of_the_users_own_code_is_raised_as_it_is() -> None:
    class Picky(pydantic.BaseModel):
        x: int

        @pydantic.field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            return value // 0

    engine = engine_with(FakeProvider(['{"x": 1}']))
    stream = engine.structured_generator(Picky, "Go.").stream()
    with pytest.raises(ZeroDivisionError):
        await stream.result()
    assert [event async for event in stream] == []


async def test_leaving_early_stops_the_upstream() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as server:
        server.play(Scenario(text=("one ", "two"), pause=pause))
        settings = ProviderConfig.model_validate({"kind": "openai-chat", "url": server.url})
        async with penstock.open(Config(providers={"chat": settings})) as engine:
            generator = engine.string_generator("Go.", model="chat/m")
            async with asyncio.timeout(30):
                async with generator.stream() as stream:
                    assert await anext(stream) == Chunk("one ")
                    await pause.reached.wait()
                await server.gone()


async def test_cancelling_whoever_reads_stops_the_upstream() -> None:
    pause = Pause(after=1)
    async with WireServer(OpenAIChat()) as server:
        server.play(Scenario(text=("one ", "two"), pause=pause))
        settings = ProviderConfig.model_validate({"kind": "openai-chat", "url": server.url})
        async with penstock.open(Config(providers={"chat": settings})) as engine:
            stream = engine.string_generator("Go.", model="chat/m").stream()
            task = asyncio.create_task(stream.result())
            async with asyncio.timeout(30):
                await pause.reached.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await server.gone()


async def test_closing_stops_what_another_task_is_reading() -> None:
    """As the button of a user interface does, while a loop shows the events."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def stuck() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    uses = (penstock.ToolUse("1", "stuck", {}),)
    engine = engine_with(FakeProvider([FakeReply(tool_uses=uses), "Done."]))
    stream = engine.string_generator("Go.", tools=[stuck]).stream()

    async def read() -> int:
        seen = [event async for event in stream]
        # The reader itself is not cancelled, and may go on with something else.
        await asyncio.sleep(0)
        return len(seen)

    reader = asyncio.create_task(read())
    await began.wait()
    with pytest.raises(RuntimeError, match="another task"):
        await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert await reader > 0
    assert ended.is_set()
    with pytest.raises(RuntimeError, match="closed before its end"):
        await stream.result()


async def test_cancelling_the_reader_is_not_mistaken_for_closing() -> None:
    began = asyncio.Event()

    async def stuck() -> None:
        began.set()
        await asyncio.Event().wait()

    uses = (penstock.ToolUse("1", "stuck", {}),)
    engine = engine_with(FakeProvider([FakeReply(tool_uses=uses)]))
    stream = engine.string_generator("Go.", tools=[stuck]).stream()
    reader = asyncio.create_task(stream.result())
    await began.wait()
    reader.cancel()
    await stream.aclose()
    with pytest.raises(asyncio.CancelledError):
        await reader
