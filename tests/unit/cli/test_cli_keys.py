"""`penstock keys`: what it makes, what it shows, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config.load import load
from penstock.engine.build.budget import books_of
from penstock.engine.build.keys import keyring_of
from penstock.keys.records import hash_of
from penstock.keys.store import KeyStore
from tests.unit.cli.conftest import FAKE_CONFIG, Cli


def stored() -> dict[str, Any]:
    return {key.name: key for key in KeyStore(load().storage.path).keys()[1]}


def test_without_any_key(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("keys", "list")
    assert (finished.code, finished.out) == (0, "")
    assert "there are no keys" in finished.error_line
    assert json.loads(penstock_here("keys", "list", "--json").out) == {"keys": []}
    assert not load().storage.path.exists()


async def test_a_key_from_its_creation_to_its_end(folder: Path, penstock_process: Cli) -> None:
    made = penstock_process(
        *("keys", "create", "ci", "--models", "default,words", "--models", "fake/*"),
        *("--requests-per-minute", "600", "--tokens-per-minute", "100000", "--expires", "30d"),
        *("--tag", "team=search", "--budget", "5", "--period", "day"),
    )
    assert (made.code, made.err) == (0, "")
    text = made.out.strip()
    key = stored()["ci"]
    assert key.models == ("default", "words", "fake/*")
    assert key.hashes[0].hash == hash_of(text)
    assert key.expires == pytest.approx(key.created + 30 * 86400)
    listed = json.loads(penstock_process("keys", "list", "--json").out)["keys"]
    assert [each["name"] for each in listed] == ["ci"]
    assert listed[0]["budget"] == {"limit_usd": 5.0, "period": "day"}
    assert listed[0]["tags"] == {"team": "search"}
    assert listed[0]["state"] == "active"
    table = penstock_process("keys", "list").out
    assert "default, words, fake/*" in table
    assert "$5.00 a day" in table

    ring = keyring_of(load())
    await ring.refresh()
    assert ring.find(text.encode()).verdict == "good"
    ledger = await books_of(load(), lambda target: None, keep=True).ledger()  # pyright: ignore[reportArgumentType]
    async with ledger:
        (balance,) = await ledger.balances()
    assert (balance.budget.name, balance.budget.key) == ("key:ci", "ci")

    rotated = json.loads(penstock_process("keys", "rotate", "ci", "--grace", "1h", "--json").out)
    await ring.refresh()
    assert rotated["name"] == "ci"
    assert "old_key_until" in rotated
    assert ring.find(rotated["key"].encode()).verdict == "good"
    assert ring.find(text.encode()).verdict == "good"
    again = penstock_process("keys", "rotate", "ci").out.strip()
    await ring.refresh()
    assert ring.find(again.encode()).verdict == "good"
    assert ring.find(text.encode()).verdict == "unknown"

    assert penstock_process("keys", "revoke", "ci").out == "revoked ci\n"
    await ring.refresh()
    assert ring.find(again.encode()).verdict == "revoked"
    assert json.loads(penstock_process("keys", "list", "--json").out)["keys"][0]["revoked"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a/b",), "'a/b' is not a valid key name"),
        (
            ("x", "--models", "nope"),
            "--models: there is no model 'nope'; there are: default, words",
        ),
        (("x", "--models", "nobody/*"), "--models: there is no model 'nobody/*'"),
        (("x", "--expires", "soon"), "--expires: 'soon' is neither a time such as 30d"),
        (("x", "--expires", "2020-01-01"), "--expires: '2020-01-01' is over already"),
        (("x", "--expires", "999999999w"), "--expires: '999999999w' is too far away"),
        (("x", "--tag", "team"), "--tag: 'team' is not a valid tag; write name=value"),
        (("x", "--budget", "much"), "--budget: 'much' is not a valid amount"),
        (("x", "--budget", "nan"), "--budget: 'nan' is not a valid amount"),
        (("x", "--budget", "-5"), "--budget: '-5' is not a valid amount"),
        (
            ("x", "--budget", "5", "--period", "year"),
            "--period: 'year' is not a period; give hour, day",
        ),
        (("x", "--period", "day"), "--period: says when the budget is reset"),
        (("x", "--requests-per-minute", "0"), "requests-per-minute"),
        (("file",), "penstock.toml has a key 'file'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(
    folder: Path, penstock_here: Cli, arguments: tuple[str, ...], said: str
) -> None:
    with_key = f'{FAKE_CONFIG}[keys.file]\nhash = "{hash_of("x" * 40)}"\n'
    (folder / "penstock.toml").write_text(with_key)
    finished = penstock_here("keys", "create", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line
    assert stored() == {}


def test_keys_of_the_file_are_changed_in_the_file(folder: Path, penstock_here: Cli) -> None:
    with_key = f'{FAKE_CONFIG}[keys.file]\nhash = "{hash_of("x" * 40)}"\nexpires = 2020-01-01\n'
    (folder / "penstock.toml").write_text(with_key)
    for command in (("rotate", "file"), ("revoke", "file"), ("set", "file", "--budget", "5")):
        finished = penstock_here("keys", *command)
        assert finished.code == 2
        assert "the key 'file' stands in penstock.toml" in finished.error_line
    (listed,) = json.loads(penstock_here("keys", "list", "--json").out)["keys"]
    assert (listed["name"], listed["source"], listed["state"]) == (
        "file",
        "penstock.toml",
        "expired",
    )


def key(penstock_here: Cli, name: str = "ci") -> dict[str, Any]:
    """The key of this id, as it is listed."""
    keys = json.loads(penstock_here("keys", "list", "--json").out)["keys"]
    return {each["id"]: each for each in keys}[name]


def test_what_a_key_allows_is_changed(folder: Path, penstock_here: Cli) -> None:
    penstock_here("keys", "create", "ci", "--models", "words", "--budget", "5", "--tag", "a=b")
    before = stored()["ci"]
    changed = penstock_here(
        *("keys", "set", "ci", "--models", "default", "--requests-per-minute", "7"),
        *("--tokens-per-minute", "900", "--budget", "9", "--period", "day", "--expires", "30d"),
    )
    assert (changed.code, changed.err) == (0, "")
    assert "7 requests, 900 tokens" in changed.out
    found = key(penstock_here)
    assert (found["models"], found["requests_per_minute"]) == (["default"], 7)
    assert (found["budget"], found["tags"]) == ({"limit_usd": 9.0, "period": "day"}, {"a": "b"})
    assert stored()["ci"].hashes == before.hashes
    penstock_here("keys", "set", "ci", "--period", "week")
    assert key(penstock_here)["budget"] == {"limit_usd": 9.0, "period": "week"}
    unset = penstock_here("keys", "set", "ci", "--unset", "models,budget", "--unset", "expires")
    assert unset.code == 0
    found = key(penstock_here)
    assert found["models"] == []
    assert {"budget", "expires"} & set(found) == set()
    assert json.loads(penstock_here("budget", "list", "--json").out) == {"budgets": []}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "NAME: give what to change, or --unset with one of models, requests-per-minute"),
        (("--models", "nope"), "--models: there is no model 'nope'"),
        (("--unset", "name"), "--unset: 'name' is none; give models, requests-per-minute"),
        (("--unset", "budget", "--budget", "5"), "--unset: 'budget' is set by another option too"),
        (("--period", "day"), "--period: says when the budget is reset: give --budget as well"),
        (("--budget", "-1"), "--budget: '-1' is not a valid amount"),
        (("--expires", "2020-01-01"), "--expires: '2020-01-01' is over already"),
        (("--requests-per-minute", "0"), "requests-per-minute"),
    ],
)
def test_a_change_that_is_nonsense_changes_nothing(
    folder: Path, penstock_here: Cli, arguments: tuple[str, ...], said: str
) -> None:
    penstock_here("keys", "create", "ci", "--models", "words")
    before = key(penstock_here)
    finished = penstock_here("keys", "set", "ci", *arguments)
    assert (finished.code, finished.out) == (2, "")
    assert said in finished.error_line
    assert key(penstock_here) == before


def test_a_budget_of_a_key_that_is_set_by_hand_is_the_one_that_is_shown(
    folder: Path, penstock_here: Cli
) -> None:
    penstock_here("keys", "create", "ci", "--budget", "5")
    assert key(penstock_here)["budgets"][0]["source"] == "created"
    # Its name says whose it is: without --key it would cover everything.
    told = penstock_here("budget", "set", "key:ci", "7", "--period", "day")
    assert "for key ci" in told.out
    found = key(penstock_here)
    assert found["budget"] == {"limit_usd": 7.0, "period": "day"}
    assert found["budgets"][0]["source"] == "by hand"
    assert "$7.00 a day (by hand)" in penstock_here("keys", "list").out
    wrong = penstock_here("budget", "set", "key:ci", "7", "--key", "other")
    assert "'other' is not the key of the budget 'key:ci'" in wrong.error_line
    penstock_here("budget", "set", "more", "2", "--key", "ci")
    assert [each["name"] for each in key(penstock_here)["budgets"]] == ["key:ci", "more"]
    penstock_here("budget", "remove", "key:ci")
    assert "budget" not in key(penstock_here)


def test_the_name_of_a_revoked_key_makes_another_key(folder: Path, penstock_here: Cli) -> None:
    first = penstock_here("keys", "create", "ci", "--budget", "5").out
    penstock_here("keys", "revoke", "ci")
    second = penstock_here("keys", "create", "ci", "--requests-per-minute", "3")
    assert (second.code, second.out == first) == (0, False)
    assert key(penstock_here)["state"] == "revoked"
    found = key(penstock_here, "ci~2")
    assert (found["state"], found["requests_per_minute"]) == ("active", 3)
    assert "budget" not in found
    assert penstock_here("keys", "set", "ci", "--requests-per-minute", "4").code == 0
    assert key(penstock_here, "ci~2")["requests_per_minute"] == 4
    assert "there is a key 'ci' already" in penstock_here("keys", "create", "ci").error_line


def test_names_that_are_not_there(folder: Path, penstock_here: Cli) -> None:
    for command in (("rotate", "x"), ("revoke", "x"), ("rotate", "x", "--grace", "1 hour")):
        finished = penstock_here("keys", *command)
        assert finished.code == 2
        assert (
            "no key 'x'" in finished.error_line or "is not a valid duration" in finished.error_line
        )


def test_a_hash_for_the_file(folder: Path, penstock_here: Cli) -> None:
    made = json.loads(penstock_here("keys", "hash", "--json").out)
    assert made["hash"] == hash_of(made["key"])
    key, hash_line = penstock_here("keys", "hash").out.splitlines()
    assert hash_line.split() == ["hash", hash_of(key.split()[1])]
    own = "my-own-key-that-nobody-can-guess-123"
    finished = penstock_here("keys", "hash", "--stdin", stdin=f"{own}\n")
    assert finished.out == f"hash  {hash_of(own)}\n"
    for bad in ("short", "with a blank " * 5, "ü" * 40, ""):
        finished = penstock_here("keys", "hash", "--stdin", stdin=f"{bad}\n")
        assert finished.code == 2
        assert "32 or more visible ASCII characters" in finished.error_line
        assert not bad or bad not in finished.err
