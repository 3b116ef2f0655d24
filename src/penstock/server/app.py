"""All doors of a gateway, put together from a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.config.settings import Config
from penstock.engine.build.budget import is_protected
from penstock.engine.build.keys import key_store_of, keyring_of, keys_of
from penstock.engine.build.routing import targets_of
from penstock.engine.build.storage import store_guards
from penstock.engine.engine import Engine
from penstock.engine.health import HeldBack
from penstock.keys.rate_limit import WindowOf, window_of
from penstock.mcp.host.queue import ApprovalQueue
from penstock.pool.targets.states import Pause
from penstock.server.admin import api
from penstock.server.admin.approvals import (
    ApprovalDetail,
    ApprovalList,
    approval_detail,
    approval_list,
    decide,
)
from penstock.server.admin.requests import ApprovalOrder, RequestsQuery
from penstock.server.admin.responses import RequestInfo, RequestList, TargetList
from penstock.server.admin.views import request_info, request_list, target_list
from penstock.server.auth.cors import Cors
from penstock.server.auth.gate import Gate
from penstock.server.dispatch import App
from penstock.server.doors.anthropic import endpoint as anthropic_api
from penstock.server.doors.mcp.endpoint import MCPEndpoint
from penstock.server.doors.openai_chat import endpoint as openai_api
from penstock.server.doors.openai_responses import endpoint as responses_api
from penstock.server.doors.sampling import endpoint as sampling_api
from penstock.server.doors.sampling import websocket
from penstock.server.doors.sampling.approvals import Approvals
from penstock.server.http.limits import Patience
from penstock.server.idempotency.keys import Idempotency
from penstock.server.idempotency.stored_answers import AnswerLimits
from penstock.server.openapi import public
from penstock.server.ops import home, probes
from penstock.server.ops.otlp import exporter_of
from penstock.server.own import estimates, feedback, usage
from penstock.server.process.peers import Question, Siblings
from penstock.storage.sqlite.guard import StoreGuards
from penstock.telemetry.exporters.logs import RequestLog
from penstock.telemetry.exporters.prometheus import Condition, PrometheusMetrics
from penstock.telemetry.feed import Feed
from penstock.telemetry.merge import Samples
from penstock.telemetry.recent import RecentRequests
from penstock.telemetry.records import (
    AttemptRecord,
    CallRefused,
    Record,
    RequestRecord,
    RequestStarted,
    TargetPaused,
)

METERED = (RequestStarted, AttemptRecord, RequestRecord, CallRefused)
"""What the metrics count."""


def application(
    open_engine: Callable[[], Engine],
    config: Config,
    *,
    key_required: bool = False,
    siblings: Siblings | None = None,
    approvals: ApprovalQueue | None = None,
    windows: WindowOf = window_of,
    stores: StoreGuards | None = None,
) -> App:
    """All doors in front of one engine.

    `key_required`: nobody gets in without a key, also while there is none. `siblings` are the other
    workers, who count in the same `windows`. What waits in the queue `approvals` is shown to the
    administrator, whoever has put it there. `stores` refuse a database that is not the expected
    one. Raises ConfigurationError for telemetry whose packages are missing.
    """
    guards = stores or store_guards()
    gate = Gate(keyring_of(config, required=key_required, windows=windows, stores=guards))
    metrics = PrometheusMetrics(health=lambda: _health(app))
    recent, feed = RecentRequests(), Feed()
    exporter = exporter_of(config)
    siblings = siblings or Siblings()
    approving = Approvals(approvals or ApprovalQueue())
    idempotency = Idempotency()

    telling: set[asyncio.Task[list[object]]] = set()

    def tell_pause(record: Record) -> None:
        """Have the other workers spare the target too."""
        if isinstance(record, TargetPaused):
            said = [record.target, record.seconds, record.reason]
            task = asyncio.create_task(siblings.ask(Question.PAUSE, said))
            telling.add(task)
            task.add_done_callback(telling.discard)

    def opened() -> Engine:
        engine = open_engine()
        engine.hooks.keep_error_text = config.server.keep_error_text
        engine.hooks.subscribe(metrics, only=METERED)
        if siblings.others:
            engine.hooks.subscribe(tell_pause, only=(TargetPaused,))
        if exporter is not None:
            engine.hooks.subscribe(exporter.subscriber)
        engine.hooks.subscribe(recent)
        feed.follow(engine.hooks)
        gate.on_refusal = engine.hooks.happened
        approving.tell(engine.hooks.happened)
        if config.server.log != "none":
            engine.hooks.subscribe(RequestLog(), only=(RequestRecord,))
        return engine

    mcp = MCPEndpoint(lambda: running(app), gate, siblings)
    app = App(
        opened,
        {
            **home.ROUTES,
            **idempotency.wrapped(
                {
                    **openai_api.ROUTES,
                    **responses_api.ROUTES,
                    **anthropic_api.ROUTES,
                    **sampling_api.routes(siblings, approving),
                }
            ),
            **feedback.ROUTES,
            **estimates.ROUTES,
            **usage.routes(recent, siblings),
            **public.ROUTES,
            **probes.routes(metrics, siblings, gate.keys, lambda: app.draining),
            **api.routes(recent, feed, gate.keys, siblings, approving.queue),
            **mcp.routes(),
        },
        max_request_bytes=config.limits.max_request_bytes,
        gate=gate,
        sockets=websocket.sockets(approving),
        on_stop=feed.close,
    )

    def configure(config: Config) -> None:
        server, limits = config.server, config.limits
        app.patience = Patience(
            max_head_bytes=limits.max_head_bytes,
            head_s=limits.head_timeout_s,
            body_s=limits.body_timeout_s,
            write_s=limits.write_timeout_s,
        )
        approving.configure(config.sampling)
        if app.engine is not None:
            app.engine.hooks.keep_error_text = server.keep_error_text
        idempotency.configure(config.storage.path, _answer_limits(config))
        app.max_request_bytes = limits.max_request_bytes
        app.max_json_values = limits.max_json_values
        app.cors = Cors(server.cors_origins) if server.cors_origins else None
        store = key_store_of(config, guards)
        if is_protected(config):
            store.guard.protect()
        gate.keys.configure(keys_of(config), targets_of(config), store)
        gate.configure(
            None if server.admin_key is None else server.admin_key.get_secret_value(), app.cors
        )
        targets = targets_of(config)
        of_models = [target for several in targets.values() for target in several]
        metrics.know(targets, of_models)
        if exporter is not None:
            kinds = {name: provider.kind or name for name, provider in config.providers.items()}
            exporter.subscriber.know((*targets, *of_models), kinds)

    answer_siblings(siblings, app, metrics, recent)
    answer_about_approvals(siblings, approving.queue)
    configure(config)
    app.configure = configure

    async def leave() -> None:
        await mcp.aclose()
        await idempotency.aclose()

    app.leave = leave
    if exporter is not None:
        app.finish = lambda: asyncio.to_thread(exporter.close)
    return app


async def take_over(siblings: Siblings, engine: Engine) -> None:
    """Hold back what the other workers hold back, in a worker that takes another's place."""
    for answer in await siblings.ask(Question.HELD):
        engine.hold_back(msgspec.convert(answer, HeldBack))


