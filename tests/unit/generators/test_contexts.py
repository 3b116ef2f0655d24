"""What stands around a prompt: order, time limits and failures of those who fetch it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import (
    InvalidRequest,
    MessageType,
    PromptContext,
    PromptContextFailed,
    ProviderTimeout,
    RateLimited,
    assistant,
    user,
)
from penstock.generators.contexts import context, gather, merged
from penstock.testing import FakeProvider, engine_with


class Fixed:
    """Gives what it was made with."""

    def __init__(self, *contexts: PromptContext) -> None:
        self.contexts = contexts

    async def generate_context(self) -> Sequence[PromptContext]:
        return self.contexts


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def generate_context(self) -> Sequence[PromptContext]:
        raise self.error


class Hanging:
    name = "the slow one"

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def generate_context(self) -> Sequence[PromptContext]:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return ()


async def test_contexts_stand_in_the_documented_order() -> None:
    provider = FakeProvider(["Yes."])
    generator = engine_with(provider).string_generator("Now?", system_prompt="First.")
    generator.add_prompt_context_provider(
        Fixed(context("human", "Fetched."), context("system", "Fourth."))
    )
    generator.add_prompt_context_provider(Fixed(context("assistant", "Indeed.")))
    generator.add_prompt_context("human", "Before.")
    generator.add_prompt_context(MessageType.SYSTEM, "Second.")
    generator.add_prompt_context("assistant", "I see.")
    generator.add_prompt_context("system", "Third.")
    await generator.generate()
    (request,) = provider.requests
    assert request.system_prompt == "First.\n\nSecond.\n\nThird.\n\nFourth."
    assert request.messages == (
        user("Before."),
        assistant("I see."),
        user("Fetched."),
        assistant("Indeed."),
        user("Now?"),
    )


async def test_contexts_hold_for_later_calls_and_are_fetched_for_each() -> None:
    provider = FakeProvider(["a", "b"])
    generator = engine_with(provider).string_generator("Now?")
    await generator.generate()
    numbers = iter(range(9))

    class Counting:
        async def generate_context(self) -> Sequence[PromptContext]:
            return [context("system", f"number {next(numbers)}")]

    generator.add_prompt_context_provider(Counting())
    await generator.generate()
    await generator.generate()
    prompts = [request.system_prompt for request in provider.requests]
    assert prompts == [None, "number 0", "number 1"]


def test_no_context_at_all_is_no_system_prompt() -> None:
    assert merged(None, [], [user("Go.")]) == (None, (user("Go."),))
    assert merged("", [], [user("Go.")])[0] is None


async def test_all_are_asked_before_any_has_answered() -> None:
    together = asyncio.Barrier(3)

    class Meeting:
        async def generate_context(self) -> Sequence[PromptContext]:
            await together.wait()
            return [context("human", "met")]

    async with asyncio.timeout(30):
        assert len(await gather([Meeting() for _ in range(3)], 30)) == 3


async def test_one_that_takes_too_long_is_named() -> None:
    hanging = Hanging()
    with pytest.raises(PromptContextFailed, match=r"'the slow one' failed: no answer within 0.01"):
        await gather([Fixed(), hanging], 0.01)
    assert hanging.ended.is_set()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no database"), "'Failing' failed: no database"),
        (ValueError(), "'Failing' failed: ValueError"),
        (RateLimited("slow down"), "'Failing' failed: slow down"),
        (TimeoutError("its own"), "'Failing' failed: its own"),
        (asyncio.CancelledError(), "'Failing' was cancelled"),
    ],
)
async def test_an_error_is_wrapped_and_stops_the_others(error: BaseException, reason: str) -> None:
    hanging = Hanging()
    with pytest.raises(PromptContextFailed, match=reason) as caught:
        await gather([hanging, Failing(error)], 30)
    assert caught.value.__cause__ is error
    assert hanging.ended.is_set()


async def test_an_error_reaches_the_caller_and_nothing_is_asked() -> None:
    provider = FakeProvider(["never"])
    generator = engine_with(provider).string_generator("Now?")
    generator.add_prompt_context_provider(Failing(ValueError("no")))
    with pytest.raises(PromptContextFailed):
        await generator.generate()
    stream = generator.stream()
    with pytest.raises(PromptContextFailed):
        await anext(stream)
    assert provider.requests == []


async def test_cancelling_the_caller_stops_those_who_fetch() -> None:
    hanging = Hanging()
    generator = engine_with(FakeProvider()).string_generator("Now?")
    generator.add_prompt_context_provider(hanging)
    task = asyncio.create_task(generator.generate())
    async with asyncio.timeout(30):
        await hanging.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert hanging.ended.is_set()


@pytest.mark.parametrize(
    ("kind", "content", "path"),
    [
        ("user", "x", "message_type"),
        (3, "x", "message_type"),
        ("system", " \n", "content"),
        ("human", None, "content"),
        ("human", 3, "content"),
    ],
)
def test_a_context_is_checked_when_it_is_added(kind: Any, content: Any, path: str) -> None:
    generator = engine_with(FakeProvider()).string_generator("Now?")
    with pytest.raises(InvalidRequest) as caught:
        generator.add_prompt_context(kind, content)
    assert [problem.path for problem in caught.value.problems] == [path]


class Garbage:
    def __init__(self, given: Any) -> None:
        self.given = given

    async def generate_context(self) -> Any:
        return self.given


class NotAsync:
    def generate_context(self) -> Any:
        return []


@pytest.mark.parametrize(
    "provider",
    [
        Garbage(None),
        Garbage(3),
        Garbage("text"),
        Garbage([3]),
        Garbage([PromptContext("nobody", "x")]),  # pyright: ignore[reportArgumentType]
        Garbage([PromptContext(MessageType.HUMAN, " ")]),
        Garbage([PromptContext(MessageType.HUMAN, None)]),  # pyright: ignore[reportArgumentType]
        NotAsync(),
        object(),
    ],
)
async def test_garbage_is_a_failure_of_its_provider(provider: Any) -> None:
    with pytest.raises(PromptContextFailed, match=f"{type(provider).__name__!r} failed: "):
        await gather([provider], 30)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_time_for_the_whole_run_holds_for_its_contexts_too(stream: bool) -> None:
    provider, hanging = FakeProvider(["Yes."]), Hanging()
    generator = engine_with(provider).string_generator("Now?", timeout=1.5)
    generator.add_prompt_context_provider(hanging)
    with pytest.raises(ProviderTimeout, match=r"own limit of 1\.5 s"):
        await (generator.stream().result() if stream else generator.generate())
    assert hanging.ended.is_set()
    assert provider.requests == []


async def test_the_latency_is_that_of_the_whole_run() -> None:
    class Slow:
        async def generate_context(self) -> Sequence[PromptContext]:
            await asyncio.sleep(0.05)
            return ()

    generator = engine_with(FakeProvider(["Yes."])).string_generator("Now?")
    generator.add_prompt_context_provider(Slow())
    assert (await generator.generate())[1].latency_ms >= 50
