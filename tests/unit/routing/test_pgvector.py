"""What is kept in PostgreSQL of a memory, who else may write there, and what may go wrong."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.contract.errors import ConfigurationError
from penstock.routing.index.pgvector import PgvectorIndex, digest
from penstock.routing.index.pgvector_setup import table_of
from penstock.routing.index.pgvector_table import ROWS_TO_PLAN, SEARCHERS, Limits, PgvectorTable
from penstock.routing.learning.features import unit
from penstock.routing.learning.neighbours import NEAREST
from tests.support.services import Service, free_port
from tests.support.tcp_proxy import TcpProxy

DIMENSIONS = 12
TABLE = table_of(DIMENSIONS)
PATIENT = Limits(connect_s=30, search_s=30, rest_s=0)
NEVER_AGAIN = Limits(connect_s=30, search_s=1, rest_s=3600)
RECENT = 10
Rows = NDArray[np.float32]


def vectors(number: int, seed: int = 1) -> Rows:
    drawn = np.random.default_rng(seed).standard_normal((number, DIMENSIONS)).astype(np.float32)
    return np.stack([unit(row) for row in drawn])


def with_password(url: str, port: int | None = None) -> str:
    """The same server with a password that it does not ask for, maybe by way of another port."""
    url = url.replace("postgres@", "postgres:Qx7-secret@")
    return url if port is None else url.replace(f":{urlsplit(url).port}/", f":{port}/")


@asynccontextmanager
async def opened(url: str, limits: Limits = PATIENT) -> AsyncGenerator[PgvectorTable]:
    table = PgvectorTable(with_password(url), DIMENSIONS, limits, RECENT)
    try:
        yield table
    finally:
        await table.aclose()


@pytest.fixture
async def table(pgvector_server: Service) -> AsyncIterator[PgvectorTable]:
    async with opened(pgvector_server.url) as table:
        yield table


@pytest.fixture
def memory() -> str:
    return uuid4().hex


def filled(table: PgvectorTable, memory: str, rows: Rows) -> PgvectorIndex:
    index = table.index(memory)
    for number, row in enumerate(rows):
        index.put(number, row)
    return index


async def shared(table: PgvectorTable, memory: str, rows: Rows) -> PgvectorIndex:
    index = filled(table, memory, rows)
    assert await table.share()
    return index


async def sql(server: Service, query: str, *values: object, database: str = "postgres") -> Any:
    """Run a query over a connection of its own; the first column of what it gives."""
    connection = await asyncpg.connect(server.url.removesuffix("postgres") + database)
    try:
        return [row[0] for row in await connection.fetch(query, *values)]
    finally:
        await connection.close()


async def kept(server: Service, memory: str) -> set[bytes]:
    return set(await sql(server, f"SELECT digest FROM {TABLE} WHERE memory = $1", memory))


def names(rows: Rows) -> set[bytes]:
    return {digest(row) for row in rows}


def nearest(rows: Rows, vector: Rows, most: int = 10) -> set[int]:
    return set(np.argsort(-(rows @ vector))[:most].tolist())


def near(index: PgvectorIndex, features: Rows, most: int = 10) -> set[int]:
    return set(index.search(unit(features), most).rows.tolist())


async def found(
    table: PgvectorTable, index: PgvectorIndex, vector: Rows, most: int = 10
) -> set[int]:
    await table.prepare(index.memory, vector)
    return near(index, vector, most)


async def connected(server: Service, number: int) -> None:
    """Return when this process has so many connections; the test's time limit ends it otherwise."""
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'"
    while await sql(server, mine) != [number]:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


