"""What `penstock keys` does."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, cast, get_args

import msgspec

from penstock.budget.amounts import MOST, dollars, nanos_of
from penstock.budget.ledger import Ledger
from penstock.budget.periods import PERIODS, at_text
from penstock.budget.rules import Budget
from penstock.cli import terminal
from penstock.cli.config_file import load
from penstock.cli.errors import wrong
from penstock.cli.terminal import Cell
from penstock.config.settings import Config
from penstock.keys.desk import (
    Issued,
    KeyDesk,
    KeyInfo,
    KeySource,
    NewKey,
    expiry_problem,
    model_problem,
    tag_problem,
)
from penstock.keys.records import (
    SHORTEST_OWN,
    Key,
    KeyBudget,
    KeyScope,
    check_name,
    hash_of,
    new_text,
)
from penstock.providers.registry import callable_names
from penstock.wiring import desk_of, store_guards

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
    scope: str = "calls"


def create(name: str, wanted: Wanted, config_file: str | None, *, as_json: bool) -> None:
    """Make a key, keep its hash, and show it."""
    config = load(config_file)
    check_name(name)
    desk = _desk(config)
    issued = desk.draft(
        NewKey(
            name=name,
            scope=_scope(wanted.scope),
            models=_models(wanted.models, config),
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            expires=None if wanted.expires is None else _moment("--expires", wanted.expires),
            tags=_tags(wanted.tags),
            budget=_budget(wanted.budget, wanted.period),
        )
    )
    asyncio.run(desk.add(issued.key))
    _show_once(issued, as_json=as_json)


def rotate(name: str, grace: str, config_file: str | None, *, as_json: bool) -> None:
    """Replace a key's text, and show the new one."""
    config = load(config_file)
    seconds = seconds_of("--grace", grace)
    issued = asyncio.run(_desk(config).rotate(name, seconds))
    _show_once(issued, as_json=as_json)
    if seconds and not as_json:
        terminal.note(f"The old one works until {at_text(time.time() + seconds)}.")


def revoke(name: str, config_file: str | None, *, as_json: bool) -> None:
    """Let nobody in with it any more."""
    key = asyncio.run(_desk(load(config_file)).revoke(name))
    if as_json:
        terminal.print_json(document(key, "created"))
    else:
        print(f"revoked {name}")


def show(config_file: str | None, *, as_json: bool) -> None:
    """All keys, those of the file first."""
    keys = asyncio.run(_desk(load(config_file)).listed())
    if as_json:
        terminal.print_json({"keys": [document(*each) for each in keys]})
    elif keys:
        terminal.print_table(_COLUMNS, [_cells(*each) for each in keys])
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


def document(key: Key, source: KeySource) -> dict[str, Any]:
    """A key as JSON, with times for people and without what it does not have."""
    info = KeyInfo.of(key, source, time.time())
    found: dict[str, Any] = {
        name: value
        for name, value in msgspec.to_builtins(info).items()
        if value is not None and value not in ([], {})
    }
    for name in ("created", "expires", "revoked", "old_key_until"):
        if name in found:
            found[name] = _iso(found[name])
    return found


def _show_once(issued: Issued, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"key": issued.text, **document(issued.key, "created")})
        return
    print(issued.text)
    terminal.note(f"This is the key {issued.key.name!r}. Keep it now: nobody can show it again.")


def _cells(key: Key, source: KeySource) -> list[Cell]:
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
        "/metrics only" if key.scope == "metrics" else ", ".join(key.models) or "all",
        ", ".join(limits),
        "" if budget is None else f"{dollars(budget.limit_nanos)} a {budget.period}",
        "" if key.expires is None else at_text(key.expires),
        ", ".join(f"{name}={value}" for name, value in key.tags.items()),
        source,
    ]


def _desk(config: Config) -> KeyDesk:
    storage, stores = config.storage, store_guards(durable=True)

    async def set_budget(budget: Budget) -> None:
        storage.path.parent.mkdir(parents=True, exist_ok=True)
        async with await Ledger.open(
            storage.path, synchronous=storage.synchronous, guard=stores.of(storage.path)
        ) as ledger:
            await ledger.set_budget(budget)

    return desk_of(config, set_budget, stores)


def _models(given: Sequence[str], config: Config) -> tuple[str, ...]:
    names = [name.strip() for one in given for name in one.split(",") if name.strip()]
    providers = callable_names(config.providers)
    for name in names:
        if said := model_problem(name, config.models, providers):
            raise wrong("--models", said)
    return tuple(dict.fromkeys(names))


def _scope(given: str) -> KeyScope:
    if given not in get_args(KeyScope):
        raise wrong("--scope", f"{given!r} is none; give {' or '.join(get_args(KeyScope))}")
    return cast(KeyScope, given)


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not (name and separator and value):
            raise wrong("--tag", f"{one!r} is no tag; write name=value")
        if said := tag_problem(name, value):
            raise wrong("--tag", said)
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


def seconds_of(option: str, text: str) -> float:
    """What `30s`, `10m`, `1h`, `7d` or `2w` means; raises InvalidRequest."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise wrong(option, f"{text!r} is no time; write 30s, 10m, 1h, 7d or 2w")
    return float(int(match[1]) * _UNITS[match[2]])


def _moment(option: str, text: str) -> float:
    now = time.time()
    if _SPAN.fullmatch(text):
        moment = now + seconds_of(option, text)
    else:
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            raise wrong(
                option, f"{text!r} is neither a time such as 30d nor a date such as 2027-01-31"
            ) from None
        moment = (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    if said := expiry_problem(moment, now):
        raise wrong(option, f"{text!r} {said}")
    return moment


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
