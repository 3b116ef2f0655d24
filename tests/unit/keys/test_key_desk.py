"""Where keys are made: what is refused, and in which order things are kept."""

from pathlib import Path

import pytest

from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, InvalidRequest
from penstock.keys.desk import KeyDesk, NewKey
from penstock.keys.records import Key, KeyBudget, KeyHash, hash_of
from penstock.keys.store import KeyStore

NOW = 1_800_000_000.0


class Desk:
    """A desk, its store, and the budgets that it has set."""

    def __init__(self, folder: Path, *, failing: bool = False) -> None:
        self.store = KeyStore(folder / "x.db", lambda: NOW)
        self.budgets: list[Budget] = []

        async def set_budget(budget: Budget) -> None:
            if failing:
                raise ConfigurationError("the disk is full")
            self.budgets.append(budget)

        self.desk = KeyDesk(
            self.store,
            [Key(name="fixed", hashes=(KeyHash(hash_of("x")),))],
            models={"default": ()},
            providers={"fake"},
            set_budget=set_budget,
            clock=lambda: NOW,
        )


async def test_a_key_is_made_with_its_budget(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    wanted = NewKey(name="ci", models=("default", "default"), budget=KeyBudget(5))
    text, key = at.desk.draft(wanted)
    assert at.store.keys()[1] == ()
    await at.desk.add(key)
    assert [(each.key.name, each.source) for each in await at.desk.listed()] == [
        ("fixed", "penstock.toml"),
        ("ci", "created"),
    ]
    assert (key.models, key.created, key.hashes[0].hash) == (("default",), NOW, hash_of(text))
    assert [(each.name, each.key) for each in at.budgets] == [("key:ci", "ci")]


async def test_without_its_budget_no_key_is_kept(tmp_path: Path) -> None:
    at = Desk(tmp_path, failing=True)
    with pytest.raises(ConfigurationError, match="the disk is full"):
        await at.desk.add(at.desk.draft(NewKey(name="ci", budget=KeyBudget(5))).key)
    assert at.store.keys()[1] == ()


async def test_a_name_that_is_taken_changes_no_budget(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    await at.desk.add(at.desk.draft(NewKey(name="ci")).key)
    for name in ("ci", "fixed"):
        with pytest.raises(ConfigurationError, match="take another name"):
            await at.desk.add(at.desk.draft(NewKey(name=name, budget=KeyBudget(5))).key)
    assert at.budgets == []
    for change in (at.desk.revoke, at.desk.rotate):
        with pytest.raises(ConfigurationError, match="there is no key 'nobody'; there are: ci"):
            await change("nobody")
        with pytest.raises(ConfigurationError, match="stands in penstock"):
            await change("fixed")


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    wanted = NewKey(
        name="ci",
        models=("default", "nothing"),
        tags={"a": "", "b": "x" * 129},
        expires=NOW,
    )
    with pytest.raises(InvalidRequest) as caught:
        Desk(tmp_path).desk.draft(wanted)
    assert [each.path for each in caught.value.problems] == ["models[1]", "tags", "tags", "expires"]
