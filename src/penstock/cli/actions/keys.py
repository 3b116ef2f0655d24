"""What `penstock keys` does."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import msgspec

from penstock.budget.calendar import PERIODS, Period, at_text
from penstock.budget.ledger import Ledger
from penstock.budget.pricing.amounts import MOST, NANOS, dollars, nanos_of
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.cli.errors import wrong
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import is_absent
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.engine.build.keys import desk_of
from penstock.engine.build.storage import store_guards
from penstock.keys.admin import (
    KeyBudgetInForce,
    KeyChange,
    KeyDesk,
    KeyInfo,
    ListedKey,
    NewKey,
    expiry_problem,
    model_problem,
    tag_problem,
)
from penstock.keys.records import (
    SHORTEST_OWN,
    KeyBudget,
    KeyScope,
    check_name,
    hash_of,
    new_text,
    own_budget,
)
from penstock.providers.registry import callable_names
from penstock.storage.sqlite.guard import StoreGuards

_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_COLUMNS = ("key", "state", "models", "a minute", "budget", "expires", "tags", "from")


class Changed(NamedTuple):
    """The options of `keys set`, as they were typed."""

    models: Sequence[str]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    expires: str | None
    tags: Sequence[str]
    budget: str | None
    period: str | None
    unset: Sequence[str]


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

    async def work() -> ListedKey:
        await desk.add(issued.key)
        return await _known(desk, name)

    _show_once(issued.text, asyncio.run(work()), as_json=as_json)


def change(name: str, wanted: Changed, config_file: str | None, *, as_json: bool) -> None:
    """Change what a key allows, and show it."""
    config = load(config_file)
    desk = _desk(config)
    unset = _unset(wanted)

    async def work() -> ListedKey:
        found = await desk.find(name)
        before = None if found is None else found.key.budget
        await desk.change(name, _change(wanted, unset, before, config))
        return await _known(desk, name)

    listed = asyncio.run(work())
    if as_json:
        terminal.print_json(document(listed))
    else:
        terminal.print_table(_COLUMNS, [_cells(listed)])


_UNSET: Mapping[str, tuple[str, Any]] = {
    "models": ("models", ()),
    "requests-per-minute": ("requests_per_minute", None),
    "tokens-per-minute": ("tokens_per_minute", None),
    "budget": ("budget", None),
    "expires": ("expires", None),
    "tags": ("tags", {}),
}
"""What `--unset` takes, the field of the key, and what that is then."""


def _unset(wanted: Changed) -> list[str]:
    names = [name.strip() for one in wanted.unset for name in one.split(",")]
    given = {
        "models": wanted.models,
        "requests-per-minute": wanted.requests_per_minute,
        "tokens-per-minute": wanted.tokens_per_minute,
        "budget": wanted.budget or wanted.period,
        "expires": wanted.expires,
        "tags": wanted.tags,
    }
    for name in names:
        if name not in _UNSET:
            raise wrong("--unset", f"{name!r} is none; give {', '.join(_UNSET)}")
        if given[name]:
            raise wrong("--unset", f"{name!r} is set by another option too; give one of the two")
    if not names and not any(given.values()):
        raise wrong("NAME", f"give what to change, or --unset with one of {', '.join(_UNSET)}")
    return names


def _change(
    wanted: Changed, unset: Sequence[str], before: KeyBudget | None, config: Config
) -> KeyChange:
    fields: dict[str, Any] = {}
    if wanted.models:
        fields["models"] = _models(wanted.models, config)
    for field in ("requests_per_minute", "tokens_per_minute"):
        if (number := getattr(wanted, field)) is not None:
            fields[field] = number
    if wanted.expires is not None:
        fields["expires"] = _moment("--expires", wanted.expires)
    if wanted.tags:
        fields["tags"] = _tags(wanted.tags)
    if wanted.budget is not None:
        kept = before or KeyBudget(0)
        budget = _budget(wanted.budget, wanted.period or kept.period)
        fields["budget"] = budget and msgspec.structs.replace(budget, timezone=kept.timezone)
    elif wanted.period is not None:
        if before is None:
            raise wrong("--period", "says when the budget is reset: give --budget as well")
        each = _period(wanted.period)
        fields["budget"] = KeyBudget(before.limit_nanos, each, before.timezone)
    fields |= dict(_UNSET[name] for name in unset)
    return KeyChange(**fields)


def rotate(name: str, grace: str, config_file: str | None, *, as_json: bool) -> None:
    """Replace a key's text, and show the new one."""
    config = load(config_file)
    seconds = seconds_of("--grace", grace)
    desk = _desk(config)

    async def work() -> tuple[str, ListedKey]:
        issued = await desk.rotate(name, seconds)
        return issued.text, await _known(desk, name)

    _show_once(*asyncio.run(work()), as_json=as_json)
    if seconds and not as_json:
        terminal.note(f"The old one works until {at_text(time.time() + seconds)}.")


def revoke(name: str, config_file: str | None, *, as_json: bool) -> None:
    """Refuse it from now on."""
    desk = _desk(load(config_file))

    async def work() -> ListedKey:
        await desk.revoke(name)
        return await _known(desk, name)

    listed = asyncio.run(work())
    if as_json:
        terminal.print_json(document(listed))
    else:
        print(f"revoked {name}")


def show(config_file: str | None, *, as_json: bool) -> None:
    """All keys, those of the file first."""
    keys = asyncio.run(_desk(load(config_file)).listed())
    if as_json:
        terminal.print_json({"keys": [document(each) for each in keys]})
    elif keys:
        terminal.print_table(_COLUMNS, [_cells(each) for each in keys])
    else:
        terminal.say("there are no keys: the gateway serves this machine only, and requires no key")


