"""Engines whose memory is searched in PostgreSQL: they serve whatever becomes of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

import penstock
from penstock import Config, Engine
from penstock.config.routing import RoutingConfig
from penstock.config.settings import ModelConfig, ProviderConfig, StorageConfig
from penstock.contract.requests import Caller
from penstock.routing.index import pgvector_table
from penstock.routing.index.pgvector_setup import table_of
from penstock.routing.index.pgvector_table import Limits, PgvectorTable
from penstock.routing.learning.features import SIZE
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from tests.support.services import Service
from tests.support.tcp_proxy import TcpProxy

WORDS = ["rivers", "bread", "numbers", "violins", "winter", "engines", "letters", "gardens"]
RECENT = 3


def _limit(patch: pytest.MonkeyPatch, limits: Limits) -> None:
    """Let tables search after three rows, and be patient or not."""
    make = partial(PgvectorTable, limits=limits, recent=RECENT)
    patch.setattr(pgvector_table, "PgvectorTable", make)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, Limits(connect_s=30, search_s=3600, rest_s=0))


@pytest.fixture
def model() -> str:
    return uuid4().hex


def _config(path: Path, url: str | None, model: str, explore: float = 0.02) -> Config:
    """Without an address, an index that compares all rows."""
    index = "exact" if url is None else "pgvector"
    return Config(
        providers={"fake": ProviderConfig()},
        models={
            model: ModelConfig(targets=("fake/one", "fake/two"), routing="learned"),
            "plain": ModelConfig(targets=("fake/one",)),
        },
        storage=StorageConfig(url=f"sqlite:///{path / 'p.db'}"),
        routing=RoutingConfig.model_validate(
            {"index": index, "index_url": url, "seed": 7, "explore": explore}
        ),
    )


async def _asked(engine: Engine, model: str, word: str, key: str | None = None) -> str:
    prompt = f"Tell me of {word}"
    result = await engine.create_message(prompt, max_tokens=20, model=model, caller=Caller(key=key))
    return result.request_id


async def _taught(engine: Engine, model: str, words: list[str], key: str | None = None) -> None:
    for word in words:
        await engine.record_feedback(await _asked(engine, model, word, key), score=1.0)
    assert engine.learning is not None
    await engine.learning.catch_up()


async def _neighbours(engine: Engine, model: str, word: str) -> float:
    decision = await engine.route(f"Tell me of {word}", model=model)
    return sum(each.neighbours or 0.0 for each in decision.ranked)


async def _all_neighbours(path: Path, model: str, word: str) -> float:
    """The same if all rows are compared."""
    async with penstock.open(_config(path, None, model)) as engine:
        return await _neighbours(engine, model, word)


async def _kept(server: Service, model: str) -> int:
    connection = await asyncpg.connect(server.url)
    try:
        if await connection.fetchval("SELECT to_regclass($1)::text", table_of(SIZE)) is None:
            return 0
        query = f"SELECT count(*) FROM {table_of(SIZE)} WHERE memory = $1"
        return await connection.fetchval(query, model)
    finally:
        await connection.close()


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when it holds; the test's own time limit ends it otherwise."""
    while not await condition():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.02)


async def _comes_to_hold(server: Service, model: str, rows: int) -> None:
    async def holds() -> bool:
        return await _kept(server, model) == rows

    await _until(holds)


def _through(wire: TcpProxy) -> str:
    return f"postgresql://postgres:Qx7-secret@127.0.0.1:{wire.port}/postgres"


async def test_other_requests_are_answered_while_one_waits_for_a_silent_database(
    pgvector_server: Service, tmp_path: Path, model: str
) -> None:
    async with (
        TcpProxy(pgvector_server.port) as wire,
        penstock.open(_config(tmp_path, _through(wire), model)) as engine,
    ):
        await _taught(engine, model, WORDS)
        assert engine.learning is not None
        assert await engine.learning.share()
        wire.hold()
        # The table may be silent for an hour here.
        waiting = asyncio.create_task(_asked(engine, model, "rivers"))
        for word in WORDS:
            assert await _asked(engine, "plain", word)
        assert not waiting.done()
        await wire.mend()
        assert await waiting


