"""What those who run a gateway may look at and change, below `/admin/v1`; for the admin key alone.

The table of endpoints is the whole of it: the routes, the OpenAPI document and the page of the
documentation are made from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from penstock.engine.engine import Engine
from penstock.keys.admin import KeyInfo
from penstock.keys.keyring import Keyring
from penstock.mcp.host.queue import ApprovalQueue
from penstock.server.admin import budgets as money
from penstock.server.admin import targets as providers
from penstock.server.admin.approvals import (
    ApprovalDesk,
    ApprovalDetail,
    ApprovalList,
    ApprovalOutcome,
)
from penstock.server.admin.audit import audit_page, recorded
from penstock.server.admin.events import DATA, Events
from penstock.server.admin.keys import Keys
from penstock.server.admin.requests import (
    ApprovalOrder,
    ApprovalPath,
    AuditQuery,
    BudgetOrder,
    BudgetPath,
    CancelQuery,
    DownOrder,
    EstimateOrder,
    KeyOrder,
    KeyPatch,
    KeyPath,
    LedgerQuery,
    NewBudgetPath,
    ProviderPath,
    ProvidersQuery,
    RequestPath,
    RequestQuery,
    RequestsQuery,
    RotateOrder,
    RouteOrder,
    UpOrder,
    UsageOrder,
    UsageQuery,
)
from penstock.server.admin.responses import (
    AuditList,
    BudgetInfo,
    BudgetList,
    ConfigAnswer,
    Error,
    EstimateAnswer,
    IssuedKey,
    KeyList,
    LedgerPage,
    MarkedTargets,
    ModelList,
    ProviderInfo,
    ProviderList,
    RecordedAnswer,
    RequestInfo,
    RequestList,
    RouteAnswer,
    TargetList,
    UsageAnswer,
)
from penstock.server.admin.targets import Targets
from penstock.server.admin.views import merged_requests, request_info, request_list
from penstock.server.dispatch import Route, Routes
from penstock.server.errors import Failure, HttpProblem
from penstock.server.openapi.document import Content, Json, Operation, document
from penstock.server.own.estimates import Accounting
from penstock.server.process.peers import Question, Siblings
from penstock.server.typed_endpoints import (
    METHODS,
    AnyEndpoint,
    B,
    Call,
    Endpoint,
    EndpointTable,
    Nothing,
    P,
    Q,
)
from penstock.telemetry.feed import Feed
from penstock.telemetry.recent import RecentRequests

BASE = "/admin/v1"
_DESCRIPTION = (
    "For those who run a gateway. Every call takes the admin key of `[server] admin_key`. "
    "Times are Unix seconds, money is in nano-dollars. Unknown parameters and fields are refused."
)
_SSE = "text/event-stream"


class Requests:
    """The requests that run, and the last that have ended, of all workers."""

    def __init__(self, recent: RecentRequests, siblings: Siblings) -> None:
        """Of these records, and of those that other workers have."""
        self._recent = recent
        self._siblings = siblings

    async def requests(
        self, engine: Engine, call: Call[Nothing, RequestsQuery, Nothing]
    ) -> RequestList:
        """The requests that run and the last that have ended, newest first."""
        lists = [request_list(self._recent, call.query)]
        asked = msgspec.to_builtins(call.query)
        lists += [
            msgspec.convert(each, RequestList)
            for each in await self._siblings.ask(Question.REQUESTS, asked)
        ]
        return merged_requests(lists, call.query.limit)

    async def request(
        self, engine: Engine, call: Call[RequestPath, RequestQuery, Nothing]
    ) -> RequestInfo:
        """One request: its route, attempts, timings, usage, cost and error."""
        request_id, key = call.path.request_id, call.query.key or None
        found = [request_info(self._recent, request_id, key)]
        found += [
            msgspec.convert(answer, RequestInfo)
            for answer in await self._siblings.ask(Question.REQUEST, [request_id, key])
        ]
        known = [each for each in found if each is not None]
        if not known:
            raise _no_request(request_id, "runs, or is among the last that have ended")
        return max(known, key=lambda each: (each.state == "running", each.started))

    async def cancel_request(
        self, engine: Engine, call: Call[RequestPath, CancelQuery, Nothing]
    ) -> None:
        """Stop the running requests of this id, in every worker."""
        request_id, key = call.path.request_id, call.query.key or None
        here = await engine.cancel_request(request_id, key=key)
        if not any([here, *await self._siblings.ask(Question.CANCEL, [request_id, key])]):
            raise _no_request(request_id, "runs; it has ended, or the id is another")


def _no_request(request_id: str, why: str) -> HttpProblem:
    return HttpProblem(Failure(404, f"no request {request_id!r} {why}", code="request_not_found"))


def endpoints(
    recent: RecentRequests,
    feed: Feed,
    keyring: Keyring,
    siblings: Siblings,
    queue: ApprovalQueue,
) -> list[AnyEndpoint]:
    """All of them; each is described by its handler's docstring and its types."""
    requests, keys, events = Requests(recent, siblings), Keys(keyring), Events(feed)
    accounting = Accounting(keyring)
    targets, desk = Targets(siblings), ApprovalDesk(queue, siblings)
    every: list[AnyEndpoint] = [
        _get("usage", money.usage, UsageAnswer, query=UsageQuery),
        _post(
            "usage",
            accounting.record_usage,
            RecordedAnswer,
            body=UsageOrder,
            status=201,
            errors=(404,),
        ),
        _post("estimate", accounting.estimate, EstimateAnswer, body=EstimateOrder, errors=(404,)),
        _get("ledger", money.ledger_page, LedgerPage, query=LedgerQuery),
        _get("requests", requests.requests, RequestList, query=RequestsQuery),
        _get(
            "requests/{request_id}",
            requests.request,
            RequestInfo,
            path=RequestPath,
            query=RequestQuery,
        ),
        Endpoint(
            "DELETE",
            f"{BASE}/requests/{{request_id}}",
            requests.cancel_request,
            RequestPath,
            CancelQuery,
            Nothing,
            None,
            204,
        ),
        _get("providers", providers.providers, ProviderList, query=ProvidersQuery),
        _get("providers/{name}", providers.provider, ProviderInfo, path=ProviderPath),
        _get("targets", targets.targets, TargetList),
        _post("targets/down", targets.mark_down, MarkedTargets, body=DownOrder, errors=(404,)),
        _post("targets/up", targets.mark_up, MarkedTargets, body=UpOrder, errors=(404,)),
        _get("models", providers.models, ModelList),
        _post("route", providers.route, RouteAnswer, body=RouteOrder, errors=(404,)),
        _get("budgets", money.budgets, BudgetList),
        _get("budgets/{name}", money.budget, BudgetInfo, path=BudgetPath),
        Endpoint(
            "PUT",
            f"{BASE}/budgets/{{name}}",
            money.set_budget,
            NewBudgetPath,
            Nothing,
            BudgetOrder,
            BudgetInfo,
            errors=(409,),
        ),
        Endpoint(
            "DELETE",
            f"{BASE}/budgets/{{name}}",
            money.remove_budget,
            BudgetPath,
            Nothing,
            Nothing,
            None,
            204,
            (409,),
        ),
        _post("budgets/{name}/reset", money.reset_budget, BudgetInfo, path=BudgetPath),
        _get("keys", keys.keys, KeyList),
        _post("keys", keys.create_key, IssuedKey, body=KeyOrder, status=201, errors=(404, 409)),
        _post(
            "keys/{name}/rotate",
            keys.rotate_key,
            IssuedKey,
            path=KeyPath,
            body=RotateOrder,
            errors=(409,),
        ),
        Endpoint(
            "PATCH",
            f"{BASE}/keys/{{name}}",
            keys.change_key,
            KeyPath,
            Nothing,
            KeyPatch,
            KeyInfo,
            errors=(409,),
        ),
        Endpoint(
            "DELETE",
            f"{BASE}/keys/{{name}}",
            keys.revoke_key,
            KeyPath,
            Nothing,
            Nothing,
            KeyInfo,
            200,
            (409,),
        ),
        _get("approvals", desk.approvals, ApprovalList),
        _get("approvals/{id}", desk.approval, ApprovalDetail, path=ApprovalPath),
        _post(
            "approvals/{id}",
            desk.decide_approval,
            ApprovalOutcome,
            path=ApprovalPath,
            body=ApprovalOrder,
        ),
        _get("config", providers.config, ConfigAnswer),
        _get("audit", audit_page, AuditList, query=AuditQuery),
        _get("events", events.events, None, media_type=_SSE),
    ]
    return [recorded(each, BASE) for each in every]


