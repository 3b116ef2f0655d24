"""Where keys are made: what is refused, and in which order things are kept."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError, InvalidRequest
from penstock.keys.admin import KeyChange, KeyDesk, NewKey
from penstock.keys.records import Key, KeyBudget, KeyHash, hash_of
from penstock.keys.store import KeyStore

NOW = 1_800_000_000.0


class Desk:
    """A desk, its store, and the budgets that it has set."""

    def __init__(self, folder: Path, *, failing: bool = False) -> None:
        self.store = KeyStore(folder / "x.db", lambda: NOW)
        self.budgets: list[Budget] = []
        self._failing = failing

        self.desk = KeyDesk(
            self.store,
            [Key(name="fixed", hashes=(KeyHash(hash_of("x")),))],
            models={"default": ()},
            providers={"fake"},
            budgets=self,
            clock=lambda: NOW,
        )

    async def set_budget(self, budget: Budget) -> None:
        if self._failing:
            raise ConfigurationError("the disk is full")
        await self.remove_budget(budget.name)
        self.budgets.append(budget)

    async def remove_budget(self, name: str) -> bool:
        before = len(self.budgets)
        self.budgets[:] = [each for each in self.budgets if each.name != name]
        return len(self.budgets) < before

    async def balances(self) -> Sequence[Balance]:
        return [Balance(each, 0, 0, NOW, None) for each in self.budgets]


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


async def test_the_name_of_a_revoked_key_is_used_again_by_another_key(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    first = await at.desk.add(at.desk.draft(NewKey(name="ci", budget=KeyBudget(5))).key)
    await at.desk.revoke("ci")
    second = await at.desk.add(at.desk.draft(NewKey(name="ci", budget=KeyBudget(9))).key)
    assert (first.id, second.id) == ("ci", "ci~2")
    assert [(each.name, each.key, each.limit_nanos) for each in at.budgets] == [
        ("key:ci", "ci~2", 9)
    ]
    listed = {each.key.id: each for each in await at.desk.listed()}
    assert listed["ci"].key.state(NOW) == "revoked"
    assert [each.budget.limit_nanos for each in listed["ci~2"].balances] == [9]
    assert list(listed["ci"].balances) == []
    with pytest.raises(ConfigurationError, match="there is a key 'ci' already"):
        await at.desk.add(at.desk.draft(NewKey(name="ci")).key)
    await at.desk.revoke("ci")
    # Without a budget of its own it has none, and not that of the key before it.
    third = await at.desk.add(at.desk.draft(NewKey(name="ci")).key)
    assert (third.id, at.budgets) == ("ci~3", [])
    found = await at.desk.find("ci")
    assert found is not None
    assert found.key.id == "ci~3"


async def test_only_what_is_named_of_a_key_changes(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    wanted = NewKey(
        name="ci", models=("default",), requests_per_minute=5, budget=KeyBudget(5), tags={"a": "b"}
    )
    made = await at.desk.add(at.desk.draft(wanted).key)
    changed = await at.desk.change("ci", KeyChange(requests_per_minute=None, tokens_per_minute=7))
    assert changed == msgspec.structs.replace(made, requests_per_minute=None, tokens_per_minute=7)
    await at.desk.change("ci", KeyChange(budget=KeyBudget(8, "day")))
    assert [(each.limit_nanos, each.period) for each in at.budgets] == [(8, "day")]
    await at.desk.change("ci", KeyChange(budget=None, models=(), tags={}, expires=NOW + 1))
    assert at.budgets == []
    (key,) = at.store.keys()[1]
    assert (key.budget, key.models, key.tags, key.expires) == (None, (), {}, NOW + 1)
    assert key.hashes == made.hashes


async def test_a_change_that_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    made = await at.desk.add(at.desk.draft(NewKey(name="ci", budget=KeyBudget(5))).key)
    with pytest.raises(InvalidRequest, match="models"):
        await at.desk.change("ci", KeyChange(models=("nothing",), budget=KeyBudget(9)))
    with pytest.raises(InvalidRequest, match="expires"):
        await at.desk.change("ci", KeyChange(expires=NOW - 1))
    assert await at.desk.change("ci", KeyChange()) == made
    with pytest.raises(InvalidRequest, match="requests_per_minute=0: give 1 or more"):
        await at.desk.change("ci", KeyChange(requests_per_minute=0, budget=KeyBudget(9)))
    with pytest.raises(ConfigurationError, match=r"change \[keys.fixed\] there"):
        await at.desk.change("fixed", KeyChange(tokens_per_minute=5))
    with pytest.raises(ConfigurationError, match="there is no key 'nobody'"):
        await at.desk.change("nobody", KeyChange(budget=KeyBudget(9)))
    assert at.store.keys()[1] == [made]
    assert [each.limit_nanos for each in at.budgets] == [5]
    await at.desk.revoke("ci")
    with pytest.raises(ConfigurationError, match="was revoked"):
        await at.desk.change("ci", KeyChange(tokens_per_minute=5))
