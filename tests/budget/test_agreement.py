"""Metadata, records, counters and the ledger are four accounts of the same thing."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from penstock import Engine
from penstock.budget.reports import HistoryFilter
from penstock.contract.errors import InvalidRequest, Problem, StreamInterrupted
from penstock.contract.exchange import EmbeddingRequest, Vectors
from penstock.contract.metadata import Metadata
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.budget.test_engine_books import bookkeeper

HEDGED = {"retries": 0, "hedge_quantile": 0.9}
NEVER_S = 600.0
USUAL = 20
"""Calls after which it is known what is late."""


async def agreed(engine: Engine, recorder: Recorder, metadata: Metadata | None = None) -> None:
    """All accounts since the recorder has listened, and of the last request, say the same."""
    page = await (await engine.ledger()).history(HistoryFilter(kind="settle"))
    paid: defaultdict[str, int] = defaultdict(int)
    for entry in page.entries:
        paid[str(entry.provider)] += entry.amount_nanos
    stats = await engine.usage_stats()
    assert {row.provider: row.cost_nanos for row in stats.models if row.cost_nanos} == paid
    assert stats.total.cost_nanos == sum(paid.values())
    assert sum(record.cost_nanos or 0 for record in recorder.requests) == sum(paid.values())
    if metadata is not None:
        record = recorder.requests[-1]
        assert (metadata.provider, metadata.cost_nanos) == (record.provider, record.cost_nanos)
        assert metadata.attempts == metadata.api_calls == len(record.attempts)
        assert metadata.usage == record.usage


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("winner", ["first", "second"])
async def test_of_a_race(tmp_path: Path, winner: str, stream: bool) -> None:
    late = FakeReply(text="late", delay_s=NEVER_S if winner == "second" else 0.1)
    company = FakeReply(text="x", delay_s=NEVER_S if winner == "first" else 0.0)
    first = FakeProvider([*["Hi"] * USUAL, late], name="first")
    second = FakeProvider([company], name="second")
    async with bookkeeper(tmp_path, first, second, pool=HEDGED) as engine:
        engine.hooks.subscribe(recorder := Recorder())

        async def ask() -> Metadata:
            if not stream:
                return (await engine.create_message("Hi", max_tokens=9)).metadata
            async with await engine.create_message_stream("Hi", max_tokens=9) as handle:
                return (await handle.result()).metadata

        for _ in range(USUAL):
            await ask()
        metadata = await ask()
        assert (metadata.provider, metadata.attempts) == (winner, 2)
        await agreed(engine, recorder, metadata)


async def test_of_a_stream_that_broke_and_was_gone_on_with(tmp_path: Path) -> None:
    broken = FakeReply(text="one two three ", error=StreamInterrupted("cut"))
    first, second = FakeProvider([broken], name="first"), FakeProvider(["four"], name="second")
    async with bookkeeper(tmp_path, first, second) as engine:
        engine.hooks.subscribe(recorder := Recorder())
        async with await engine.create_message_stream("Count", max_tokens=99) as stream:
            result = await stream.result()
        await agreed(engine, recorder, result.metadata)


async def test_of_a_stream_that_was_left(tmp_path: Path) -> None:
    async with bookkeeper(tmp_path, FakeProvider(["one two three four"])) as engine:
        engine.hooks.subscribe(recorder := Recorder())
        async with await engine.create_message_stream("Count", max_tokens=99) as stream:
            await anext(stream)
        await engine.create_message("Hi", max_tokens=9)
        await agreed(engine, recorder)


async def test_of_vectors_that_were_asked_for_twice(tmp_path: Path) -> None:
    class OfOneSize(FakeProvider):
        async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
            if request.dimensions is not None:
                raise InvalidRequest.of([Problem("dimensions", "cannot be chosen")])
            return await super().embed(model, request)

    async with bookkeeper(tmp_path, OfOneSize()) as engine:
        engine.hooks.subscribe(recorder := Recorder())
        result = await engine.embed(
            ["one two"], model="fake/echo", dimensions=3, ignore_invalid_options=True
        )
        assert result.metadata.attempts == 2
        await agreed(engine, recorder, result.metadata)
