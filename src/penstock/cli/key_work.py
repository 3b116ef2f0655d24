"""What `penstock keys` does."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from penstock.budget.amounts import MOST, dollars, nanos_of
from penstock.budget.ledger import Ledger
from penstock.budget.periods import PERIODS, at_text
from penstock.budget.rules import Budget
from penstock.cli import terminal
from penstock.cli.errors import wrong
from penstock.cli.terminal import Cell
from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.keys.records import (
    SHORTEST_OWN,
    Key,
    KeyBudget,
    KeyHash,
    budget_of,
    check_name,
    hash_of,
    new_text,
)
from penstock.keys.store import KeyStore
from penstock.providers.registry import callable_names
from penstock.wiring import keys_of

_LONGEST_TAG = 128
_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_COLUMNS = ("key", "state", "models", "a minute", "budget", "expires", "tags", "from")


class Wanted(NamedTuple):
    """The options of `keys create`, as they were typed."""

    models: Sequence[str]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    expires: str | None
    tags: Sequence[str]
    budget: str | None
    period: str


def create(name: str, wanted: Wanted, config_file: str | None, *, as_json: bool) -> None:
    """Make a key, keep its hash, and show it."""
    config = load(config_file)
    check_name(name)
    if name in config.keys:
        raise ConfigurationError(f"penstock.toml has a key {name!r}: take another name")
    text, now = new_text(), time.time()
    key = Key(
        name=name,
        hashes=(KeyHash(hash_of(text)),),
        models=_models(wanted.models, config),
        requests_per_minute=wanted.requests_per_minute,
        tokens_per_minute=wanted.tokens_per_minute,
        expires=None if wanted.expires is None else _moment("--expires", wanted.expires, now),
        tags=_tags(wanted.tags),
        budget=_budget(wanted.budget, wanted.period),
        created=now,
    )
    # The budget first: a key without it would spend as it likes.
    if (budget := budget_of(key)) is not None:
        _check_free(name, config)
        asyncio.run(_set_budget(budget, config))
    _store(config).add(key)
    _show_once(text, key, as_json=as_json)


def rotate(name: str, grace: str, config_file: str | None, *, as_json: bool) -> None:
    """Replace a key's text, and show the new one."""
    config = load(config_file)
    seconds = _seconds("--grace", grace)
    _check_not_in_file(name, config, "make another with `penstock keys hash` and replace its hash")
    text = new_text()
    key = _store(config).rotate(name, hash_of(text), seconds)
    _show_once(text, key, as_json=as_json)
    if seconds and not as_json:
        terminal.note(f"The old one works until {at_text(time.time() + seconds)}.")


def revoke(name: str, config_file: str | None, *, as_json: bool) -> None:
    """Let nobody in with it any more."""
    config = load(config_file)
    _check_not_in_file(name, config, "take its table out of the file and start the gateway anew")
    key = _store(config).revoke(name)
    if as_json:
        terminal.print_json(document(key, "created"))
    else:
        print(f"revoked {name}")


def show(config_file: str | None, *, as_json: bool) -> None:
    """All keys, those of the file first."""
    config = load(config_file)
    declared = [(key, "penstock.toml") for key in keys_of(config)]
    stored = [(key, "created") for key in _store(config).keys()[1] if key.name not in config.keys]
    if as_json:
        terminal.print_json({"keys": [document(*each) for each in (*declared, *stored)]})
    elif declared or stored:
        terminal.print_table(_COLUMNS, [_cells(*each) for each in (*declared, *stored)])
    else:
        terminal.say("there are no keys: the gateway serves this machine only, and asks nobody")


def show_hash(*, from_stdin: bool, as_json: bool) -> None:
    """A hash for penstock.toml: of a new key, or of the one that is given."""
    text = new_text()
    if from_stdin:
        text = sys.stdin.readline().strip()
        if len(text) < SHORTEST_OWN or not (text.isascii() and text.isprintable()) or " " in text:
            raise wrong(
                "--stdin",
                f"give {SHORTEST_OWN} or more visible ASCII characters, no blanks, on one line: a "
                "hash hides only what nobody can guess",
            )
    if as_json:
        made = {} if from_stdin else {"key": text}
        terminal.print_json({**made, "hash": hash_of(text)})
        return
    if not from_stdin:
        print(f"key   {text}")
    print(f"hash  {hash_of(text)}")
    if not from_stdin:
        terminal.note("Keep the key: nobody can show it again. The hash belongs into [keys.NAME].")


