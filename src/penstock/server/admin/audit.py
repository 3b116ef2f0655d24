"""Records what is changed through the admin API, and shows the record.

Every endpoint that is not GET is recorded, by the name of its handler, so that a new one is too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from penstock.audit.records import AuditFilter
from penstock.config.settings import Config
from penstock.engine.build.keys import audit_of
from penstock.engine.engine import Engine
from penstock.server.admin.budgets import find_budget
from penstock.server.admin.keys import key_info
from penstock.server.admin.redacted import masked
from penstock.server.admin.requests import AuditQuery
from penstock.server.admin.responses import AuditInfo, AuditList
from penstock.server.admin.views import target_info
from penstock.server.typed_endpoints import AnyEndpoint, Call, Nothing

ADMIN = "admin key"
_UNRECORDED = frozenset({"route", "estimate"})
"""Paths whose POST changes nothing that an administrator decides."""
_ALLOWED = {
    "approvals": frozenset({"decision", "reason"}),
    "usage": frozenset({"target", "usage", "key", "tags", "latency_s", "quality"}),
}
"""The fields that are kept of a body that may contain prompts or answers."""
State = Callable[[Engine, str], Awaitable[Any]]


async def audit_page(engine: Engine, call: Call[Nothing, AuditQuery, Nothing]) -> AuditList:
    """What administrators have changed, newest first: who, when, what, before and after."""
    asked = call.query
    chosen = AuditFilter(
        since=_or_none(asked.since),
        until=_or_none(asked.until),
        action=asked.action or None,
        subject=asked.subject or None,
    )
    store = audit_of(engine.config, engine.stores)
    cursor = None if isinstance(asked.cursor, msgspec.UnsetType) else asked.cursor
    page = await asyncio.to_thread(store.page, chosen, cursor=cursor, limit=asked.limit)
    entries = [AuditInfo(**msgspec.structs.asdict(each)) for each in page.entries]
    return AuditList(entries, page.next)


def recorded(endpoint: AnyEndpoint, base: str) -> AnyEndpoint:
    """The same endpoint, whose changes are recorded."""
    kind = endpoint.template.removeprefix(f"{base}/").partition("/")[0]
    if endpoint.method == "GET" or kind in _UNRECORDED:
        return endpoint
    run = endpoint.run

    @functools.wraps(run)
    async def changed(engine: Engine, call: Call[Any, Any, Any]) -> object:
        subject = _subject(call)
        before = await _state(kind, engine, subject)
        answer = await run(engine, call)
        await asyncio.to_thread(
            functools.partial(
                audit_of(engine.config, engine.stores).record,
                cast(Any, run).__name__,
                subject,
                actor=ADMIN,
                origin=call.exchange.peer,
                details=_details(kind, call),
                before=before,
                after=await _state(kind, engine, subject),
            )
        )
        return answer

    return dataclasses.replace(endpoint, run=changed)


def record_reload(engine: Engine, before: Config, now: Config, file: str) -> None:
    """Record a configuration that took effect; may block."""
    one, other = masked(before), masked(now)
    names = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    audit_of(now, engine.stores).record(
        "reload",
        file,
        actor="configuration",
        origin="reload",
        before={name: one.get(name) for name in sorted(names)},
        after={name: other.get(name) for name in sorted(names)},
    )


def _subject(call: Call[Any, Any, Any]) -> str:
    """What the path names, or else the body."""
    for source in (call.path, call.body):
        for field in ("name", "request_id", "id", "target"):
            if isinstance(found := getattr(source, field, None), str):
                return found
    return ""


def _details(kind: str, call: Call[Any, Any, Any]) -> Mapping[str, Any] | None:
    body: dict[str, Any] = msgspec.to_builtins(call.body)
    allowed = _ALLOWED.get(kind)
    kept = {name: each for name, each in body.items() if allowed is None or name in allowed}
    return kept or None


async def _state(kind: str, engine: Engine, subject: str) -> Any:
    reader = _STATES.get(kind)
    return None if reader is None else await reader(engine, subject)


async def _targets(engine: Engine, subject: str) -> Any:
    """Those that the name is about: one, all of a provider, or those of a pattern."""
    start = subject.partition("*")[0]
    found = [
        msgspec.to_builtins(target_info(each))
        for each in engine.target_health()
        if each.target == subject or each.target.startswith(start)
    ]
    return [{name: each[name] for name in ("target", "state", "reason")} for each in found] or None


_STATES: Mapping[str, State] = {"budgets": find_budget, "keys": key_info, "targets": _targets}


def _or_none(moment: float | msgspec.UnsetType) -> float | None:
    return None if isinstance(moment, msgspec.UnsetType) else moment
