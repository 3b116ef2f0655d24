"""Records as the pipeline makes them."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.exchange import Usage
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    RequestRecord,
    RequestStarted,
)

STARTED = RequestStarted(
    request_id="req_1", operation="chat", started=1000.0, requested_model="assistant"
)
ATTEMPT = AttemptStarted(
    request_id="req_1", number=1, provider="openai", model="gpt-6", started=1000.25
)
ATTEMPTED = AttemptRecord.of(ATTEMPT, duration_s=1.5)
FINISHED = RequestRecord.of(
    STARTED,
    duration_s=2.0,
    usage=Usage(10, 4),
    stop_reason="endTurn",
    cost_nanos=1_500_000,
    attempts=(ATTEMPTED,),
)


def finished(**changes: Any) -> RequestRecord:
    """`FINISHED` with changes."""
    return msgspec.structs.replace(FINISHED, **changes)


def attempted(**changes: Any) -> AttemptRecord:
    """`ATTEMPTED` with changes."""
    return msgspec.structs.replace(ATTEMPTED, **changes)


def play(hooks: Hooks, started: RequestStarted = STARTED, **changes: Any) -> None:
    """One request with one attempt, in the order in which the pipeline tells of it."""
    hooks.started(started)
    begun = msgspec.structs.replace(ATTEMPT, request_id=started.request_id)
    with hooks.attempting(begun):
        pass
    attempt = msgspec.structs.replace(ATTEMPTED, request_id=started.request_id)
    hooks.attempt(attempt)
    record = msgspec.structs.replace(
        FINISHED,
        request_id=started.request_id,
        operation=started.operation,
        stream=started.stream,
        requested_model=started.requested_model,
        attempts=(attempt,),
    )
    hooks.finished(msgspec.structs.replace(record, **changes))
