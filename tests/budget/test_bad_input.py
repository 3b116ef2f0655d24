"""What an engine says to those who give it nonsense, or a file that cannot be used."""

import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.budget.calendar import Period
from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.contract.metadata import Usage
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from tests.budget.support import A, charge


def config(path: Path | None, **more: object) -> Config:
    storage = {} if path is None else {"storage": {"url": f"sqlite:///{path}"}}
    return Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {
                "default": {
                    "targets": ["fake/words-60"],
                    "prices": {"fake/words-60": {"input": 3, "output": 15}},
                }
            },
            **storage,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("limit", "options", "said"),
    [
        (-5, {}, "budget 'total': limit_nanos=-5000000000 (-$5.00): give 0 to "),
        (-1e-9, {}, "limit_nanos=-1 (-$0.000000001): give 0"),
        (2e9, {}, "($2000000000.00): give 0 to 1000000000000000000 ($1000000000.00)"),
        (1e-10, {}, "limit_usd: 1e-10 USD: give an amount of at most nine decimals"),
        (float("inf"), {}, "limit_usd: inf USD"),
        (5, {"period": "year"}, "period 'year' is not known: give hour, day, week, month, forever"),
        (5, {"timezone": "Mars/Base"}, "budget 'total': timezone 'Mars/Base' is not known"),
        (5, {"timezone": "../etc/passwd"}, "timezone '../etc/passwd' is not known"),
        (5, {"name": ""}, "budget '': give it a name"),
        (5, {"key": ""}, "key is empty: give a name, or leave it out to cover all"),
        (5, {"warn_at": (0,)}, "warn_at has 0: give shares of the limit above 0"),
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused_and_changes_nothing(
    tmp_path: Path, limit: float, options: dict[str, Any], said: str
) -> None:
    async with Engine(config(tmp_path / "x.db")) as engine:
        await engine.set_budget(7, name="before")
        with pytest.raises(ConfigurationError) as caught:
            await engine.set_budget(limit, **options)
        assert said in str(caught.value)
        assert [each.budget.name for each in await engine.budgets()] == ["before"]


def test_all_that_is_wrong_with_a_budget_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Budget(name="b", limit_nanos=-1, period=cast(Period, "year"), timezone="Mars/Base")
    said = str(caught.value)
    assert said.startswith("budget 'b': limit_nanos=-1 (-$0.000000001): give 0 to ")
    assert "; period 'year' is not known" in said
    assert "; timezone 'Mars/Base' is not known" in said


async def test_an_engine_without_a_ledger_says_how_to_keep_one() -> None:
    async with Engine(config(None)) as engine:
        with pytest.raises(ConfigurationError, match=r"write \[storage\] into penstock.toml"):
            await engine.set_budget(5)
        assert (await engine.create_message("Count.", max_tokens=60)).cost_usd == 903_000 / 1e9
        assert (await engine.usage_stats()).remaining is None


def damaged(path: Path) -> None:
    path.write_bytes(b"Dear diary, today I have spent too much.\n" * 200)


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE ledger_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
    connection.execute("INSERT INTO ledger_meta VALUES ('version', 99)")
    connection.commit()
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "said"), [(damaged, "is damaged or is not an SQLite"), (newer, "has version 99")]
)
async def test_a_ledger_that_cannot_be_used_refuses_requests_and_is_left_as_it_is(
    tmp_path: Path, spoil: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.db"
    spoil(path)
    content = path.read_bytes()
    async with Engine(config(path)) as engine:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=said) as caught:
                await engine.create_message("Count.", max_tokens=60)
            assert caught.value.request_id is not None
        with pytest.raises(ConfigurationError, match=said):
            await engine.budgets()
        # What is counted in memory can be told all the same.
        stats = await engine.usage_stats()
        assert (stats.total.failures, stats.remaining) == ({"ConfigurationError": 2}, None)
        assert said in caplog.text
    assert path.read_bytes() == content


async def test_usage_stats_tell_what_was_done_for_whom_and_what_is_left(tmp_path: Path) -> None:
    async with Engine(config(tmp_path / "x.db")) as engine:
        await engine.set_budget(0.01)
        await engine.set_budget(1, name="ci", key="ci")
        for key in ("ci", "ci", None):
            caller = Caller(key=key)
            await engine.create_message("Count.", max_tokens=60, caller=caller)
        stats = await engine.usage_stats()
        assert stats.remaining == {
            "ci": 10**9 - 2 * 903_000,
            "total": 10**7 - 3 * 903_000,
        }
        (key,), (provider,) = stats.keys, stats.providers
        assert (key.key, key.requests, key.cost_nanos) == ("ci", 2, 2 * 903_000)
        assert key.usage == Usage(2, 120)
        assert (provider.provider, provider.model, provider.requests) == ("fake", None, 3)


async def test_what_a_dead_process_held_is_swept_when_the_ledger_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    ledger = await Ledger.open(path, clock=lambda: 1_000.0)
    await ledger.set_budget(Budget(name="ever", limit_nanos=10_000, period="forever"))
    await ledger.reserve("lost", [(A, 700)])
    await ledger.aclose()
    async with Engine(config(path)) as engine:
        (balance,) = await engine.budgets()
        assert (balance.held_nanos, balance.used_nanos) == (0, 700)


async def test_only_who_is_no_visitor_removes_budgets_that_others_declared(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with Engine(config(path, budgets={"total": {"limit_usd": 5}})) as engine:
        assert len(await engine.budgets()) == 1
    other: dict[str, Any] = {"other": {"limit_usd": 5}}
    async with Engine(config(path, budgets=other), prune_budgets=False) as visitor:
        assert len(await visitor.budgets()) == 2
    async with Engine(config(path)) as engine:
        # Who declares none has no say in those of others.
        assert len(await engine.budgets()) == 2
    async with Engine(config(path, budgets=other)) as engine:
        assert [each.budget.name for each in await engine.budgets()] == ["other"]


async def test_calls_whose_price_nobody_knows_are_counted(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "x.db")
    hold = await ledger.reserve("r", [(A, None)])
    unknown = charge(0)
    await ledger.settle(hold, [unknown, type(unknown)(A, Usage(1, 1), 0, "unknown")])
    (row,) = await ledger.usage()
    await ledger.aclose()
    assert (row.requests, row.unpriced) == (1, 1)
