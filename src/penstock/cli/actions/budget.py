"""What the commands of `penstock budget` do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

from penstock.budget.calendar import Period
from penstock.budget.ledger import Ledger
from penstock.budget.overrides import limit_text, remarks
from penstock.budget.pricing.amounts import MOST, NANOS, dollars
from penstock.budget.queries import CODE
from penstock.budget.reports import Balance, Declaration, Difference
from penstock.budget.rules import Budget
from penstock.cli.errors import wrong
from penstock.cli.setup.config_file import load
from penstock.cli.setup.engines import engine_of, opened_engine, opened_ledger
from penstock.cli.ui import terminal
from penstock.cli.ui.money import in_zone
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.contract.checks.spelling import list_known
from penstock.contract.errors import ConfigurationError
from penstock.engine.build.budget import declared_budgets
from penstock.engine.engine import Engine
from penstock.providers.registry import KINDS, unknown_kind

_COLUMNS = ("budget", "covers", "from", "period", "limit", "used", "held", "left", "resets at")


def show(config_file: str | None, *, as_json: bool) -> None:
    """Every budget, by name."""
    config = load(config_file)
    balances = asyncio.run(_balances(config))
    if as_json:
        terminal.print_json({"budgets": [_document(each) for each in balances]})
        return
    if balances:
        terminal.print_table(_COLUMNS, map(_cells, balances))
    else:
        terminal.say("there are no budgets; try: penstock budget set total 100")
    for note in remarks(balances, declared_budgets(config), config.source or CODE):
        terminal.say(f"note: {note}")


def set_budget(
    config_file: str | None,
    name: str,
    limit: str,
    *,
    as_json: bool,
    period: str,
    timezone: str,
    provider: str | None,
    model: str | None,
    key: str | None,
    tags: Sequence[str],
    hard: bool,
    warn_at: Sequence[float] | None,
) -> None:
    """Set one by hand, and show it."""
    if name.startswith("-"):
        raise wrong(
            "NAME", f"{name!r} is neither an option of this command nor a valid name of a budget"
        )
    usd, named, config = _usd(limit), _tags(tags), load(config_file)

    async def work() -> Balance:
        engine = engine_of(config)
        try:
            await engine.set_budget(
                usd,
                name=name,
                # The budget itself says which there are.
                period=cast(Period, period),
                timezone=timezone,
                provider=provider,
                model=model,
                key=key,
                tags=named,
                hard=hard,
                warn_at=(0.8,) if warn_at is None else warn_at,
            )
            return await _existing(engine, name)
        finally:
            await engine.aclose()

    balance = asyncio.run(work())
    _tell(balance, as_json=as_json)
    known = {*KINDS, *config.providers}
    if provider is not None and provider not in known:
        terminal.say(
            f"note: no provider of this name in the configuration: {unknown_kind(provider, known)}"
        )
    for one in _overridden(balance, config):
        terminal.say(
            f"note: it overrides [budgets.{name}] of {one.source}"
            f"{'' if one.budget is None else f' ({limit_text(one.budget)})'} until: "
            f"penstock budget remove {name}"
        )


def _overridden(balance: Balance, config: Config) -> Sequence[Declaration]:
    """What a budget that was set by hand overrides, also where it was never declared yet."""
    found, name = list(balance.overrides), balance.budget.name
    source = config.source or CODE
    if source not in [each.source for each in found]:
        own = [each for each in declared_budgets(config) if each.name == name]
        found += [Declaration(source, each) for each in own]
    return found


def reset(config_file: str | None, name: str, *, as_json: bool) -> None:
    """Set what the present period has used to zero."""

    async def work() -> Balance:
        async with opened_engine(load(config_file)) as engine:
            if not (await _existing(engine, name)).in_force:
                raise ConfigurationError(
                    f"budget {name!r} is in the configuration and not in force yet: serve, ask, "
                    "chat and embed declare it"
                )
            await (await engine.ledger()).reset(name)
            return await _existing(engine, name)

    _tell(asyncio.run(work()), as_json=as_json)


def remove(config_file: str | None, name: str, *, as_json: bool) -> None:
    """Forget one that was set by hand; a declared one that it overrode is in force again."""
    config = load(config_file)

    async def work() -> tuple[Balance, Balance | None]:
        async with opened_engine(config) as engine:
            found = await _existing(engine, name)
            if config.source in found.declared_by or not found.in_force:
                raise ConfigurationError(
                    f"budget {name!r} is in the configuration: take [budgets.{name}] out of it, or "
                    f"set another limit: penstock budget set {name} USD"
                )
            await (await engine.ledger()).remove_budget(name)
            left = [each for each in await engine.budgets() if each.budget.name == name]
            return found, left[0] if left else None

    found, left = asyncio.run(work())
    if as_json:
        terminal.print_json({"removed": name, "declared": left is not None})
    elif left is None:
        print(f"removed {name}")
    else:
        sources = ", ".join(left.declared_by) or config.source
        print(
            f"removed {name}; [budgets.{name}] of {sources} holds again: {limit_text(left.budget)}"
        )
    if found.declared_by:
        terminal.say(f"note: it comes back when {', '.join(found.declared_by)} is read again")


def verify(config_file: str | None, *, as_json: bool) -> bool:
    """Add everything up, and say what differs; whether nothing does."""

    async def work() -> tuple[int, Sequence[Difference]]:
        async with opened_ledger(load(config_file)) as ledger:
            number = await newest(ledger)
            with terminal.waiting(f"adding up {number:,} entries"):
                return number, await ledger.verify()

    number, differences = asyncio.run(work())
    if as_json:
        terminal.print_json({"ok": not differences, "entries": number, "differences": differences})
    elif differences:
        rows = [(each.subject, each.recorded, each.computed) for each in differences]
        terminal.print_table(("what", "recorded", "from the entries"), rows)
        terminal.say(
            f"\n{terminal.count(len(differences), 'difference')}: keep a copy of the file, and "
            "restore a backup or tell us"
        )
    else:
        print(f"{number:,} entries: everything adds up")
    return not differences


async def newest(ledger: Ledger) -> int:
    """The number of the newest entry, which is how many there are."""
    page = await ledger.history(limit=1)
    return page.entries[0].id if page.entries else 0


async def _balances(config: Config) -> Sequence[Balance]:
    async with opened_engine(config) as engine:
        return await engine.budgets()


async def _existing(engine: Engine, name: str) -> Balance:
    balances = {each.budget.name: each for each in await engine.budgets()}
    if name not in balances:
        raise ConfigurationError(f"there is no budget {name!r}; {list_known(balances, 'budgets')}")
    return balances[name]


def _usd(text: str) -> Decimal:
    try:
        usd = Decimal(text.removeprefix("$").replace("_", ""))
        if usd.is_nan() or 0 <= usd <= MOST // NANOS:
            return usd
    except InvalidOperation:
        raise wrong(
            "USD", f"{text!r} is not a number: give US dollars such as 100 or 0.50"
        ) from None
    raise wrong(
        "USD",
        f"{text} is not a valid limit: give US dollars from 0 to {MOST // NANOS:,}; 0 refuses "
        "every call that costs anything",
    )


def _tags(pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise wrong("--tag", f"{pair!r}: give NAME=VALUE, such as team=blue")
        found[name] = value
    return found


def _tell(balance: Balance, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(_document(balance))
        return
    budget = balance.budget
    each = "for ever" if budget.period == "forever" else f"a {budget.period}"
    kind = "" if budget.hard else ", soft"
    covered = _covers(budget) or "everything"
    print(
        f"{budget.name}: {dollars(budget.limit_nanos)} {each} for {covered}{kind}; "
        f"{dollars(balance.used_nanos)} used, {dollars(balance.remaining_nanos)} left"
    )


def _document(balance: Balance) -> dict[str, Any]:
    budget = balance.budget
    return {
        # All of it, also what has its default.
        **{name: getattr(budget, name) for name in Budget.__struct_fields__},
        "limit_usd": budget.limit_nanos / NANOS,
        "used_nanos": balance.used_nanos,
        "held_nanos": balance.held_nanos,
        "remaining_nanos": balance.remaining_nanos,
        "overdrawn": balance.overdrawn,
        "period_start": balance.period_start,
        "resets_at": balance.resets_at,
        "declared_by": balance.declared_by,
        "overrides": [
            {
                "source": each.source,
                "limit_usd": None if each.budget is None else each.budget.limit_nanos / NANOS,
            }
            for each in balance.overrides
        ],
        "in_force": balance.in_force,
    }


def _cells(balance: Balance) -> list[Cell]:
    budget = balance.budget
    left = dollars(balance.remaining_nanos)
    warned = any(balance.used_nanos >= mark for mark in budget.thresholds)
    style = "bold red" if balance.remaining_nanos <= 0 else "yellow" if warned else "green"
    resets = balance.resets_at
    return [
        (budget.name, "bold"),
        _covers(budget) or "all",
        _origin(balance),
        budget.period + ("" if budget.hard else ", soft"),
        dollars(budget.limit_nanos),
        dollars(balance.used_nanos),
        dollars(balance.held_nanos),
        (left, style),
        "never" if resets is None else in_zone(resets, budget.timezone),
    ]


def _origin(balance: Balance) -> str:
    if not balance.in_force:
        return "not declared yet"
    return ", ".join(Path(source).name for source in balance.declared_by) or "by hand"


def _covers(budget: Budget) -> str:
    named = [
        f"{field} {value}"
        for field in ("provider", "model", "key")
        if (value := getattr(budget, field))
    ]
    named += [f"{name}={value}" for name, value in budget.tags.items()]
    return ", ".join(named)