async def test_rows_that_are_no_longer_new_are_found_in_the_table(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    rows = vectors(150)
    index = await shared(table, memory, rows)
    assert await kept(pgvector_server, memory) == names(rows)
    for vector in vectors(10, seed=2):
        assert near(index, vector) <= set(range(140, 150))
        assert await found(table, index, vector) == nearest(rows, vector)
    remove = f"DELETE FROM {TABLE} WHERE memory = $1 AND digest = $2"
    await sql(pgvector_server, remove, memory, digest(rows[7]))
    assert await found(table, index, rows[7], 5) == nearest(rows, rows[7], 6) - {7}


async def test_a_graph_is_followed_where_more_rows_are_than_are_asked_for(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    rows = vectors(ROWS_TO_PLAN + 500)
    index = await shared(table, memory, rows)
    shares = [
        len(await found(table, index, vector, 20) & nearest(rows, vector, 20)) / 20
        for vector in vectors(20, seed=3)
    ]
    assert np.mean(shares) > 0.9
    # The server was told how large the memory has become.
    frequent = (
        "SELECT 1 FROM pg_stats WHERE tablename = $1 AND attname = 'memory' "
        "AND $2 = ANY(most_common_vals::text::text[])"
    )
    assert await sql(pgvector_server, frequent, TABLE, memory)
    assert len(rows) > NEAREST


async def test_a_small_memory_is_written_and_the_table_not_asked(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    rows = vectors(RECENT)
    index = await shared(table, memory, rows)
    assert await kept(pgvector_server, memory) == names(rows)
    await connected(pgvector_server, 1)
    assert await found(table, index, rows[3], 3) == nearest(rows, rows[3], 3)
    await shared(table, memory, vectors(RECENT + 1))
    await connected(pgvector_server, 1 + SEARCHERS)


async def test_replaced_rows_are_replaced_in_the_table(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    rows = vectors(100)
    index = await shared(table, memory, rows)
    changed = rows.copy()
    changed[20:60] = vectors(40, seed=2)
    for number in range(20, 60):
        index.put(number, changed[number])
    assert await table.share()
    assert await kept(pgvector_server, memory) == names(changed)
    for vector in vectors(10, seed=3):
        assert await found(table, index, vector) == nearest(changed, vector)


async def test_rows_of_other_memories_are_not_found_nor_touched(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    mine, others = vectors(100), vectors(400, seed=2)
    other = filled(table, memory + "+", others)
    index = await shared(table, memory, mine)
    for vector in vectors(10, seed=3):
        assert await found(table, index, vector) == nearest(mine, vector)
        assert len(await found(table, other, vector) & nearest(others, vector)) >= 8
    await shared(table, memory, mine[:20])
    assert await kept(pgvector_server, memory + "+") == names(others)


async def test_two_gateways_keep_each_row_once_and_number_them_as_they_like(
    pgvector_server: Service, memory: str
) -> None:
    rows = vectors(150)
    backwards = np.ascontiguousarray(rows[::-1])
    async with opened(pgvector_server.url) as here, opened(pgvector_server.url) as there:
        one, other = filled(here, memory, rows), filled(there, memory, backwards)
        assert await asyncio.gather(here.share(), there.share()) == [True, True]
        for vector in vectors(10, seed=3):
            assert await found(here, one, vector) == nearest(rows, vector)
            assert await found(there, other, vector) == nearest(backwards, vector)
    count = f"SELECT count(*) FROM {TABLE} WHERE memory = $1"
    assert await sql(pgvector_server, count, memory) == [150]


async def test_what_one_gateway_wrote_another_finds_and_does_not_write_again(
    pgvector_server: Service, memory: str
) -> None:
    rows = vectors(120)
    when = f"SELECT digest || xmin::text::bytea FROM {TABLE} WHERE memory = $1"
    async with opened(pgvector_server.url) as table:
        await shared(table, memory, rows[:100])
    before = set(await sql(pgvector_server, when, memory))
    async with opened(pgvector_server.url) as table:
        index = await shared(table, memory, rows)
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])
    after = set(await sql(pgvector_server, when, memory))
    assert before < after
    assert len(after) == 120


async def test_what_a_new_index_does_not_know_any_more_is_deleted(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    rows = vectors(120)
    await shared(table, memory, rows)
    await shared(table, memory, rows[:50])
    assert await kept(pgvector_server, memory) == names(rows[:50])
    await shared(table, memory, rows[:0])
    assert await kept(pgvector_server, memory) == set()


async def test_writing_ends_when_another_index_has_taken_the_place(
    table: PgvectorTable, pgvector_server: Service, memory: str
) -> None:
    await shared(table, memory, vectors(1))
    rows = vectors(500, seed=2)
    filled(table, memory, rows)
    holder = await asyncpg.connect(pgvector_server.url)
    try:
        async with holder.transaction():
            await holder.execute(f"LOCK TABLE {TABLE} IN SHARE MODE")
            table.share_soon()
            await _waits_for_lock(pgvector_server)
            filled(table, memory, rows[:5])
            table.share_soon()
    finally:
        await holder.close()
    assert await table.share()
    assert await kept(pgvector_server, memory) == names(rows[:5])


async def _waits_for_lock(server: Service) -> None:
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock' "
        "AND wait_event_type = 'Lock'"
    )
    while not await sql(server, waiting):  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


async def test_a_server_that_is_silent_costs_one_search_and_one_warning(
    pgvector_server: Service, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = vectors(100)
    async with TcpProxy(pgvector_server.port) as wire:
        url = with_password(pgvector_server.url, wire.port)
        async with opened(url, NEVER_AGAIN) as table:
            index = await shared(table, memory, rows)
            assert await found(table, index, rows[3]) == nearest(rows, rows[3])
            wire.hold()
            for vector in vectors(5, seed=2):
                # Without a prepared answer, and the first one without waiting any longer.
                assert await found(table, index, vector) <= set(range(90, 100))
            before = wire.accepted
            await wire.mend()
            for vector in vectors(5, seed=3):
                assert await found(table, index, vector) <= set(range(90, 100))
            table.share_soon()
            assert wire.accepted == before
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    said = (
        "[routing] index_url: TimeoutError: see whether PostgreSQL runs there, and how busy it is"
    )
    assert said in warning.getMessage()
    assert "Qx7-secret" not in caplog.text


async def test_a_server_that_went_away_is_used_again_when_it_is_back(
    pgvector_server: Service, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    rows = vectors(200)
    async with (
        TcpProxy(pgvector_server.port) as wire,
        opened(with_password(pgvector_server.url, wire.port)) as table,
    ):
        index = await shared(table, memory, rows[:100])
        await wire.cut()
        for number in range(100, 200):
            index.put(number, rows[number])
            assert number in await found(table, index, rows[number])
        for _ in range(3):
            assert not await table.share()
        # It may have been emptied meanwhile.
        await sql(pgvector_server, f"DELETE FROM {TABLE} WHERE memory = $1", memory)
        await wire.mend()
        assert await table.share()
        assert await kept(pgvector_server, memory) == names(rows)
        for vector in vectors(10, seed=3):
            assert await found(table, index, vector) == nearest(rows, vector)
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


async def test_a_server_that_searches_too_slowly_stays_unused_without_more_warnings(
    pgvector_server: Service, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = vectors(100)
    # No search is so fast.
    limits = Limits(connect_s=30, search_s=0.000_001, rest_s=0)
    async with opened(pgvector_server.url, limits) as table:
        index = filled(table, memory, rows)
        for _ in range(3):
            assert not await table.share()
            assert await found(table, index, rows[3]) <= set(range(90, 100))
        assert await kept(pgvector_server, memory) == names(rows)
    assert [each.levelname for each in caplog.records] == ["WARNING"]


async def test_connections_that_the_server_ended_are_opened_again_without_a_word(
    pgvector_server: Service, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = vectors(120)
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'"
    )
    async with opened(pgvector_server.url) as table:
        index = await shared(table, memory, rows[:100])
        assert await sql(pgvector_server, end)
        await connected(pgvector_server, 0)
        assert await found(table, index, rows[3]) <= set(range(90, 100))
        for number in range(100, 120):
            index.put(number, rows[number])
        assert await table.share()
        assert await kept(pgvector_server, memory) == names(rows)
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])
        await connected(pgvector_server, 1 + SEARCHERS)
    assert not caplog.records


async def test_more_searches_than_connections_do_without(
    pgvector_server: Service, memory: str
) -> None:
    rows = vectors(100)
    async with (
        TcpProxy(pgvector_server.port) as wire,
        opened(with_password(pgvector_server.url, wire.port)) as table,
    ):
        index = await shared(table, memory, rows)
        wire.hold()
        asked = vectors(SEARCHERS, seed=2)
        waiting = [asyncio.create_task(table.prepare(memory, each)) for each in asked]
        await asyncio.sleep(0)
        assert await found(table, index, rows[3]) <= set(range(90, 100))
        assert not any(each.done() for each in waiting)
        await wire.mend()
        await asyncio.gather(*waiting)
        for each in asked:
            assert near(index, each) == nearest(rows, each)
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])


async def test_whoever_goes_away_while_searching_takes_only_its_connection_along(
    pgvector_server: Service, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = vectors(100)
    async with (
        TcpProxy(pgvector_server.port) as wire,
        opened(with_password(pgvector_server.url, wire.port)) as table,
    ):
        index = await shared(table, memory, rows)
        wire.hold()
        leaving = asyncio.create_task(table.prepare(memory, rows[5]))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asyncio.gather(leaving, return_exceptions=True) != [None]
        await wire.mend()
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])
        assert await table.share()
    assert not caplog.records


async def test_a_table_that_was_dropped_is_made_again(
    pgvector_server: Service, poor: tuple[str, str], memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, _ = poor
    rows = vectors(50)
    async with opened(pgvector_server.url.removesuffix("postgres") + name) as table:
        index = await shared(table, memory, rows)
        await sql(pgvector_server, f"DROP TABLE {TABLE}", database=name)
        assert await found(table, index, rows[3]) <= set(range(40, 50))
        assert await table.share()
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])
    assert "UndefinedTableError" in caplog.text
    assert "see what its log says" in caplog.text