def _answer_limits(config: Config) -> AnswerLimits:
    limits = config.limits
    return AnswerLimits(
        config.server.idempotency_ttl_s,
        limits.max_idempotency_bytes,
        limits.max_idempotency_answers,
        limits.max_idempotency_answers_per_key,
        limits.max_idempotency_total_bytes,
    )


def running(app: App) -> Engine:
    """The engine that answers now."""
    if app.engine is None:
        raise RuntimeError("this worker is starting")
    return app.engine


def _health(app: App) -> Iterator[Condition]:
    """The health of targets and providers at this moment, for metrics."""
    if app.engine is not None:
        for target in app.engine.target_health():
            provider, _, model = target.target.partition("/")
            yield Condition(provider, model, target.status)
        for each in app.engine.last_provider_health():
            yield Condition(each.provider, None, each.status)


def answer_siblings(
    siblings: Siblings,
    app: App,
    metrics: PrometheusMetrics,
    recent: RecentRequests,
) -> None:
    """Let other workers know and do what only this one can."""

    def engine() -> Engine:
        return running(app)

    async def cancel(asked: tuple[str, str | None]) -> bool:
        request_id, key = asked
        return await engine().cancel_request(request_id, key=key)

    async def samples(_: object) -> Samples:
        return metrics.samples()

    async def requests(query: object) -> RequestList:
        return request_list(recent, msgspec.convert(query, RequestsQuery))

    async def request(asked: tuple[str, str | None]) -> RequestInfo | None:
        return request_info(recent, *asked)

    async def targets(_: object) -> TargetList:
        return target_list(engine())

    async def down(asked: Sequence[str]) -> TargetList:
        pattern, reason, *seen = asked
        engine().mark_down(pattern, reason, seen=seen)
        return target_list(engine())

    async def up(asked: Sequence[str]) -> TargetList:
        pattern, *seen = asked
        engine().mark_up(pattern, seen=seen)
        return target_list(engine())

    async def held(_: object) -> HeldBack:
        # A worker that is starting too knows of none.
        return HeldBack() if app.engine is None else app.engine.held_back()

    async def pause(asked: tuple[str, float, str]) -> bool:
        engine().hold_back(HeldBack(pauses=[Pause(*asked)]))
        return True

    siblings.answer(Question.CANCEL, cancel)
    siblings.answer(Question.METRICS, samples)
    siblings.answer(Question.REQUESTS, requests)
    siblings.answer(Question.REQUEST, request)
    siblings.answer(Question.TARGETS, targets)
    siblings.answer(Question.DOWN, down)
    siblings.answer(Question.UP, up)
    siblings.answer(Question.HELD, held)
    siblings.answer(Question.PAUSE, pause)


def answer_about_approvals(siblings: Siblings, queue: ApprovalQueue) -> None:
    """Let other workers see and decide what waits in this one."""

    async def approvals(_: object) -> ApprovalList:
        return approval_list(queue)

    async def approval(identifier: str) -> ApprovalDetail | None:
        return approval_detail(queue, identifier)

    async def decided(asked: tuple[str, object]) -> bool:
        identifier, order = asked
        return decide(queue, identifier, msgspec.convert(order, ApprovalOrder))

    siblings.answer(Question.APPROVALS, approvals)
    siblings.answer(Question.APPROVAL, approval)
    siblings.answer(Question.DECIDE, decided)
