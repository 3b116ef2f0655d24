"""What happens in this process, as it does: `GET /admin/v1/events`, server-sent events.

| event | data |
|---|---|
| `request.started`, `request.finished` | a request, as in the list of requests |
| `attempt.started`, `attempt.finished` | `request_id` and the attempt |
| `target.changed` | the breaker of a target has changed |
| `target.paused` | a target has asked to be left alone for a time (`Retry-After`) |
| `budget.warning` | a budget is spent up to one of its marks |
| `call.refused` | somebody was not let in, or has used up the limits of the key |
| `config.reloaded` | the configuration was read anew, or refused |
| `approval.asked`, `approval.ended` | something waits for approval, or does no longer |
| `events.dropped` | how many were left out here, because the reader was too slow |
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.engine.engine import Engine
from penstock.server.admin.responses import AttemptEvent, DroppedEvent, RequestInfo
from penstock.server.admin.views import attempt_info, ended_info, running_info
from penstock.server.exchange import Exchange
from penstock.server.typed_endpoints import Call, Nothing
from penstock.telemetry.feed import Feed, Listener, Told
from penstock.telemetry.recent import RunningRequest
from penstock.telemetry.records import (
    ApprovalAsked,
    ApprovalEnded,
    AttemptRecord,
    AttemptStarted,
    BudgetWarned,
    CallRefused,
    ConfigReloaded,
    Record,
    RequestContent,
    RequestRecord,
    RequestStarted,
    TargetChanged,
    TargetPaused,
)

HEARTBEAT_S = 15.0
"""How often a line is written while nothing happens: a silent connection is taken for dead."""
_HELLO = b": listening\n\n"
_HEARTBEAT = b": nothing happened\n\n"
_encode = msgspec.json.Encoder().encode

DROPPED = "events.dropped"
NAMES: Mapping[type[Record], str] = {
    RequestStarted: "request.started",
    AttemptStarted: "attempt.started",
    AttemptRecord: "attempt.finished",
    RequestRecord: "request.finished",
    TargetChanged: "target.changed",
    TargetPaused: "target.paused",
    BudgetWarned: "budget.warning",
    CallRefused: "call.refused",
    ConfigReloaded: "config.reloaded",
    ApprovalAsked: "approval.asked",
    ApprovalEnded: "approval.ended",
}
DATA: Mapping[str, type[msgspec.Struct]] = {
    "request.started": RequestInfo,
    "attempt.started": AttemptEvent,
    "attempt.finished": AttemptEvent,
    "request.finished": RequestInfo,
    "target.changed": TargetChanged,
    "target.paused": TargetPaused,
    "budget.warning": BudgetWarned,
    "call.refused": CallRefused,
    "config.reloaded": ConfigReloaded,
    "approval.asked": ApprovalAsked,
    "approval.ended": ApprovalEnded,
    DROPPED: DroppedEvent,
}
"""What each event holds."""


class Events:
    """Sends what a feed hears to whoever asks."""

    def __init__(self, feed: Feed) -> None:
        """Of this process."""
        self._feed = feed

    async def events(self, engine: Engine, call: Call[Nothing, Nothing, Nothing]) -> None:
        """Everything that happens from now on, or after `Last-Event-ID`, until the reader goes."""
        exchange = call.exchange
        # From here on somebody watches whether the reader is still there.
        await exchange.body()
        shown = exchange.headers.get(b"last-event-id", b"")
        known = shown.isdigit() and len(shown) < 19
        with self._feed.listen(int(shown) if known else None) as listener:
            await exchange.begin_stream()
            if exchange.method != "HEAD":
                await exchange.write(_HELLO)
                await self._send(exchange, listener)
        await exchange.end()

    async def _send(self, exchange: Exchange, listener: Listener) -> None:
        while (heard := await listener.next(HEARTBEAT_S)) is not None:
            data = b""
            if heard.missed:
                data = _frame(DROPPED, DroppedEvent(heard.missed), None)
            data += b"".join(map(frame, heard.told))
            await exchange.write(data or _HEARTBEAT)


def frame(told: Told) -> bytes:
    """One event as it is sent."""
    record = told.record
    if isinstance(record, RequestContent):
        # Nobody asks the hooks for it on behalf of a feed, and no feed passes it on.
        return b""
    return _frame(NAMES[type(record)], _data(record), told.number)


def _data(record: Record) -> object:
    match record:
        case RequestStarted():
            return running_info(RunningRequest(record, (), ()))
        case RequestRecord():
            return ended_info(record)
        case AttemptStarted() | AttemptRecord():
            return AttemptEvent(record.request_id, attempt_info(record))
        case _:
            return record


def _frame(name: str, data: object, number: int | None) -> bytes:
    head = b"" if number is None else b"id: %d\n" % number
    return b"%bevent: %b\ndata: %b\n\n" % (head, name.encode(), _encode(data))