async def test_nothing_stays_open_after_it_is_closed(pgvector_server: Service, memory: str) -> None:
    async with opened(pgvector_server.url) as table:
        index = await shared(table, memory, vectors(50))
        for number, row in enumerate(vectors(5_000, seed=2)):
            index.put(number, row)
        table.share_soon()
        await asyncio.sleep(0)
    # Closed in mid work; whoever goes on to route does without.
    table.share_soon()
    await table.prepare(memory, vectors(1)[0])
    await connected(pgvector_server, 0)


async def refused(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """What is told of a server that cannot be used."""
    caplog.clear()
    table = PgvectorTable(url, DIMENSIONS, PATIENT)
    assert not await table.share()
    await table.aclose()
    (warning,) = caplog.records
    message = warning.getMessage()
    assert message.startswith("[routing] index_url: ")
    assert "it is tried again every 0 s" in message
    assert "secret" not in caplog.text
    return message


def test_missing_packages_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pgvector.asyncpg", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[routing-pgvector\]'"):
        PgvectorTable("postgresql://a:secret@127.0.0.1/x", DIMENSIONS)


async def test_a_server_that_is_not_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/db?password=secret"
    assert "start PostgreSQL there, or correct the address" in await refused(url, caplog)


async def test_a_database_that_is_not_there_is_told(
    pgvector_server: Service, caplog: pytest.LogCaptureFixture
) -> None:
    url = pgvector_server.url.removesuffix("postgres") + "nothing"
    message = await refused(url, caplog)
    assert '"nothing" does not exist: create the database, or name another' in message


