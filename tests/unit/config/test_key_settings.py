"""`[keys.NAME]` and `[server] admin_key`: what they mean, and what is refused with its line."""

from datetime import UTC, datetime

import pytest

from penstock.config.load import parse
from penstock.contract.errors import ConfigurationError
from penstock.engine.build.budget import books_of
from penstock.engine.build.keys import keys_of
from penstock.keys.records import KeyBudget, hash_of

HASH = hash_of("one")
BASE = '[providers.fake]\n[models.assistant]\ntargets = ["fake/echo"]\n'


def test_everything_that_a_key_may_say() -> None:
    config = parse(
        f"""{BASE}
[keys.ci]
hash = "{HASH}"
models = ["assistant", "fake/other", "fake/*"]
requests_per_minute = 600
tokens_per_minute = 1_000_000
expires = 2027-01-31
tags = {{ team = "search" }}
budget = {{ limit_usd = 5.0, period = "day" }}
"""
    )
    (key,) = keys_of(config)
    assert (key.name, key.hashes[0].hash) == ("ci", HASH)
    assert key.expires == datetime(2027, 1, 31, tzinfo=UTC).timestamp()
    assert key.budget == KeyBudget(5_000_000_000, "day")
    assert (key.requests_per_minute, key.tokens_per_minute) == (600, 1_000_000)
    assert key.tags == {"team": "search"}


def test_a_moment_of_another_zone() -> None:
    config = parse(f'{BASE}[keys.ci]\nhash = "{HASH}"\nexpires = 2027-01-31T12:00:00+02:00\n')
    (key,) = keys_of(config)
    assert key.expires == datetime(2027, 1, 31, 10, tzinfo=UTC).timestamp()


async def test_a_budget_that_leaves_the_file_leaves_the_ledger() -> None:
    storage = '[storage]\nurl = "sqlite:///x.db"\n[budgets.total]\nlimit_usd = 9.0\n'
    key = f'[keys.ci]\nhash = "{HASH}"\n'
    names: list[list[str]] = []
    for text in (f"{key}budget = {{ limit_usd = 1.0 }}\n", key):
        books = books_of(parse(BASE + storage + text), lambda target: None, keep=True)  # pyright: ignore[reportArgumentType]
        ledger = await books.ledger()
        names.append([balance.budget.name for balance in await ledger.balances()])
        await books.aclose()
    assert [sorted(each) for each in names] == [["key:ci", "total"], ["total"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[keys.ci]\nhash = "secret"\n', "line 5, keys.ci.hash: write sha256: and 64"),
        ("[keys.ci]\nmodels = []\n", "line 4, keys.ci.hash: write sha256: and 64"),
        (f'[keys."a b"]\nhash = "{HASH}"\n', "a key's name has up to 64 letters"),
        (f'[keys.ci]\nhash = "{HASH}"\nmodels = ["asistant"]\n', "did you mean 'assistant'?"),
        (f'[keys.ci]\nhash = "{HASH}"\nmodels = ["nobody/x"]\n', "there is no model 'nobody/x'"),
        (f'[keys.a]\nhash = "{HASH}"\n[keys.b]\nhash = "{HASH}"\n', "it is also that of keys.a"),
        (f'[keys.ci]\nhash = "{HASH}"\nrequests_per_minute = 0\n', "line 6, keys.ci.requests_per"),
        (f'[keys.ci]\nhash = "{HASH}"\nexpires = "soon"\n', "line 6, keys.ci.expires"),
        (
            f'[keys.ci]\nhash = "{HASH}"\nbudget = {{}}\n',
            "keys.ci.budget.limit_usd: is missing",
        ),
        (
            f'[keys.ci]\nhash = "{HASH}"\nbudget = {{ limit_usd = 1, timezone = "X" }}\n',
            "'X' is not a time zone",
        ),
        ('[budgets."key:ci"]\nlimit_usd = 1\n', "are for the keys' own budgets"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(BASE + text)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
