"""`include_context`: attached where a provider of context is configured, else refused by name."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from penstock import (
    Caller,
    ContextQuery,
    ContextResource,
    InvalidRequest,
    PenstockError,
    PromptContextFailed,
    ProviderTimeout,
    RateLimited,
    SamplingRequest,
    user,
)
from penstock.config.settings import Config
from penstock.contract.approval import Estimate
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, engine_with

REQUEST = SamplingRequest(messages=(user("Hi"),), max_tokens=9, include_context="thisServer")
PARAMS = {"messages": [{"role": "user", "content": "Hi"}], "maxTokens": 9}
TIDES = ContextResource("Tides come twice a day.", "note://tides", "notes")


class Notes:
    """Gives these, and keeps what it was asked."""

    def __init__(self, *given: ContextResource | str) -> None:
        self.given = given
        self.asked: list[ContextQuery] = []

    async def __call__(self, query: ContextQuery) -> Sequence[ContextResource | str]:
        self.asked.append(query)
        return self.given


WAYS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "create_message": lambda engine: engine.create_message(REQUEST),
    "create_message_stream": lambda engine: engine.create_message_stream(REQUEST),
    "sample": lambda engine: engine.sample({**PARAMS, "includeContext": "thisServer"}),
    "sample_stream": lambda engine: engine.sample_stream(
        {**PARAMS, "includeContext": "thisServer"}
    ),
    "route": lambda engine: engine.route(REQUEST),
    "count_tokens": lambda engine: engine.count_tokens(REQUEST),
    "estimate": lambda engine: engine.estimate(REQUEST),
    "check_admission": lambda engine: engine.check_admission(REQUEST),
}


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_provider_it_is_refused_by_name(way: str) -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await WAYS[way](engine)
    (problem,) = caught.value.problems
    assert problem.path == ("includeContext" if "sample" in way else "include_context")
    assert problem.message == (
        "no context is configured; leave it out, or have `[sampling.context.servers.NAME]` "
        "configured"
    )
    assert fake.requests == []


@pytest.mark.parametrize("way", WAYS)
async def test_with_a_provider_it_is_asked(way: str) -> None:
    notes = Notes(TIDES)
    async with engine_with(FakeProvider()) as engine:
        engine.use_context(notes)
        await WAYS[way](engine)
    (asked,) = notes.asked
    assert (asked.scope, asked.key, asked.request.messages) == ("thisServer", None, (user("Hi"),))


async def test_what_it_gives_stands_before_the_prompt() -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine:
        engine.use_context(Notes(TIDES, 'The "moon" pulls.'))
        caller = Caller(key="ci")
        await engine.create_message(REQUEST, caller=caller)
    (asked,) = fake.requests
    first, question = asked.messages
    assert first == user(
        "Resources, added because the request asked for context:\n\n"
        '<resource server="notes" uri="note://tides">\nTides come twice a day.\n</resource>\n\n'
        '<resource server="" uri="">\nThe "moon" pulls.\n</resource>'
    )
    assert question == user("Hi")
    assert asked.include_context == "none"


async def test_nothing_to_attach_and_nothing_asked_for() -> None:
    fake, notes = FakeProvider(), Notes()
    async with engine_with(fake) as engine:
        engine.use_context(notes)
        await engine.create_message(REQUEST)
        await engine.create_message("Hi", max_tokens=9)
    assert [each.messages for each in fake.requests] == [(user("Hi"),)] * 2
    assert len(notes.asked) == 1


async def test_every_problem_comes_at_once() -> None:
    async with engine_with(FakeProvider()) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.create_message(msgspec.structs.replace(REQUEST, temperature=9.0))
    assert [each.path for each in caught.value.problems] == ["temperature", "include_context"]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (ValueError("secret"), PromptContextFailed, "the provider of context failed: ValueError"),
        (TimeoutError(), PromptContextFailed, "the provider of context failed: TimeoutError"),
        (
            [7],
            PromptContextFailed,
            "the provider of context gave a value of type int; give text or ContextResource",
        ),
        (None, PromptContextFailed, "the provider of context failed: TypeError"),
        (RateLimited("slow down"), RateLimited, "slow down"),
    ],
)
async def test_what_a_provider_raises_ends_the_request(
    given: Any, kind: type[PenstockError], message: str
) -> None:
    async def provide(query: ContextQuery) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    async with engine_with(FakeProvider()) as engine:
        engine.use_context(provide)
        with pytest.raises(kind) as caught:
            await engine.create_message(REQUEST)
    assert caught.value.message == message
    assert caught.value.metadata is not None


async def test_it_has_a_limit_and_so_has_the_request() -> None:
    async def hang(query: ContextQuery) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with engine_with(FakeProvider()) as engine:
        engine.use_context(hang, timeout=0.01)
        with pytest.raises(PromptContextFailed, match=r"gave nothing within 0\.01 s"):
            await engine.create_message(REQUEST)
        engine.use_context(hang)
        with pytest.raises(ProviderTimeout, match=r"own limit of 0\.01 s"):
            await engine.create_message(msgspec.structs.replace(REQUEST, timeout=0.01))


async def test_a_reviewer_sees_it() -> None:
    seen: list[SamplingRequest] = []

    async def review(
        request: SamplingRequest, estimate: Callable[[SamplingRequest], Awaitable[Estimate]]
    ) -> SamplingRequest:
        seen.append(request)
        return request

    async with engine_with(FakeProvider()) as engine:
        engine.use_context(Notes(TIDES))
        await engine.create_message(REQUEST, caller=Caller(review=review))
    assert "Tides" in seen[0].messages[0].text


async def test_it_stays_when_the_configuration_changes() -> None:
    notes = Notes(TIDES)
    config = Config.model_validate(
        {"providers": {"fake": {}}, "models": {"m": {"targets": ["fake/echo"]}}}
    )
    before = Engine(config)
    before.use_context(notes)
    async with await before.reconfigured(config) as engine:
        await engine.create_message(REQUEST)
    assert len(notes.asked) == 1
