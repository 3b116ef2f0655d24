"""What one process knows of its own requests and targets.

Money and keys are in a file that all processes of a gateway share. What is told here is not: where
there are several processes, these answers are to be gathered from each of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from penstock.contract.ports import RankedTarget, RouteDecision
from penstock.engine.engine import Engine
from penstock.keys.records import without_keys
from penstock.pool.targets.states import TargetHealth
from penstock.server.admin.requests import RequestsQuery
from penstock.server.admin.responses import (
    AttemptInfo,
    BudgetVerdictInfo,
    RankedInfo,
    RequestInfo,
    RequestList,
    RouteAnswer,
    RouteInfo,
    TargetInfo,
    TargetList,
)
from penstock.telemetry.recent import RecentRequests, RunningRequest
from penstock.telemetry.records import AttemptRecord, AttemptStarted, RequestRecord

_SEVERITY = {"closed": 0, "half_open": 1, "open": 2}
_STATUS_SEVERITY = {"up": 0, "degraded": 1, "down": 2}


def request_list(recent: RecentRequests, asked: RequestsQuery) -> RequestList:
    """Those that fit, the running ones first, each kind newest first."""
    fitting = (each for each in _all(recent, asked) if _fits(each, asked))
    return RequestList(list(islice(fitting, asked.limit)))


def request_info(
    recent: RecentRequests, request_id: str, key: str | None = None
) -> RequestInfo | None:
    """One of them, of this key or of any; None when it neither runs nor is among the last."""
    found = recent.get(request_id, key)
    if found is None:
        return None
    return running_info(found) if isinstance(found, RunningRequest) else ended_info(found)


def target_list(engine: Engine) -> TargetList:
    """Every target that was asked so far."""
    return TargetList([target_info(each) for each in engine.target_health()], engine.background())


def merged_requests(lists: Sequence[RequestList], limit: int) -> RequestList:
    """What several processes tell, in the same order."""
    every = [each for part in lists for each in part.requests]
    every.sort(key=lambda each: (each.state == "running", each.started), reverse=True)
    return RequestList(every[:limit])


def merged_targets(lists: Sequence[TargetList]) -> TargetList:
    """Each target once: its load is that of all processes, its state the worst that one sees."""
    found: dict[str, TargetInfo] = {}
    for part in lists:
        for each in part.targets:
            before = found.get(each.target)
            found[each.target] = each if before is None else _together(before, each)
    return TargetList(list(found.values()), lists[0].background)


def _together(one: TargetInfo, other: TargetInfo) -> TargetInfo:
    worse = max(one, other, key=lambda each: (_STATUS_SEVERITY[each.status], _SEVERITY[each.state]))
    limit = None if one.limit is None or other.limit is None else one.limit + other.limit
    return msgspec.structs.replace(
        worse,
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
        limit=limit,
    )


def target_info(health: TargetHealth) -> TargetInfo:
    """One of them; JSON has no number for what never ends."""
    wait = health.retry_in_s
    return TargetInfo(
        target=health.target,
        state=health.state,
        reason=health.reason,
        retry_in_s=None if wait == math.inf else wait,
        in_flight=health.in_flight,
        waiting=health.waiting,
        limit=health.limit,
        status=health.status,
        checked_at=health.checked_at,
        evidence=health.evidence,
    )


def running_info(running: RunningRequest) -> RequestInfo:
    """A request that has not ended, as far as it is known."""
    begun = running.begun
    attempts = [*map(_ended, running.attempts), *map(_trying, running.trying)]
    last = attempts[-1] if attempts else None
    return RequestInfo(
        request_id=begun.request_id,
        state="running",
        outcome=None,
        operation=begun.operation,
        stream=begun.stream,
        started=begun.started,
        duration_s=max(0.0, time.time() - begun.started),
        first_token_s=None,
        requested_model=_name(begun.requested_model),
        provider=last.provider if last else None,
        model=last.model if last else None,
        key=begun.key,
        tags=begun.tags,
        route=None,
        attempts=attempts,
        usage=None,
        cost_nanos=None,
        continued_by=None,
        stop_reason=None,
        response_id=None,
        error=None,
        error_text=None,
    )


def ended_info(record: RequestRecord) -> RequestInfo:
    """A request that has ended."""
    return RequestInfo(
        request_id=record.request_id,
        state="ended",
        outcome=record.outcome,
        operation=record.operation,
        stream=record.stream,
        started=record.started,
        duration_s=record.duration_s,
        first_token_s=record.first_token_s,
        requested_model=_name(record.requested_model),
        provider=record.provider,
        model=record.model,
        key=record.key,
        tags=record.tags,
        route=_route(record) if record.ranked else None,
        attempts=[_ended(each) for each in record.attempts],
        usage=record.usage,
        cost_nanos=record.cost_nanos,
        continued_by=record.continued_by,
        stop_reason=record.stop_reason,
        response_id=record.response_id,
        error=record.error,
        error_text=record.error_text,
    )


def attempt_info(record: AttemptStarted | AttemptRecord) -> AttemptInfo:
    """One try at one target."""
    return _ended(record) if isinstance(record, AttemptRecord) else _trying(record)


def _all(recent: RecentRequests, asked: RequestsQuery) -> Iterator[RequestInfo]:
    if asked.state != "ended":
        yield from map(running_info, recent.running())
    if asked.state != "running":
        yield from map(ended_info, recent.newest())


def _fits(info: RequestInfo, asked: RequestsQuery) -> bool:
    # What is not asked for is UNSET, which is false.
    models = {info.requested_model, info.model, *(each.model for each in info.attempts)}
    providers = {info.provider, *(each.provider for each in info.attempts)}
    return (
        (not asked.outcome or info.outcome == asked.outcome)
        and (not asked.key or info.key == asked.key)
        and (not asked.model or asked.model in models)
        and (not asked.provider or asked.provider in providers)
    )


def _name(model: str | None) -> str | None:
    """A caller may have put a key where a model's name belongs."""
    return None if model is None else without_keys(model)


