"""A memory that is damaged or cannot be read: requests are answered, and learning goes on."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock import Config, ConfigurationError
from penstock.config.routing import RoutingConfig
from penstock.config.settings import ModelConfig, ProviderConfig, StorageConfig
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.providers.embedded import embeddings
from penstock.providers.embedded.embeddings import WordVectors
from penstock.routing.learning.service import Learning

UNREADABLE = "routing cannot read its outcomes"


def _config(path: Path) -> Config:
    return Config(
        providers={"fake": ProviderConfig()},
        models={"m": ModelConfig(targets=("fake/one", "fake/two"), routing="learned")},
        storage=StorageConfig(url=f"sqlite:///{path / 'p.db'}"),
        routing=RoutingConfig(seed=7, trust="always"),
    )


def _learning(engine: Engine) -> Learning:
    assert engine.learning is not None
    return engine.learning


async def _taught(engine: Engine, number: int) -> None:
    for each in range(number):
        result = await engine.create_message(f"Count to {each}", max_tokens=20, model="m")
        await engine.record_feedback(result.request_id, score=1.0, caller=Caller())
    await _learning(engine).catch_up()


async def _known(engine: Engine) -> float:
    """How many observations of similar prompts there are, of all targets together."""
    decision = await engine.route("Count to 3", model="m")
    return sum(each.neighbours or 0.0 for each in decision.ranked)


@contextmanager
def _file(path: Path) -> Generator[sqlite3.Connection]:
    connection = sqlite3.connect(path / "p.db")
    with connection:
        yield connection
    connection.close()


@pytest.mark.parametrize("damage", ["zeroblob(6)", "x'007e' || zeroblob(1066)"])
async def test_one_damaged_row_keeps_no_other_from_being_learnt_from(
    tmp_path: Path, damage: str
) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        await _taught(engine, 6)
    with _file(tmp_path) as connection:
        first = "(SELECT min(id) FROM routing_prompts)"
        changed = connection.execute(
            f"UPDATE routing_prompts SET features = CAST({damage} AS BLOB) WHERE id = {first}"
        )
        assert changed.rowcount == 1
    engine = penstock.open(_config(tmp_path))
    result = await engine.create_message("Count to 3", max_tokens=20, model="m")
    assert result.text
    assert await _known(engine) > 0
    await engine.aclose()


async def _made_unreadable(folder: Path) -> None:
    """Leave a memory that a later version has written."""
    async with penstock.open(_config(folder)) as engine:
        await _taught(engine, 6)
    with _file(folder) as connection:
        connection.execute("UPDATE routing_meta SET value = 99 WHERE name = 'version'")


async def test_requests_are_answered_while_the_memory_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _made_unreadable(tmp_path)
    engine = penstock.open(_config(tmp_path))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert (await engine.create_message("Count", max_tokens=20, model="m")).text
    assert caplog.text.count(UNREADABLE) == 1
    # Who asks for an explanation is told why there is none.
    with pytest.raises(ConfigurationError, match="version 99"):
        await _learning(engine).catch_up()
    await engine.aclose()


async def test_learning_is_not_given_up_while_the_memory_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _made_unreadable(tmp_path)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(20), penstock.open(_config(tmp_path)) as engine:
            while UNREADABLE not in caplog.text:  # noqa: ASYNC110 - background work has no event
                await asyncio.sleep(0.01)
            with _file(tmp_path) as connection:
                connection.execute("UPDATE routing_meta SET value = 1 WHERE name = 'version'")
            while await _known(engine) == 0:  # noqa: ASYNC110 - nor has what it learns
                await asyncio.sleep(0.05)
            assert {each.name: each.restarts for each in engine.background()}["routing"] == 0
    assert caplog.text.count(UNREADABLE) == 1


async def test_a_new_configuration_is_taken_while_the_memory_cannot_be_read(tmp_path: Path) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        await _taught(engine, 6)
        with _file(tmp_path) as connection:
            connection.execute("UPDATE routing_meta SET value = 99 WHERE name = 'version'")
        heir = await engine.reconfigured(_config(tmp_path))
    assert (await heir.create_message("Count", max_tokens=20, model="m")).text
    await heir.aclose()


async def test_without_the_table_of_words_a_restart_loses_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with penstock.open(_config(tmp_path)) as engine:
        await _taught(engine, 6)
    # As if its package had been removed.
    monkeypatch.setattr(embeddings, "shared", WordVectors())
    monkeypatch.setattr(embeddings, "package_folder", partial(Path, tmp_path, "nothing"))
    with caplog.at_level(logging.WARNING):
        async with penstock.open(_config(tmp_path)) as engine:
            await _taught(engine, 4)
            before = await _known(engine)
        async with penstock.open(_config(tmp_path)) as engine:
            # Known from the first question on.
            after = await _known(engine)
    assert 0 < before <= 4  # what was learnt by the table does not compare
    assert after == pytest.approx(before)
    assert caplog.text.count("routing looks at letters instead of meaning") == 2
