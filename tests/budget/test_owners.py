"""Several configurations declare budgets in one ledger, and none takes away those of another."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

import penstock
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.config.load import load
from penstock.contract.errors import BudgetExceeded, ConfigurationError
from penstock.storage.sqlite.connect import connect, prepare
from tests.budget.support import Books, books


def named(*names: str, limit: int = 5) -> list[Budget]:
    return [Budget(name=name, limit_nanos=limit) for name in names]


async def owners(at: Books) -> dict[str, tuple[str, ...]]:
    return {each.budget.name: each.declared_by for each in await at.ledger.balances()}


async def test_each_takes_away_only_what_it_has_declared(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a", "both"), source="one")
        await at.ledger.declare_budgets(named("b", "both"), source="two")
        assert await owners(at) == {"a": ("one",), "b": ("two",), "both": ("one", "two")}
        await at.ledger.declare_budgets(named("c"), source="one")
        assert await owners(at) == {"b": ("two",), "both": ("two",), "c": ("one",)}
        await at.ledger.declare_budgets([], source="two")
        assert await owners(at) == {"c": ("one",)}


async def test_without_pruning_nothing_goes(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source="one")
        await at.ledger.declare_budgets(named("b"), source="one", prune=False)
        assert await owners(at) == {"a": ("one",), "b": ("one",)}


async def test_another_definition_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source="one")
        await at.ledger.declare_budgets(named("a", "b"), source="two")
        with pytest.raises(ConfigurationError, match="'a' is declared in two ways") as refused:
            await at.ledger.declare_budgets([*named("a", limit=7), *named("c")], source="two")
        assert "by one, and" in str(refused.value)
        assert "penstock budget remove a" in str(refused.value)
        assert (await at.balance("a")).limit_nanos == 5
        assert set(await owners(at)) == {"a", "b"}
        # One owner changes what it alone declares.
        await at.ledger.declare_budgets([], source="one")
        await at.ledger.declare_budgets(named("a", limit=7), source="two")
        assert (await at.balance("a")).limit_nanos == 7


async def test_a_configuration_that_is_gone_is_no_obstacle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.touch()
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source=str(old))
        with pytest.raises(ConfigurationError, match=r"old\.toml"):
            await at.ledger.declare_budgets(named("a", limit=7), source=str(new))
        old.unlink()
        await at.ledger.declare_budgets(named("a", limit=7), source=str(new))
        assert await owners(at) == {"a": (str(new),)}
        assert "which does not exist any more" in caplog.text


async def test_the_default_ledger_belongs_to_the_first_that_declares(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source="one", exclusive=True)
        with pytest.raises(ConfigurationError, match=r"has budgets of one \(a\), and two"):
            await at.ledger.declare_budgets(named("b"), source="two", exclusive=True)
        assert set(await owners(at)) == {"a"}
        # One that declares none, one that shares on purpose, and the first one itself.
        await at.ledger.declare_budgets([], source="two", exclusive=True)
        await at.ledger.declare_budgets(named("b"), source="two")
        await at.ledger.declare_budgets(named("a", limit=7), source="one", exclusive=True)
        assert (await at.balance("a")).limit_nanos == 7


async def test_what_overrides_a_declared_budget_names_it_and_gives_it_back(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source="one")
        await at.ledger.set_budget(Budget(name="a", limit_nanos=9))
        (declared,) = (await at.balance("a")).overrides
        assert (declared.source, declared.budget) == ("one", named("a")[0])
        # The configuration changes meanwhile.
        await at.ledger.declare_budgets(named("a", limit=6), source="one")
        assert (await at.balance("a")).limit_nanos == 9
        await at.ledger.remove_budget("a")
        assert (await at.balance("a")).limit_nanos == 6
        assert await owners(at) == {"a": ("one",)}


async def test_what_is_set_by_hand_stays_whoever_declares_it(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await at.ledger.declare_budgets(named("a"), source="one")
        await at.ledger.set_budget(Budget(name="a", limit_nanos=9))
        assert await owners(at) == {"a": ()}
        await at.ledger.declare_budgets([], source="one")
        assert (await at.balance("a")).limit_nanos == 9
        await at.ledger.remove_budget("a")
        await at.ledger.declare_budgets(named("a"), source="one")
        assert await owners(at) == {"a": ("one",)}


async def first_version(path: Path) -> None:
    """A file as the first version made it, with a declared budget, one by hand, and a past."""
    connection = connect(path, "normal")
    prepare(connection, path, MIGRATIONS[:1], LEDGER_META)
    for name, declared in (("old", 1), ("kept", 1), ("hand", 0)):
        definition = f'{{"name":"{name}","limit_nanos":5000,"period":"forever"}}'
        connection.execute(
            "INSERT INTO ledger_budgets (name, definition, declared) VALUES (?, ?, ?)",
            (name, definition, declared),
        )
    connection.execute(
        "INSERT INTO ledger_entries (kind, at, amount_nanos, estimated, postings) "
        "VALUES ('adjust', 1.0, 70, 0, '[[1,0,70,0]]')"
    )
    connection.execute("INSERT INTO ledger_balances VALUES (1, 0, 70, 0, -1)")
    connection.close()


async def test_a_ledger_of_the_first_version_is_backed_up_and_keeps_its_budgets(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    await first_version(path)
    async with books(path) as at:
        assert await owners(at) == {"old": (), "kept": (), "hand": ()}
        assert (await at.balance("old")).used_nanos == 70
        # A program without budgets, and one that only looks, know of no owner.
        await at.ledger.declare_budgets([], source="visitor")
        await at.ledger.declare_budgets(named("kept"), source="visitor", prune=False)
        assert set(await owners(at)) == {"old", "kept", "hand"}
        await at.ledger.declare_budgets(named("kept"), source="one")
        assert await owners(at) == {"kept": ("one", "visitor"), "hand": ()}
    backup = sqlite3.connect(tmp_path / "x.db.v1-1.backup")
    found = backup.execute("SELECT name FROM ledger_budgets ORDER BY id").fetchall()
    assert found == [("old",), ("kept",), ("hand",)]
    backup.close()


# ---- by the files


def configuration(folder: Path, *budgets: str, owner: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "penstock.toml"
    lines = ["[providers.fake]", "[models.default]", 'targets = ["fake/echo"]', "[storage]"]
    lines.append(f'url = "sqlite:///{folder.parent / "x.db"}"')
    lines += [f'owner = "{owner}"'] if owner else []
    for name in budgets:
        lines += [f"[budgets.{name}]", "limit_usd = 5", "period = 'forever'"]
    file.write_text("\n".join(lines))
    return file


async def budgets_with(file: Path) -> set[str]:
    async with penstock.open(file) as engine:
        return {each.budget.name for each in await engine.budgets()}


async def test_two_programs_with_files_of_their_own_share_a_ledger(tmp_path: Path) -> None:
    one = configuration(tmp_path / "one", "a")
    two = configuration(tmp_path / "two", "b")
    assert await budgets_with(one) == {"a"}
    assert await budgets_with(two) == {"a", "b"}
    assert await budgets_with(one) == {"a", "b"}
    configuration(tmp_path / "one")
    assert await budgets_with(one) == {"b"}


async def test_an_owner_may_move_its_file(tmp_path: Path) -> None:
    await budgets_with(configuration(tmp_path / "here", "a", "b", owner="blue"))
    assert await budgets_with(configuration(tmp_path / "there", "b", owner="blue")) == {"b"}


def test_a_file_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = configuration(tmp_path / "one")
    monkeypatch.chdir(file.parent)
    assert load("penstock.toml").source == load(file).source == str(file.resolve())
    assert penstock.Config().source is None


async def test_a_declared_budget_that_is_taken_away_is_back_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = configuration(tmp_path / "one", "a")
    async with penstock.open(file) as engine:
        with caplog.at_level(logging.WARNING):
            await engine.set_budget(None, name="a")
        assert f"budget 'a' is gone until the next start: it is declared by {file}" in caplog.text
        assert list(await engine.budgets()) == []
    assert await budgets_with(file) == {"a"}


async def test_what_was_set_by_hand_gives_way_to_the_file_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with penstock.open(configuration(tmp_path / "one", "a")) as engine:
        await engine.set_budget(0.0, name="a", provider="fake")
        await engine.set_budget(None, name="a")
        (balance,) = await engine.budgets()
        assert (balance.limit_nanos, balance.budget.provider) == (5_000_000_000, None)
        assert "budget 'a' is again as" in caplog.text
        await engine.set_budget(None, name="nobody")


async def test_the_budget_of_one_program_holds_for_the_other(tmp_path: Path) -> None:
    one = configuration(tmp_path / "one", "a")
    two = configuration(tmp_path / "two")
    price = '[models.default.prices."fake/echo"]\ninput = 1\noutput = 1\n'
    two.write_text(f"{two.read_text()}\n{price}")
    async with penstock.open(one) as engine:
        await engine.set_budget(0.0, name="a", period="forever")
    async with penstock.open(two) as engine:
        with pytest.raises(BudgetExceeded, match="'a'"):
            await engine.create_message("Hi", max_tokens=9)