def routes(
    recent: RecentRequests,
    feed: Feed,
    keyring: Keyring,
    siblings: Siblings,
    queue: ApprovalQueue,
) -> Routes:
    """The routes of this page; a path below it that is none of them is answered here too."""
    known = endpoints(recent, feed, keyring, siblings, queue)

    @cache
    def made() -> bytes:
        return msgspec.json.encode(openapi(known))

    async def openapi_document(engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> None:
        await call.exchange.reply(made())

    table = EndpointTable([*known, _get("openapi.json", openapi_document, None)])
    return {(method, f"{BASE}/*"): Route(table, needs="admin") for method in METHODS}


def openapi(known: Iterable[AnyEndpoint]) -> Json:
    """The OpenAPI document of these endpoints."""
    operations = map(_operation, known)
    return document("Penstock admin API", _DESCRIPTION, operations)


def admin_document() -> Json:
    """The same without a gateway, for the documentation."""
    return openapi(endpoints(*unconnected()))


def unconnected() -> tuple[RecentRequests, Feed, Keyring, Siblings, ApprovalQueue]:
    """What endpoints take, without a gateway."""
    return RecentRequests(), Feed(), Keyring(), Siblings(), ApprovalQueue()


def _operation(endpoint: AnyEndpoint) -> Operation:
    run: Any = endpoint.run
    streams = endpoint.media_type == _SSE
    nothing = endpoint.answer is None and not streams
    answer = Content(
        endpoint.status,
        "It is done." if nothing else "The answer.",
        {} if nothing else {endpoint.media_type: endpoint.answer},
    )
    named = (404,) if endpoint.path is not Nothing else ()
    large = (413,) if endpoint.body is not Nothing else ()
    body: type[msgspec.Struct] | None = None if endpoint.body is Nothing else endpoint.body
    required = body is not None and any(each.required for each in msgspec.structs.fields(body))
    return Operation(
        method=endpoint.method,
        path=endpoint.template,
        id=run.__name__,
        summary=inspect.cleandoc(run.__doc__ or ""),
        needs="admin",
        answers=[answer],
        errors=sorted({400, 401, 403, 503, *named, *large, *endpoint.errors}),
        error=Error,
        path_type=endpoint.path,
        query=endpoint.query,
        body=body,
        body_required=required,
        headers={"last-event-id": "Go on after the event of this id."} if streams else {},
        extra=DATA if streams else {},
    )


def _get(
    template: str,
    run: Callable[[Engine, Call[P, Q, Nothing]], Awaitable[object]],
    answer: type[msgspec.Struct] | None,
    *,
    path: type[P] = Nothing,
    query: type[Q] = Nothing,
    media_type: str = "application/json",
) -> Endpoint[P, Q, Nothing]:
    return Endpoint(
        "GET",
        f"{BASE}/{template}",
        run,
        path,
        query,
        Nothing,
        answer,
        media_type=media_type,
    )


def _post(
    template: str,
    run: Callable[[Engine, Call[P, Nothing, B]], Awaitable[object]],
    answer: type[msgspec.Struct],
    *,
    path: type[P] = Nothing,
    body: type[B] = Nothing,
    status: int = 200,
    errors: tuple[int, ...] = (),
) -> Endpoint[P, Nothing, B]:
    return Endpoint("POST", f"{BASE}/{template}", run, path, Nothing, body, answer, status, errors)
