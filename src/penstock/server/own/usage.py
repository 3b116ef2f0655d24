"""`GET /v1/usage`: what the caller's own key has used, what it may use, and its requests."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.budget.calendar import PERIODS, Calendar, Period
from penstock.budget.reports import NOTHING_USED, UsageRow
from penstock.contract.metadata import Usage
from penstock.engine.engine import Engine
from penstock.keys.admin import KeyInfo, ListedKey, balances_of
from penstock.keys.policy import KeyTerms
from penstock.keys.rate_limit import AnyWindow
from penstock.server.admin.requests import Asked, Moment, RequestsQuery
from penstock.server.admin.responses import Answer, RequestInfo
from penstock.server.admin.views import merged_requests, request_list
from penstock.server.dispatch import Route, Routes
from penstock.server.process.peers import Question, Siblings
from penstock.server.typed_endpoints import Call, Endpoint, EndpointTable, Nothing
from penstock.telemetry.recent import RecentRequests

PATH = "/v1/usage"


class OwnUsageQuery(Asked):
    """Of which time the models are told, and how many requests."""

    since: Annotated[Moment, Meta(description="Default: this month began.")] | UnsetType = UNSET
    until: Moment | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=100, description="Most requests that are listed.")] = 20


class WindowInfo(Answer):
    """A limit of the key in any 60 seconds."""

    limit: int
    remaining: int
    resets_in_s: float
    """Seconds until all of it is there again, if nothing is asked."""


class PeriodUsage(Answer):
    """What the key has used since a period began, in UTC."""

    period: Period
    since: float
    usage: UsageRow


class OwnRequest(Answer):
    """One request of the key."""

    request_id: str
    state: str
    outcome: str | None
    operation: str
    stream: bool
    started: float
    duration_s: float
    requested_model: str | None
    model: str | None
    usage: Usage | None
    cost_nanos: int | None
    stop_reason: str | None
    error: str | None


class OwnUsage(Answer):
    """What belongs to the caller's key; money is in nano-dollars, times are Unix seconds."""

    key: KeyInfo | None
    """The key, its limits and its own budgets; null where the gateway asks for no keys: then all
    that follows is about the whole gateway."""
    requests_per_minute: WindowInfo | None
    """Null: there is no such limit."""
    tokens_per_minute: WindowInfo | None
    periods: list[PeriodUsage]
    """Empty, as `models`, where no ledger is kept."""
    models: list[UsageRow]
    requests: list[OwnRequest]
    """The newest first: those that run, and the last that have ended since the gateway started."""


class OwnUsagePage:
    """Answers for one worker of several."""

    def __init__(self, recent: RecentRequests, siblings: Siblings) -> None:
        """Of these records, and of those that other workers have."""
        self._recent = recent
        self._siblings = siblings

    async def own_usage(
        self, engine: Engine, call: Call[Nothing, OwnUsageQuery, Nothing]
    ) -> OwnUsage:
        """What the caller's key has used, what it may use, and its last requests."""
        access = call.exchange.access
        terms = None if access is None else access.terms
        key, now = None if terms is None else terms.key.id, time.time()
        periods, models = await _recorded(engine, call.query, key, now)
        return OwnUsage(
            None if terms is None else await _key(engine, terms, now),
            None if terms is None else _window(terms.requests),
            None if terms is None else _window(terms.tokens),
            periods,
            models,
            await self._requests(key, call.query.limit),
        )

    async def _requests(self, key: str | None, limit: int) -> list[OwnRequest]:
        query = RequestsQuery(limit=limit, key=UNSET if key is None else key)
        lists = [request_list(self._recent, query)]
        answers = await self._siblings.ask(Question.REQUESTS, msgspec.to_builtins(query))
        lists += [msgspec.convert(each, type(lists[0])) for each in answers]
        return [_own(each) for each in merged_requests(lists, limit).requests]


async def _recorded(
    engine: Engine, asked: OwnUsageQuery, key: str | None, now: float
) -> tuple[list[PeriodUsage], list[UsageRow]]:
    if not engine.keeps_ledger:
        return [], []
    ledger = await engine.ledger()
    periods: list[PeriodUsage] = []
    for period in PERIODS:
        since = Calendar(period).span(now).start
        rows = await ledger.usage(since=since, key=key)
        periods.append(PeriodUsage(period, since, rows[0] if rows else NOTHING_USED))
    since = asked.since
    if isinstance(since, UnsetType):
        since = Calendar("month").span(now).start
    until = None if isinstance(asked.until, UnsetType) else asked.until
    return periods, list(await ledger.usage("model", since=since, until=until, key=key))


async def _key(engine: Engine, terms: KeyTerms, now: float) -> KeyInfo:
    key = terms.key
    source = "penstock.toml" if key.name in engine.config.keys else "created"
    return KeyInfo.of(ListedKey(key, source, balances_of(key, await engine.budgets())), now)


def _window(window: AnyWindow | None) -> WindowInfo | None:
    return None if window is None else WindowInfo(window.limit, *window.left())


def _own(info: RequestInfo) -> OwnRequest:
    return OwnRequest(
        request_id=info.request_id,
        state=info.state,
        outcome=info.outcome,
        operation=info.operation,
        stream=info.stream,
        started=info.started,
        duration_s=info.duration_s,
        requested_model=info.requested_model,
        model=info.model,
        usage=info.usage,
        cost_nanos=info.cost_nanos,
        stop_reason=info.stop_reason,
        error=info.error,
    )


def routes(recent: RecentRequests, siblings: Siblings) -> Routes:
    """The one path of this page."""
    run = OwnUsagePage(recent, siblings).own_usage
    endpoint = Endpoint("GET", PATH, run, Nothing, OwnUsageQuery, Nothing, OwnUsage)
    return {("GET", PATH): Route(EndpointTable([endpoint]))}