async def test_a_silent_database_is_waited_for_once_and_routing_goes_on_without_it(
    pgvector_server: Service,
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _limit(monkeypatch, Limits(connect_s=30, search_s=1, rest_s=3600))
    async with (
        TcpProxy(pgvector_server.port) as wire,
        penstock.open(_config(tmp_path, _through(wire), model)) as engine,
    ):
        await _taught(engine, model, WORDS)
        assert engine.learning is not None
        assert await engine.learning.share()
        wire.hold()
        everything = await _all_neighbours(tmp_path, model, WORDS[0])
        assert await _neighbours(engine, model, WORDS[0]) != pytest.approx(everything)
        before = wire.accepted
        await wire.mend()
        for word in WORDS:
            assert await _asked(engine, model, word)
        assert wire.accepted == before
    (warning,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "[routing] index_url: TimeoutError" in warning.getMessage()


async def test_an_engine_starts_without_its_database_and_uses_it_when_it_is_there(
    pgvector_server: Service, tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.routing")
    wire = TcpProxy(pgvector_server.port)
    async with penstock.open(_config(tmp_path, _through(wire), model)) as engine:
        await _taught(engine, model, WORDS)

        async def told() -> bool:
            return bool(caplog.records)

        await _until(told)
        async with wire:
            await _comes_to_hold(pgvector_server, model, len(WORDS))

            async def back() -> bool:
                return len(caplog.records) > 1

            await _until(back)
            everything = await _all_neighbours(tmp_path, model, WORDS[0])
            assert await _neighbours(engine, model, WORDS[0]) == pytest.approx(everything)
    warning, info = caplog.records
    assert "[routing] index_url: ConnectionRefusedError" in warning.getMessage()
    assert "start PostgreSQL there, or correct the address" in warning.getMessage()
    assert "answers again" in info.getMessage()
    assert "Qx7-secret" not in caplog.text


async def test_two_engines_see_each_others_rows(
    pgvector_server: Service, tmp_path: Path, model: str
) -> None:
    config = _config(tmp_path, pgvector_server.url, model)
    async with penstock.open(config) as one, penstock.open(config) as other:
        assert one.learning is not None
        assert other.learning is not None
        await _taught(one, model, WORDS[:5])
        await _taught(other, model, WORDS[5:])
        assert await one.learning.share()
        assert await other.learning.share()
        assert await _kept(pgvector_server, model) == len(WORDS)
        # Of eight rows three are compared in each process: the others come from the table.
        for word in WORDS:
            everything = pytest.approx(await _all_neighbours(tmp_path, model, word))
            assert await _neighbours(one, model, word) == everything
            assert await _neighbours(other, model, word) == everything


async def test_what_is_forgotten_goes_from_the_table_of_a_running_gateway(
    pgvector_server: Service, tmp_path: Path, model: str
) -> None:
    async with penstock.open(_config(tmp_path, pgvector_server.url, model)) as engine:
        await _taught(engine, model, WORDS[:3], "ci")
        await _taught(engine, model, WORDS[3:], "me")
        await _comes_to_hold(pgvector_server, model, len(WORDS))
        store = SqliteOutcomes(tmp_path / "p.db")
        await asyncio.to_thread(lambda: store.forget(key="ci"))
        await _comes_to_hold(pgvector_server, model, len(WORDS) - 3)
        await asyncio.to_thread(lambda: store.forget(key="me"))
        # Nothing is left to learn from, and nothing is left there.
        await _comes_to_hold(pgvector_server, model, 0)


async def test_an_heir_goes_on_with_the_table_and_nobody_stays_connected(
    pgvector_server: Service, tmp_path: Path, model: str
) -> None:
    config = _config(tmp_path, pgvector_server.url, model)
    engine = await penstock.open(config).__aenter__()
    await _taught(engine, model, WORDS[:4])
    await _comes_to_hold(pgvector_server, model, 4)
    # The same rules: the heir goes on with these very rows, and with the connections to them.
    heir = await engine.reconfigured(config)
    await _taught(heir, model, WORDS[4:7])
    await _comes_to_hold(pgvector_server, model, 7)
    # Other rules: it reads all outcomes anew.
    last = await heir.reconfigured(_config(tmp_path, pgvector_server.url, model, explore=0.1))
    await _taught(last, model, WORDS[7:])
    await _comes_to_hold(pgvector_server, model, len(WORDS))
    await last.aclose()
    connection = await asyncpg.connect(pgvector_server.url)
    try:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'"

        async def alone() -> bool:
            return await connection.fetchval(query) == 0

        await _until(alone)
    finally:
        await connection.close()
