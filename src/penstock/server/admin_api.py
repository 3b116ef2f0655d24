"""What those who run a gateway may look at and change, under `/admin/v1`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec

from penstock.budget.periods import Period
from penstock.budget.reports import Balance, UsageBy
from penstock.contract.errors import InvalidRequest, Problem
from penstock.gateway import Engine
from penstock.server.asgi import Route, Routes
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Exchange
from penstock.telemetry.recent import RecentRequests
from penstock.telemetry.records import Outcome

BASE = "/admin/v1"
_MOST_LISTED = 1000
S = TypeVar("S", bound=msgspec.Struct)


class UsageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`GET /admin/v1/usage`: times are Unix seconds."""

    by: UsageBy | None = None
    since: float | None = None
    until: float | None = None


class RequestsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`GET /admin/v1/requests`."""

    outcome: Outcome | None = None
    limit: int = 100


class ProvidersQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`GET /admin/v1/providers`; `check` asks each of them now."""

    check: bool = False


class TargetOrder(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /admin/v1/targets/down` and `/up`."""

    target: str
    reason: str = "by an administrator"


class BudgetOrder(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /admin/v1/budgets/{name}`."""

    limit_usd: float
    period: Period = "month"
    timezone: str = "UTC"
    provider: str | None = None
    model: str | None = None
    key: str | None = None
    tags: dict[str, str] = {}
    hard: bool = True
    warn_at: tuple[float, ...] = (0.8,)


async def usage(engine: Engine, exchange: Exchange) -> None:
    """What was used and what it cost, from the ledger."""
    asked = _query(exchange, UsageQuery)
    rows = await (await engine.ledger()).usage(asked.by, since=asked.since, until=asked.until)
    await _answer(exchange, {"by": asked.by, "rows": rows})


async def targets(engine: Engine, exchange: Exchange) -> None:
    """Every target that was asked so far: its breaker, its reason, its load."""
    await _answer(exchange, {"targets": engine.target_health(), "background": engine.background()})


async def target_down(engine: Engine, exchange: Exchange) -> None:
    """Leave a target alone until it is marked up."""
    order = await _body(exchange, TargetOrder)
    engine.mark_down(order.target, order.reason)
    await targets(engine, exchange)


async def target_up(engine: Engine, exchange: Exchange) -> None:
    """Ask a target again."""
    engine.mark_up((await _body(exchange, TargetOrder)).target)
    await targets(engine, exchange)


async def providers(engine: Engine, exchange: Exchange) -> None:
    """The configured providers, and whether they answer, if that is asked for."""
    asked = _query(exchange, ProvidersQuery)
    health = {each.provider: each for each in await engine.provider_health()} if asked.check else {}
    listed = [
        {"name": name, "kind": each.kind or name, "url": each.url, "health": health.get(name)}
        for name, each in engine.config.providers.items()
    ]
    await _answer(exchange, {"providers": listed})


async def budgets(engine: Engine, exchange: Exchange) -> None:
    """Every budget in its present period."""
    await _answer(exchange, {"budgets": [_balance(each) for each in await engine.budgets()]})


async def set_budget(engine: Engine, exchange: Exchange) -> None:
    """Set a budget by hand; it goes before one of the configuration."""
    order = await _body(exchange, BudgetOrder)
    await engine.set_budget(name=_name(exchange, "budgets"), **msgspec.structs.asdict(order))
    await budgets(engine, exchange)


async def remove_budget(engine: Engine, exchange: Exchange) -> None:
    """Forget a budget."""
    name = _name(exchange, "budgets")
    if not await (await engine.ledger()).remove_budget(name):
        raise HttpProblem(Failure(404, f"there is no budget {name!r}", code="not_found"))
    await budgets(engine, exchange)


async def reset_budget(engine: Engine, exchange: Exchange) -> None:
    """Let the present period of a budget begin anew."""
    name = (await _body(exchange, _Named)).name
    await (await engine.ledger()).reset(name)
    await budgets(engine, exchange)


async def config(engine: Engine, exchange: Exchange) -> None:
    """The configuration that is in force, without its secrets."""
    await exchange.reply(engine.config.model_dump_json(exclude_none=True).encode())


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Requests:
    """`GET /admin/v1/requests` and `GET /admin/v1/requests/{id}`: the last ones, newest first."""

    def __init__(self, recent: RecentRequests) -> None:
        """Of these records."""
        self._recent = recent

    async def list(self, engine: Engine, exchange: Exchange) -> None:
        """The last ones, newest first."""
        asked = _query(exchange, RequestsQuery)
        if not 1 <= asked.limit <= _MOST_LISTED:
            raise _wrong("limit", f"give 1 to {_MOST_LISTED}, not {asked.limit}")
        found = list(islice(self._recent.newest(asked.outcome), asked.limit))
        await _answer(exchange, {"requests": found})

    async def one(self, engine: Engine, exchange: Exchange) -> None:
        """One of them, with its attempts."""
        request_id = _name(exchange, "requests")
        record = self._recent.get(request_id)
        if record is None:
            raise HttpProblem(
                Failure(404, f"no request {request_id!r} among the last ones", code="not_found")
            )
        await _answer(exchange, record)


def routes(recent: RecentRequests) -> Routes:
    """All paths of this page."""
    requests = Requests(recent)
    table: dict[tuple[str, str], Callable[[Engine, Exchange], Awaitable[None]]] = {
        ("GET", "usage"): usage,
        ("GET", "requests"): requests.list,
        ("GET", "requests/*"): requests.one,
        ("GET", "targets"): targets,
        ("POST", "targets/down"): target_down,
        ("POST", "targets/up"): target_up,
        ("GET", "providers"): providers,
        ("GET", "budgets"): budgets,
        ("POST", "budgets/reset"): reset_budget,
        ("PUT", "budgets/*"): set_budget,
        ("DELETE", "budgets/*"): remove_budget,
        ("GET", "config"): config,
    }
    return {(method, f"{BASE}/{path}"): Route(handler) for (method, path), handler in table.items()}


async def _answer(exchange: Exchange, document: object) -> None:
    await exchange.reply(msgspec.json.encode(document))


async def _body(exchange: Exchange, kind: type[S]) -> S:
    try:
        return msgspec.json.decode(await exchange.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong("", str(error)) from None


def _query(exchange: Exchange, kind: type[S]) -> S:
    try:
        return msgspec.convert(exchange.query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong("", str(error)) from None


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])


def _name(exchange: Exchange, below: Literal["budgets", "requests"]) -> str:
    return unquote(exchange.path.removeprefix(f"{BASE}/{below}/"))


def _balance(balance: Balance) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(balance.budget),
        "used_nanos": balance.used_nanos,
        "held_nanos": balance.held_nanos,
        "remaining_nanos": balance.remaining_nanos,
        "overdrawn": balance.overdrawn,
        "period_start": balance.period_start,
        "resets_at": balance.resets_at,
    }