def show_hash(*, from_stdin: bool, as_json: bool) -> None:
    """A hash for penstock.toml: of a new key, or of the one that is given."""
    text = new_text()
    if from_stdin:
        text = sys.stdin.readline().strip()
        if len(text) < SHORTEST_OWN or not (text.isascii() and text.isprintable()) or " " in text:
            raise wrong(
                "--stdin",
                f"give {SHORTEST_OWN} or more visible ASCII characters, no blanks, on one line: a "
                "hash protects only what cannot be guessed",
            )
    if as_json:
        made = {} if from_stdin else {"key": text}
        terminal.print_json({**made, "hash": hash_of(text)})
        return
    if not from_stdin:
        print(f"key   {text}")
    print(f"hash  {hash_of(text)}")
    if not from_stdin:
        terminal.note("Keep the key: it cannot be shown again. The hash goes into [keys.NAME].")


def document(listed: ListedKey) -> dict[str, Any]:
    """A key as JSON, with times for people and without what it does not have."""
    info = KeyInfo.of(listed, time.time())
    found: dict[str, Any] = {
        name: value
        for name, value in msgspec.to_builtins(info).items()
        if value is not None and value not in ([], {})
    }
    for name in ("created", "expires", "revoked", "old_key_until"):
        if name in found:
            found[name] = _iso(found[name])
    return found


def _show_once(text: str, listed: ListedKey, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"key": text, **document(listed)})
        return
    print(text)
    terminal.note(f"This is the key {listed.key.name!r}. Keep it now: it cannot be shown again.")


async def key_info(config: Config, name: str) -> KeyInfo | None:
    """The key of this name; None when there is none."""
    found = await _desk(config).find(name)
    return None if found is None else KeyInfo.of(found, time.time())


async def _known(desk: KeyDesk, name: str) -> ListedKey:
    found = await desk.find(name)
    if found is None:
        raise ConfigurationError(f"there is no key {name!r}")
    return found


def _cells(listed: ListedKey) -> list[Cell]:
    key = listed.key
    info = KeyInfo.of(listed, time.time())
    limits = [
        f"{number} {what}"
        for number, what in (
            (key.requests_per_minute, "requests"),
            (key.tokens_per_minute, "tokens"),
        )
        if number is not None
    ]
    return [
        (info.id, "bold"),
        (info.state, "green" if info.state == "active" else "red"),
        "/metrics only" if key.scope == "metrics" else ", ".join(key.models) or "all",
        ", ".join(limits),
        ", ".join(_in_words(each, info) for each in info.budgets),
        "" if key.expires is None else at_text(key.expires),
        ", ".join(f"{name}={value}" for name, value in key.tags.items()),
        info.source,
    ]


def _in_words(budget: KeyBudgetInForce, info: KeyInfo) -> str:
    """A budget of a key, and where it is from unless that is where the key is from."""
    said = f"{dollars(round(budget.limit_usd * NANOS))} a {budget.period}"
    notes = [f"budget {budget.name}"] if budget.name != own_budget(info.name) else []
    notes += [] if budget.hard else ["soft"]
    notes += [each for each in (budget.provider, budget.model) if each]
    notes += [f"{name}={value}" for name, value in budget.tags.items()]
    notes += [Path(budget.source).name] if budget.source != info.source else []
    return f"{said} ({', '.join(notes)})" if notes else said


class _Budgets:
    """The ledger, opened for each call; one that is not there yet is not made to be read."""

    def __init__(self, config: Config, stores: StoreGuards) -> None:
        self._storage = config.storage
        self._stores = stores

    async def set_budget(self, budget: Budget) -> None:
        async with await self._open() as ledger:
            await ledger.set_budget(budget)

    async def remove_budget(self, name: str) -> bool:
        async with await self._open() as ledger:
            return await ledger.remove_budget(name)

    async def balances(self) -> Sequence[Balance]:
        if is_absent(self._storage.path):
            return ()
        async with await self._open() as ledger:
            return await ledger.balances()

    async def _open(self) -> Ledger:
        path = self._storage.path
        path.parent.mkdir(parents=True, exist_ok=True)
        return await Ledger.open(
            path, synchronous=self._storage.synchronous, guard=self._stores.of(path)
        )


def _desk(config: Config) -> KeyDesk:
    stores = store_guards(durable=True)
    return desk_of(config, _Budgets(config, stores), stores)


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
            raise wrong("--tag", f"{one!r} is not a valid tag; write name=value")
        if said := tag_problem(name, value):
            raise wrong("--tag", said)
        tags[name] = value
    return tags


def _budget(limit: str | None, period: str) -> KeyBudget | None:
    each = _period(period)
    if limit is None:
        if each != "month":
            raise wrong("--period", "says when the budget is reset: give --budget as well")
        return None
    try:
        nanos = nanos_of(Decimal(limit))
        if not 0 <= nanos <= MOST:
            raise ValueError(limit)
    except (ValueError, ArithmeticError, InvalidOperation):
        raise wrong(
            "--budget", f"{limit!r} is not a valid amount; give US dollars, such as 5 or 0.50"
        ) from None
    return KeyBudget(nanos, each)


def _period(period: str) -> Period:
    if period not in PERIODS:
        raise wrong("--period", f"{period!r} is not a period; give {', '.join(PERIODS)}")
    return period


def seconds_of(option: str, text: str) -> float:
    """What `30s`, `10m`, `1h`, `7d` or `2w` means; raises InvalidRequest."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise wrong(option, f"{text!r} is not a valid duration; write 30s, 10m, 1h, 7d or 2w")
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
