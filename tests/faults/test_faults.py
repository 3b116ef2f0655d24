"""Providers that break on purpose: what the caller got, and what the provider saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import (
    AllTargetsFailed,
    AuthenticationFailed,
    Chunk,
    Complete,
    Config,
    ContentRejected,
    Engine,
    Error,
    InvalidRequest,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    Result,
    StreamInterrupted,
)
from tests.faults.server import WHOLE, FaultServer

LIMIT_S = 0.4
"""How long a silent provider is waited for here."""
pytestmark = pytest.mark.timeout(30)


@asynccontextmanager
async def engine_on(
    server: FaultServer, *models: str, pool: Mapping[str, Any] | None = None
) -> AsyncGenerator[Engine]:
    """The model `m` tries these, the first at `primary`, the others at `second`, `third`, ..."""
    names = ("primary", "second", "third")
    # Only this kind is known to go on with the beginning of an answer.
    kinds = {"prefill": "llamacpp", "plain": "openai-chat"}
    providers: dict[str, Any] = {}
    targets: list[str] = []
    for name, model in zip(names, models, strict=False):
        kind, _, name_there = model.rpartition("@")
        providers[name] = {"kind": kinds[kind or "plain"], "url": server.url, "auth_token": "k"}
        targets.append(f"{name}/{name_there}")
    limits = dict.fromkeys(
        ("request_timeout_s", "first_token_timeout_s", "stream_idle_timeout_s"), LIMIT_S
    )
    config = Config.model_validate(
        {
            "providers": providers,
            "models": {"m": {"targets": targets}},
            "pool": {"slowest_tokens_per_s": 1e6, **limits, **(pool or {})},
        }
    )
    async with penstock.open(config) as engine:
        yield engine


class Got(NamedTuple):
    """What a caller has in the end."""

    text: str
    result: Result | None
    error: PenstockError | None


async def whole(engine: Engine, *, timeout: float | None = None) -> Got:
    return await whole_of(engine, "m", timeout=timeout)


async def whole_of(engine: Engine, model: str, *, timeout: float | None = None) -> Got:
    try:
        result = await engine.create_message("Say it.", max_tokens=99, model=model, timeout=timeout)
    except PenstockError as error:
        return Got("", None, error)
    return Got(result.text, result, None)


async def streamed(engine: Engine, *, timeout: float | None = None) -> Got:
    pieces: list[str] = []
    result: Result | None = None
    error: PenstockError | None = None
    ends = 0
    try:
        async with await engine.create_message_stream(
            "Say it.", max_tokens=99, model="m", timeout=timeout
        ) as stream:
            async for event in stream:
                if isinstance(event, Chunk):
                    pieces.append(event.text)
                elif isinstance(event, Complete):
                    result, ends = event.result, ends + 1
                elif isinstance(event, Error):
                    error, ends = event.error, ends + 1
        assert ends == 1
    except PenstockError as failed:
        error = failed
    return Got("".join(pieces), result, error)


BOTH = pytest.mark.parametrize("ask", [whole, streamed])


class Case(NamedTuple):
    """One fault, with and without somebody to fall back to."""

    fault: str
    attempts: int
    """How often the broken target is asked."""
    alone: type[PenstockError] | None
    """What the caller gets when there is nobody else; None for the right answer."""
    fallback: bool = True
    """Whether somebody else is asked."""


CASES = (
    Case("429:ms", 2, None),
    Case("429:forever", 3, RateLimited),
    Case("429:long", 1, RateLimited),
    Case("500:once", 2, None),
    Case("500:forever", 3, ProviderUnavailable),
    Case("503:", 3, ProviderUnavailable),
    Case("reset:", 3, ProviderUnavailable),
    Case("silence:", 1, ProviderTimeout),
    Case("html:", 3, ProviderUnavailable),
    Case("401:", 1, AuthenticationFailed),
    Case("200-error:", 3, ProviderUnavailable),
    Case("context:", 1, InvalidRequest),
    Case("filter:", 1, ContentRejected, fallback=False),
    Case("bad:", 1, InvalidRequest, fallback=False),
)


@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
async def test_alone(case: Case, ask: Any) -> None:
    async with FaultServer() as server, engine_on(server, case.fault) as engine:
        got = await ask(engine)
        assert len(server.of(case.fault)) == case.attempts
        if case.alone is None:
            assert got.text == WHOLE
        else:
            error = got.error
            if isinstance(error, AllTargetsFailed):
                error = error.attempts[-1]
            assert isinstance(error, case.alone), repr(got)


@BOTH
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.fault)
async def test_with_a_fallback(case: Case, ask: Any) -> None:
    async with FaultServer() as server, engine_on(server, case.fault, "healthy:b") as engine:
        got = await ask(engine)
        assert len(server.of(case.fault)) == case.attempts
        if not case.fallback:
            assert case.alone is not None
            assert isinstance(got.error, case.alone)
            assert server.of("healthy:b") == []
            return
        assert got.text == WHOLE
        assert got.result is not None
        assert got.result.text == WHOLE
        expected = 0 if case.alone is None else 1
        assert len(server.of("healthy:b")) == expected
        assert got.result.metadata.attempts == case.attempts + expected


@pytest.mark.parametrize(("form", "least_s"), [("seconds", 1.0), ("ms", 0.12), ("date", 0.9)])
async def test_a_pause_that_is_asked_for_is_kept(form: str, least_s: float) -> None:
    async with FaultServer() as server, engine_on(server, f"429:{form}") as engine:
        assert (await whole(engine)).text == WHOLE
        (gap,) = server.gaps(f"429:{form}")
        assert gap >= least_s


# ---- streams that break after their first token

BREAKS = ("cut:40", "ends:40", "stall:40", "inband:40", "cut:1", "cut:59")


@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize("way", ["prefill@healthy:b", "plain@healthy:b", "prefill@no-prefill:b"])
async def test_a_broken_stream_is_gone_on_with(fault: str, way: str) -> None:
    """With the beginning where the model takes one, else anew, with what was read skipped."""
    model = way.partition("@")[2]
    async with FaultServer() as server, engine_on(server, fault, way) as engine:
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert got.result.metadata.provider == "second"
        assert got.result.usage.estimated
        asked = server.of(model)
        assert len(server.of(fault)) == 1
        if way.startswith("prefill@"):
            read = "".join(WHOLE[: len(asked[0].begun)])
            assert asked[0].begun == read.rstrip()
            assert asked[0].begun
        assert len(asked) == (2 if "no-prefill" in way else 1)


@pytest.mark.parametrize("fault", BREAKS)
async def test_another_answer_is_never_glued_to_the_first(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault, "other:b") as engine:
        got = await streamed(engine)
        assert WHOLE.startswith(got.text)
        assert got.result is None
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text


async def test_a_target_that_answers_otherwise_is_not_blamed_for_it() -> None:
    pool = {"retries": 0, "breaker_failures": 1}
    async with FaultServer() as server, engine_on(server, "cut:5", "other:b", pool=pool) as engine:
        assert isinstance((await streamed(engine)).error, StreamInterrupted)
        assert (await whole_of(engine, "second/other:b")).error is None
        assert len(server.of("other:b")) == 2


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_broken_stream_is_an_error_where_that_is_wished(fault: str) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, fault, "healthy:b", pool={"mid_stream": "error"}) as engine,
    ):
        got = await streamed(engine)
        assert got.result is None
        assert isinstance(got.error, ProviderUnavailable)
        assert server.of("healthy:b") == []
        assert WHOLE.startswith(got.text)


async def test_a_third_target_goes_on_when_the_second_breaks_too() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "cut:20", "cut:40", "healthy:c") as engine,
    ):
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.metadata.attempts == 3


async def test_a_stream_that_breaks_alone_is_tried_again_and_never_torn() -> None:
    async with FaultServer() as server, engine_on(server, "cut:40") as engine:
        got = await streamed(engine)
        assert got.result is None
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text == "".join(f"word{n} " for n in range(1, 41))
        assert len(server.of("cut:40")) == 3


# ---- what is whole in spite of everything


@pytest.mark.parametrize("fault", ["malformed:", "no-done:", "endless:"])
async def test_a_whole_stream_is_whole(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault, "healthy:b") as engine:
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.seen) == 1


@pytest.mark.parametrize("fault", ["slow:", "wrong-type:", "gzip:"])
async def test_a_stream_that_never_begins_falls_back(fault: str) -> None:
    async with FaultServer() as server, engine_on(server, fault, "healthy:b") as engine:
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert len(server.of("healthy:b")) == 1


async def test_gzip_is_read_when_the_answer_is_whole() -> None:
    async with FaultServer() as server, engine_on(server, "gzip:") as engine:
        assert (await whole(engine)).text == WHOLE


# ---- over time


@BOTH
async def test_a_primary_that_was_down_is_back_within_one_cooldown(ask: Any) -> None:
    pool = {
        "retries": 0,
        "breaker_failures": 3,
        "breaker_cooldown_s": 0.3,
        "breaker_half_open_successes": 2,
    }
    async with FaultServer() as server, FaultServer() as spare:
        config = Config.model_validate(
            {
                "providers": {
                    "primary": {"kind": "openai-chat", "url": server.url, "auth_token": "k"},
                    "spare": {"kind": "openai-chat", "url": spare.url, "auth_token": "k"},
                },
                "models": {"m": {"targets": ["primary/healthy:a", "spare/healthy:b"]}},
                "pool": pool,
            }
        )
        async with penstock.open(config) as engine:
            server.down = True
            for _ in range(10):
                got = await ask(engine)
                assert got.text == WHOLE
                assert got.result is not None
                assert got.result.metadata.provider == "spare"
            # It was left alone after the third failure.
            assert len(server.seen) == 3
            server.down = False
            recovered = asyncio.get_running_loop().time()
            while True:
                got = await ask(engine)
                assert got.text == WHOLE
                assert got.result is not None
                if got.result.metadata.provider == "primary":
                    break
                await asyncio.sleep(0.01)
            assert asyncio.get_running_loop().time() - recovered < 0.3 + 1.0


async def test_a_caller_who_leaves_is_no_failure_of_the_target() -> None:
    pool = {"breaker_failures": 1}
    async with FaultServer() as server, engine_on(server, "stall:3", pool=pool) as engine:
        stream = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        await stream.aclose()
        async with asyncio.timeout(1):
            await server.gone.wait()
        again = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        await again.aclose()
        assert len(server.seen) == 2


async def test_retries_stay_a_fraction_of_the_traffic() -> None:
    pool = {"breaker_failures": 10_000, "retries": 5}
    async with FaultServer() as server, engine_on(server, "429:forever", pool=pool) as engine:
        requests = 60
        await asyncio.gather(*(whole(engine) for _ in range(requests)))
        assert len(server.seen) <= requests + 10 + requests // 5


@BOTH
async def test_a_pause_beyond_the_deadline_is_not_waited_for(ask: Any) -> None:
    async with FaultServer() as server, engine_on(server, "429:seconds", "healthy:b") as engine:
        got = await ask(engine, timeout=0.9)
        assert (got.text, got.error) == (WHOLE, None)
    async with FaultServer() as server, engine_on(server, "429:seconds") as engine:
        got = await ask(engine, timeout=0.9)
        assert isinstance(got.error, RateLimited)
        assert got.error.retry_after == 1


@BOTH
async def test_the_error_is_what_the_target_said_though_it_is_then_left_alone(ask: Any) -> None:
    pool = {"retries": 2, "breaker_failures": 2}
    async with FaultServer() as server, engine_on(server, "429:forever", pool=pool) as engine:
        assert isinstance((await ask(engine)).error, RateLimited)
        refused = (await ask(engine)).error
        assert isinstance(refused, ProviderUnavailable)
        assert refused.retry_after
        assert refused.retry_after > 0
        assert len(server.seen) == 2


async def test_one_deadline_is_shared_by_all_attempts() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "silence:a", "silence:b", "silence:c") as engine,
    ):
        with pytest.raises(ProviderTimeout, match="own limit"):
            await engine.create_message("Say it.", max_tokens=9, model="m", timeout=LIMIT_S * 1.5)
        assert [len(server.of(f"silence:{each}")) for each in "abc"] == [1, 1, 0]