def document(key: Key, source: str) -> dict[str, Any]:
    """A key as JSON; neither its text nor its hash."""
    budget = key.budget
    found = {
        "name": key.name,
        "state": key.state(time.time()),
        "source": source,
        "models": list(key.models) or None,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
        "budget": budget and {"limit_usd": budget.limit_nanos / 1e9, "period": budget.period},
        "tags": dict(key.tags) or None,
        **{
            name: None if moment is None else _iso(moment)
            for name, moment in (
                ("created", key.created),
                ("expires", key.expires),
                ("revoked", key.revoked),
                ("old_key_until", max((each.until or 0 for each in key.hashes), default=0) or None),
            )
        },
    }
    return {name: value for name, value in found.items() if value is not None}


def _show_once(text: str, key: Key, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"key": text, **document(key, "created")})
        return
    print(text)
    terminal.note(f"This is the key {key.name!r}. Keep it now: nobody can show it again.")


def _cells(key: Key, source: str) -> list[Cell]:
    state = key.state(time.time())
    limits = [
        f"{number} {what}"
        for number, what in (
            (key.requests_per_minute, "requests"),
            (key.tokens_per_minute, "tokens"),
        )
        if number is not None
    ]
    budget = key.budget
    return [
        (key.name, "bold"),
        (state, "green" if state == "active" else "red"),
        ", ".join(key.models) or "all",
        ", ".join(limits),
        "" if budget is None else f"{dollars(budget.limit_nanos)} a {budget.period}",
        "" if key.expires is None else at_text(key.expires),
        ", ".join(f"{name}={value}" for name, value in key.tags.items()),
        source,
    ]


def _store(config: Config) -> KeyStore:
    return KeyStore(config.storage.path)


def _check_free(name: str, config: Config) -> None:
    if any(key.name == name for key in _store(config).keys()[1]):
        raise ConfigurationError(f"there is, or was, a key {name!r}: take another name")


def _check_not_in_file(name: str, config: Config, remedy: str) -> None:
    if name in config.keys:
        raise ConfigurationError(f"the key {name!r} stands in penstock.toml: {remedy}")


async def _set_budget(budget: Budget, config: Config) -> None:
    storage = config.storage
    storage.path.parent.mkdir(parents=True, exist_ok=True)
    async with await Ledger.open(storage.path, synchronous=storage.synchronous) as ledger:
        await ledger.set_budget(budget)


def _models(given: Sequence[str], config: Config) -> tuple[str, ...]:
    names = [name.strip() for one in given for name in one.split(",") if name.strip()]
    providers = callable_names(config.providers)
    for name in names:
        provider, separator, _ = name.partition("/")
        if name not in config.models and not (separator and provider in providers):
            known = ", ".join(config.models) or "none"
            raise wrong(
                "--models",
                f"there is no model {name!r}; there are: {known}; or write provider/model or "
                "provider/*",
            )
    return tuple(dict.fromkeys(names))


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not (name and separator and value):
            raise wrong("--tag", f"{one!r} is no tag; write name=value")
        if len(name) > _LONGEST_TAG or len(value) > _LONGEST_TAG:
            raise wrong("--tag", f"{name[:20]!r}: names and values have {_LONGEST_TAG} characters")
        tags[name] = value
    return tags


def _budget(limit: str | None, period: str) -> KeyBudget | None:
    if period not in PERIODS:
        raise wrong("--period", f"{period!r} is none; give {', '.join(PERIODS)}")
    if limit is None:
        if period != "month":
            raise wrong("--period", "says when the budget begins anew: give --budget as well")
        return None
    try:
        nanos = nanos_of(Decimal(limit))
        if not 0 <= nanos <= MOST:
            raise ValueError(limit)
    except (ValueError, ArithmeticError, InvalidOperation):
        raise wrong(
            "--budget", f"{limit!r} is no amount; give US dollars, such as 5 or 0.50"
        ) from None
    return KeyBudget(nanos, period)


def _seconds(option: str, text: str) -> float:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise wrong(option, f"{text!r} is no time; write 30s, 10m, 1h, 7d or 2w")
    return float(int(match[1]) * _UNITS[match[2]])


def _moment(option: str, text: str, now: float) -> float:
    if _SPAN.fullmatch(text):
        moment = now + _seconds(option, text)
    else:
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            raise wrong(
                option, f"{text!r} is neither a time such as 30d nor a date such as 2027-01-31"
            ) from None
        moment = (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    if moment <= now:
        raise wrong(option, f"{text!r} is over already; give a moment to come")
    if moment > datetime(9999, 1, 1, tzinfo=UTC).timestamp():
        raise wrong(option, f"{text!r} is too far away; leave it out for a key that never expires")
    return moment


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