async def test_a_user_who_is_not_known_is_told(
    pgvector_server: Service, caplog: pytest.LogCaptureFixture
) -> None:
    url = pgvector_server.url.replace("postgres@", "stranger:secret@")
    assert "correct the user or the password" in await refused(url, caplog)


async def test_a_server_without_the_extension_is_told_what_to_install(
    postgres_server: Service, caplog: pytest.LogCaptureFixture
) -> None:
    if await sql(postgres_server, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        pytest.skip("this machine's PostgreSQL has the extension")
    message = await refused(postgres_server.url, caplog)
    assert "install pgvector 0.8 or newer on that machine" in message


@pytest.fixture
async def poor(pgvector_server: Service) -> AsyncIterator[tuple[str, str]]:
    """A new database, and its address for a user who may create nothing there."""
    name = f"d{uuid4().hex}"
    await sql(pgvector_server, f"CREATE DATABASE {name}")
    await sql(pgvector_server, f"CREATE ROLE {name} LOGIN")
    where = urlsplit(pgvector_server.url)
    yield name, f"postgresql://{name}:secret@{where.hostname}:{where.port}/{name}"
    await sql(pgvector_server, f"DROP DATABASE {name} WITH (FORCE)")
    await sql(pgvector_server, f"DROP ROLE {name}")


async def test_who_may_not_create_is_told_what_to_have_done(
    pgvector_server: Service, poor: tuple[str, str], memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, url = poor
    assert "run `CREATE EXTENSION vector` there" in await refused(url, caplog)
    for once in (
        "CREATE SCHEMA elsewhere",
        "CREATE EXTENSION vector SCHEMA elsewhere",
        f"GRANT USAGE ON SCHEMA elsewhere TO {name}",
    ):
        await sql(pgvector_server, once, database=name)
    assert "`GRANT CREATE ON SCHEMA public TO` this user" in await refused(url, caplog)
    await sql(pgvector_server, f"GRANT CREATE ON SCHEMA public TO {name}", database=name)
    async with opened(url) as table:
        rows = vectors(60)
        index = await shared(table, memory, rows)
        assert await found(table, index, rows[3]) == nearest(rows, rows[3])
    await sql(pgvector_server, f"REVOKE CREATE ON SCHEMA public FROM {name}", database=name)
    # What is there need not be created.
    async with opened(url) as table:
        assert await table.share()


async def test_an_extension_that_is_too_old_is_told(
    pgvector_server: Service, poor: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    name, url = poor
    await sql(pgvector_server, "CREATE EXTENSION vector", database=name)
    # The package brings no older one: let the new one say that it is old.
    pretend = "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'"
    await sql(pgvector_server, pretend, database=name)
    assert "has pgvector 0.7.4: install 0.8 or newer" in await refused(url, caplog)


@pytest.mark.parametrize("password", ["secret/secret", "secret:a@b:c"])
async def test_an_address_that_cannot_be_read_is_not_repeated(
    password: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = await refused(f"postgresql://me:{password}@localhost", caplog)
    assert "with / @ : ? # % in a password as" in message
