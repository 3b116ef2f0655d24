"""Whenever a caller leaves, its hold is closed, and a provider that was asked is on the bill."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock import Chunk, Complete, Engine
from penstock.budget.entries import Entry
from penstock.tokens import estimate_text, family_of
from tests.budget.test_bills import OUTPUT, books_at, prompt_tokens
from tests.budget.test_engine_books import INPUT, cancelled_after
from tests.faults.answer import PROMPT_TOKENS, WORDS
from tests.faults.server import FaultServer
from tests.support.background import until

pytestmark = pytest.mark.timeout(120)
MODEL = "healthy"
WHOLE_COST = PROMPT_TOKENS * INPUT + len(WORDS) * OUTPUT


async def bills(engine: Engine) -> list[Entry]:
    """What closes the one hold; a caller that has gone does not wait for it."""
    ledger = await engine.ledger()

    async def closed() -> list[Entry]:
        return [each async for each in ledger.entries() if each.kind != "hold"]

    async with asyncio.timeout(30):
        while not (found := await closed()):
            pass
    assert not await ledger.verify()
    return found


async def ask(engine: Engine) -> None:
    await engine.create_message("Say it.", max_tokens=99, model="m")


async def read(engine: Engine) -> None:
    async with await engine.create_message_stream("Say it.", max_tokens=99, model="m") as stream:
        await stream.result()


@pytest.mark.parametrize("call", [ask, read])
async def test_a_call_that_is_cancelled_at_any_of_its_waits_is_paid_for(
    tmp_path: Path, call: Callable[[Engine], Awaitable[None]]
) -> None:
    """At each of the awaits on the way, one after the other; the provider answers at once."""
    reached, kinds = 0, set[str]()
    answered = False
    while not answered:
        folder = tmp_path / str(reached)
        folder.mkdir()
        async with FaultServer() as server, books_at(folder, server.url, MODEL) as engine:
            ledger = await engine.ledger()
            answered = await cancelled_after(call(engine).__await__(), reached)
            holds = [each async for each in ledger.entries()]
            if holds:
                (entry,) = await bills(engine)
                kinds.add(f"{entry.kind}{' estimated' * entry.estimated}")
                if entry.kind == "release":
                    # The server may have it by now, but cannot have answered.
                    assert not answered
                elif entry.estimated:
                    assert entry.input_tokens == prompt_tokens(MODEL)
                    assert entry.amount_nanos >= prompt_tokens(MODEL) * INPUT
                    assert server.requests
                else:
                    assert entry.amount_nanos == WHOLE_COST
        reached += 1
    assert reached > 3
    assert {"settle estimated", "settle"} <= kinds


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_stream_that_is_left_after_any_word_costs_the_words_up_to_it(
    tmp_path: Path, how: str
) -> None:
    """The provider says so many words and then no more, until nobody listens."""
    for said in (1, 2, 7, 30, 59):
        folder = tmp_path / f"{said}"
        folder.mkdir()
        model = f"stall.{said}"
        async with FaultServer() as server, books_at(folder, server.url, model) as engine:
            stream = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
            heard = ""
            async for event in stream:
                assert isinstance(event, Chunk)
                heard += event.text
                if heard == "".join(WORDS[:said]):
                    break
            await (stream.aclose() if how == "closed" else engine.cancel_request(stream.request_id))
            (entry,) = await bills(engine)
            # An estimate of ours is never above what the answer was allowed.
            written = min(99, estimate_text(heard, family_of(model)))
            assert (entry.kind, entry.estimated) == ("settle", True)
            assert (entry.input_tokens, entry.output_tokens) == (prompt_tokens(model), written)
            assert entry.amount_nanos == prompt_tokens(model) * INPUT + written * OUTPUT


async def test_a_stream_that_is_read_to_its_end_costs_what_was_counted_however_it_is_left(
    tmp_path: Path,
) -> None:
    async with FaultServer() as server, books_at(tmp_path, server.url, MODEL) as engine:
        stream = await engine.create_message_stream("Say it.", max_tokens=99, model="m")
        async for event in stream:
            if isinstance(event, Complete):
                break
        await engine.cancel_request(stream.request_id)
        await stream.aclose()
        (entry,) = await bills(engine)
        assert (entry.amount_nanos, entry.estimated) == (WHOLE_COST, False)
        await until(lambda: engine.target_health()[0].in_flight == 0)