def _route(record: RequestRecord) -> RouteInfo:
    decision = record.decision
    return RouteInfo(
        [str(target) for target in record.ranked],
        [str(target) for target in record.ranked if target not in record.allowed],
        None if decision is None else route_answer(decision),
    )


def route_answer(decision: RouteDecision) -> RouteAnswer:
    """A route with its reasons."""
    return RouteAnswer(
        _name(decision.model),
        [_ranked(each) for each in decision.ranked],
        [_ranked(each) for each in decision.left_out],
        decision.strategy,
        decision.explored,
        without_keys(decision.reason),
    )


def _ranked(ranked: RankedTarget) -> RankedInfo:
    return RankedInfo(
        target=str(ranked.target),
        available=ranked.available,
        # A caller may have put a key where a hint belongs, too.
        reasons=[without_keys(each) for each in ranked.reasons],
        score=ranked.score,
        quality=ranked.quality,
        uncertainty=ranked.uncertainty,
        neighbours=ranked.neighbours,
        cost_usd=ranked.cost_usd,
        latency_ms=ranked.latency_ms,
        hint=_name(ranked.hint),
        propensity=ranked.propensity,
        budgets=[BudgetVerdictInfo.of(each) for each in ranked.budgets],
    )


def _ended(record: AttemptRecord) -> AttemptInfo:
    return AttemptInfo(
        number=record.number,
        provider=record.provider,
        model=record.model,
        started=record.started,
        outcome=record.outcome,
        duration_s=record.duration_s,
        first_token_s=record.first_token_s,
        error=record.error,
        error_text=record.error_text,
        status=record.status,
        retryable=record.retryable,
        usage=record.usage,
        dropped_options=list(record.dropped_options),
        adapted=list(map(str, record.adapted)),
    )


def _trying(record: AttemptStarted) -> AttemptInfo:
    return AttemptInfo(
        number=record.number,
        provider=record.provider,
        model=record.model,
        started=record.started,
        outcome="running",
        duration_s=None,
        first_token_s=None,
        error=None,
        error_text=None,
        status=None,
        retryable=False,
        usage=None,
        dropped_options=[],
        adapted=[],
    )
