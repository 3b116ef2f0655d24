"""The part of the admin API that is about money: usage, the ledger's lines, budgets."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import cast

import msgspec

from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import NOTHING_USED, Balance, HistoryFilter, UsageBy, UsageRow
from penstock.budget.rules import Budget, covered_key
from penstock.contract.checks.spelling import list_known
from penstock.contract.errors import ConfigurationError, InvalidRequest, Problem
from penstock.engine.engine import Engine
from penstock.server.admin.requests import (
    BudgetOrder,
    BudgetPath,
    LedgerQuery,
    NewBudgetPath,
    UsageQuery,
)
from penstock.server.admin.responses import BudgetInfo, BudgetList, LedgerPage, UsageAnswer
from penstock.server.errors import Failure, HttpProblem
from penstock.server.typed_endpoints import Call, Nothing

_TAG = "tag:"


async def usage(engine: Engine, call: Call[Nothing, UsageQuery, Nothing]) -> UsageAnswer:
    """What was used and what it cost, in all and by provider, model, key or the value of a tag."""
    asked = call.query
    since, until = _or_none(asked.since), _or_none(asked.until)
    ledger = await engine.ledger()
    total = await ledger.usage(since=since, until=until)
    rows: Sequence[UsageRow] = ()
    by = asked.by or None
    if by is not None and by.startswith(_TAG):
        rows = await ledger.usage(since=since, until=until, tag=by.removeprefix(_TAG))
    elif by is not None:
        rows = await ledger.usage(cast(UsageBy, by), since=since, until=until)
    return UsageAnswer(by, since, until, total[0] if total else NOTHING_USED, list(rows))


async def ledger_page(engine: Engine, call: Call[Nothing, LedgerQuery, Nothing]) -> LedgerPage:
    """The lines of the ledger, page by page; with a long past, give `since` as well."""
    asked = call.query
    chosen = HistoryFilter(
        since=_or_none(asked.since),
        until=_or_none(asked.until),
        kind=asked.kind or None,
        request_id=asked.request_id or None,
        key=asked.key or None,
        provider=asked.provider or None,
        model=asked.model or None,
    )
    page = await (await engine.ledger()).history(
        chosen,
        cursor=None if isinstance(asked.cursor, msgspec.UnsetType) else asked.cursor,
        limit=asked.limit,
        oldest_first=asked.oldest_first,
    )
    return LedgerPage(list(page.entries), page.next)


async def budgets(engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> BudgetList:
    """Every budget in its present period: what is used, held and left, and when it resets."""
    return BudgetList([budget_info(each) for each in await engine.budgets()])


async def budget(engine: Engine, call: Call[BudgetPath, Nothing, Nothing]) -> BudgetInfo:
    """One budget."""
    return await _existing(engine, call.path.name)


async def set_budget(engine: Engine, call: Call[NewBudgetPath, Nothing, BudgetOrder]) -> BudgetInfo:
    """Set a budget by hand, also in place of one of that name, whose balance it keeps."""
    name, order = call.path.name, call.body
    try:
        key = covered_key(name, order.key or None)
    except ConfigurationError as error:
        failure = Failure(409, error.message, code="budget_of_a_key", param="key")
        raise HttpProblem(failure) from error
    try:
        wanted = Budget(
            name=name,
            limit_nanos=nanos(order.limit_usd),
            period=order.period,
            timezone=order.timezone,
            provider=order.provider or None,
            model=order.model or None,
            key=key,
            tags=order.tags,
            hard=order.hard,
            warn_at=order.warn_at,
        )
    except ConfigurationError as error:
        raise InvalidRequest.of([Problem("body", error.message)]) from error
    await (await engine.ledger()).set_budget(wanted)
    return await _existing(engine, name)


async def reset_budget(engine: Engine, call: Call[BudgetPath, Nothing, Nothing]) -> BudgetInfo:
    """Reset the present period; reservations of running requests stay."""
    name = call.path.name
    await _existing(engine, name)
    await (await engine.ledger()).reset(name)
    return await _existing(engine, name)


async def remove_budget(engine: Engine, call: Call[BudgetPath, Nothing, Nothing]) -> None:
    """Forget a budget that was set by hand; a declared one that it hid holds again at once."""
    name = call.path.name
    if (await _existing(engine, name)).declared:
        raise HttpProblem(
            Failure(
                409,
                f"the budget {name!r} is in the configuration: take it out of penstock.toml, or "
                f"set another limit with PUT",
                code="budget_declared",
            )
        )
    await (await engine.ledger()).remove_budget(name)


def nanos(usd: float) -> int:
    """Dollars as they were written, rounded to nano-dollars."""
    return int((Decimal(repr(usd)) * NANOS).to_integral_value())


async def find_budget(engine: Engine, name: str) -> BudgetInfo | None:
    """The budget of this name; None when there is none."""
    for each in await engine.budgets():
        if each.budget.name == name:
            return budget_info(each)
    return None


async def _existing(engine: Engine, name: str) -> BudgetInfo:
    balances = await engine.budgets()
    found = next((each for each in balances if each.budget.name == name), None)
    if found is None:
        known = list_known((each.budget.name for each in balances[:20]), "budgets")
        raise HttpProblem(Failure(404, f"there is no budget {name!r}; {known}", code="not_found"))
    return budget_info(found)


def budget_info(balance: Balance) -> BudgetInfo:
    """A budget as the admin API shows it."""
    budget = balance.budget
    return BudgetInfo(
        name=budget.name,
        limit_nanos=budget.limit_nanos,
        limit_usd=budget.limit_nanos / NANOS,
        period=budget.period,
        timezone=budget.timezone,
        provider=budget.provider,
        model=budget.model,
        key=budget.key,
        tags=budget.tags,
        hard=budget.hard,
        warn_at=list(budget.warn_at),
        declared=bool(balance.declared_by),
        declared_by=list(balance.declared_by),
        overrides=[each.source for each in balance.overrides],
        used_nanos=balance.used_nanos,
        held_nanos=balance.held_nanos,
        remaining_nanos=balance.remaining_nanos,
        overdrawn=balance.overdrawn,
        period_start=balance.period_start,
        resets_at=balance.resets_at,
    )


def _or_none(moment: float | msgspec.UnsetType) -> float | None:
    return None if isinstance(moment, msgspec.UnsetType) else moment
