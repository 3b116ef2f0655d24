"""Bodies that are mislabelled, compressed, or without end."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from penstock import (
    Engine,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from tests.faults.answer import WHOLE, first_words
from tests.faults.asking import BOTH, DIALECTS, Ask, Got, engine_on, streamed, whole
from tests.faults.manifest import proves
from tests.faults.scenarios import ENDLESS, PINGS, SMALL
from tests.faults.server import FaultServer
from tests.faults.ways import BOMB_BYTES, packed_bomb

KINDS = pytest.mark.parametrize("kind", DIALECTS)
POOL = {"retries": 1}
FEW_BYTES = BOMB_BYTES // 2


@proves("mislabelled", "gzip")
@BOTH
@KINDS
@pytest.mark.parametrize("fault", ["mislabelled", "zipped"])
async def test_a_body_that_can_be_read_is_read(kind: str, fault: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind) as engine,
    ):
        got = await ask(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert got.result is not None
        assert got.result.text == WHOLE
        assert len(server.requests) == 1


@proves("wrong-type")
@BOTH
@KINDS
async def test_a_body_of_the_other_kind_is_refused(kind: str, ask: Ask) -> None:
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, "swapped", "healthy.b", kind=kind, pool=POOL) as engine,
    ):
        assert (await ask(engine)).text == WHOLE
        assert [len(server.of(model)) for model in ("swapped", "healthy.b")] == [2, 1]


@proves("gzip-cut")
async def test_a_compressed_body_that_is_cut() -> None:
    async with (
        FaultServer() as server,
        engine_on(server, "zipped.cut", "healthy.b", pool=POOL) as engine,
    ):
        assert (await whole(engine)).text == WHOLE
        assert [len(server.of(model)) for model in ("zipped.cut", "healthy.b")] == [2, 1]
        assert (await streamed(engine)).text == WHOLE
        assert [len(server.of(model)) for model in ("zipped.cut", "healthy.b")] == [3, 2]
    async with FaultServer() as server, engine_on(server, "zipped.cut", pool=POOL) as engine:
        assert isinstance((await whole(engine)).error, ProviderUnavailable)
        got = await streamed(engine)
        assert isinstance(got.error, StreamInterrupted)
        assert got.error.partial == got.text == first_words(40)


@proves("gzip-false")
@BOTH
async def test_a_plain_body_under_the_name_of_gzip(ask: Ask) -> None:
    async with FaultServer() as server, engine_on(server, "zipped.false", pool=POOL) as engine:
        got = await ask(engine)
        assert isinstance(got.error, ProviderUnavailable)
        assert len(server.of("zipped.false")) == 2


@proves("gzip-bomb")
@BOTH
@pytest.mark.parametrize("fault", ["bomb", "bomb.error"])
async def test_a_bomb_is_not_unpacked(fault: str, ask: Ask) -> None:
    packed_bomb()
    async with (
        FaultServer() as server,
        engine_on(server, fault, "healthy.b", pool=SMALL) as engine,
    ):
        tracemalloc.start()
        try:
            got = await ask(engine)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (got.text, got.error) == (WHOLE, None)
        assert peak < FEW_BYTES
        assert len(server.of("healthy.b")) == 1


# ---- without end


async def alone_and_not(ask: Ask, engine: Engine, fault: str) -> tuple[Got, Got]:
    """What is got from this target only, and with another one, at the same time."""
    return await asyncio.gather(ask(engine, model=f"primary/{fault}"), ask(engine))


@proves("drip-whole")
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *((kind, "drip.text") for kind in DIALECTS),
        *(("openai-chat", fault) for fault in ("drip.blank", "drip.lines")),
    ],
)
async def test_an_answer_that_drips_for_ever_is_given_up(kind: str, fault: str) -> None:
    """Something always comes, and never the end; asking again would take as long in vain."""
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind, pool=POOL) as engine,
    ):
        got, got_elsewhere = await alone_and_not(whole, engine, fault)
        assert isinstance(got.error, ProviderTimeout), repr(got)
        assert "body_timeout_s" in str(got.error)
        await server.gone.wait()
        assert got_elsewhere.text == WHOLE
        assert [len(server.of(model)) for model in (fault, "healthy.b")] == [2, 1]


@proves("flood-whole")
@pytest.mark.parametrize("fault", ["flood.text", "flood.blank", "flood.lines"])
async def test_an_answer_that_floods_for_ever_is_given_up(fault: str) -> None:
    async with (
        FaultServer() as server,
        engine_on(server, fault, "healthy.b", pool=SMALL) as engine,
    ):
        got, got_elsewhere = await alone_and_not(whole, engine, fault)
        assert isinstance(got.error, MalformedResponse), repr(got)
        assert "max_response_bytes" in str(got.error)
        await server.gone.wait()
        assert got_elsewhere.text == WHOLE
        # Once for each of both requests: the same target would send as much again.
        assert [len(server.of(model)) for model in (fault, "healthy.b")] == [2, 1]


@proves("drip-stream")
@pytest.mark.parametrize("after", [0, 40])
@pytest.mark.parametrize(("kind", "what"), [*ENDLESS, *PINGS])
async def test_a_stream_that_drips_for_ever_is_given_up(kind: str, what: str, after: int) -> None:
    fault = f"drip.{what}.{after}"
    error: type[PenstockError] = StreamInterrupted if after else ProviderTimeout
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind, pool=POOL) as engine,
    ):
        got, got_elsewhere = await alone_and_not(streamed, engine, fault)
        assert isinstance(got.error, error), repr(got)
        assert (got.text, got.result) == (first_words(after), None)
        await server.gone.wait()
        assert (got_elsewhere.text, got_elsewhere.error) == (WHOLE, None)
        assert [len(server.of(model)) for model in (fault, "healthy.b")] == [2, 1]


@proves("flood-stream")
@pytest.mark.parametrize("after", [0, 40])
@pytest.mark.parametrize(("kind", "what"), ENDLESS)
async def test_a_stream_that_floods_for_ever_is_given_up(kind: str, what: str, after: int) -> None:
    """By the size of one event, or by the time without a token, whichever is met first."""
    fault = f"flood.{what}.{after}"
    async with (
        FaultServer(DIALECTS[kind]) as server,
        engine_on(server, fault, "healthy.b", kind=kind, pool={"retries": 0}) as engine,
    ):
        got = await streamed(engine, model=f"primary/{fault}")
        assert isinstance(got.error, ProviderUnavailable), repr(got)
        assert (got.text, got.result) == (first_words(after), None)
        await server.gone.wait()
        got = await streamed(engine)
        assert (got.text, got.error) == (WHOLE, None)
        assert [len(server.of(model)) for model in (fault, "healthy.b")] == [2, 1]
