"""What is told about requests and attempts, and about what happens beside them.

No record holds what was said: no message, no answer, no value of the caller's metadata. The text of
an error, in which a provider may quote a prompt, is there only if `Hooks.keep_error_text` is set.
Content is a record of its own, made only for a subscriber that asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.adaptation import Adaptation, dropped
from penstock.contract.errors import PenstockError, RequestCancelled
from penstock.contract.exchange import SamplingRequest, StopReason, Usage
from penstock.contract.messages import Content
from penstock.contract.ports import RouteDecision, Target
from penstock.telemetry.error_text import error_text_of

Operation: TypeAlias = Literal["chat", "embeddings", "transcription"]
Outcome: TypeAlias = Literal["ok", "failed", "cancelled"]
TargetCondition: TypeAlias = Literal["closed", "open", "half_open"]
RequestIdentity: TypeAlias = tuple[str | None, str]
"""The name of the caller's key and the id of a request. Callers choose ids, so an id alone is
unique only among the requests of one key."""


class RequestStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request has come in; `started` is its Unix time."""

    request_id: str
    operation: Operation
    started: float
    stream: bool = False
    requested_model: str | None = None
    """What the caller asked for, as it was written; None for the default."""
    max_tokens: int | None = None
    temperature: float | None = None
    key: str | None = None
    """The name of the key that the caller has shown."""
    tags: Mapping[str, str] = {}
    """Those of the key, and none of what the request's metadata says."""
    traceparent: str | None = None
    """The caller's place in a trace, as in the W3C header; else it is that of the running task."""
    tracestate: str | None = None


class AttemptStarted(msgspec.Struct, frozen=True, kw_only=True):
    """One target is about to be tried; `started` is its Unix time."""

    request_id: str
    number: int
    provider: str
    model: str
    started: float
    key: str | None = None
    """The name of the key that the caller has shown."""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One target has been tried; a stream's attempt ends with the stream."""

    request_id: str
    number: int
    provider: str
    model: str
    started: float
    duration_s: float
    outcome: Outcome
    first_token_s: float | None = None
    error: str | None = None
    """The name of the error's type."""
    status: int | None = None
    """The provider's HTTP status, where the failure has one."""
    retryable: bool = False
    usage: Usage | None = None
    """What all its calls took together; None when nothing was billed."""
    dropped_options: tuple[str, ...] = ()
    adapted: tuple[Adaptation, ...] = ()
    """The options of the request that the target did not get as they were."""
    calls: tuple[Usage, ...] = ()
    """What each call took, where there were several: a price may depend on a call's length."""
    key: str | None = None
    """The name of the key that the caller has shown."""
    error_text: str | None = None
    """What the provider said about the failure, where that is kept."""

    @property
    def bills(self) -> tuple[Usage, ...]:
        """What each call took that is to be paid for."""
        return self.calls or (() if self.usage is None else (self.usage,))

    @staticmethod
    def of(
        begun: AttemptStarted,
        *,
        duration_s: float,
        error: BaseException | None = None,
        first_token_s: float | None = None,
        usage: Usage | None = None,
        calls: Sequence[Usage] = (),
        adapted: tuple[Adaptation, ...] = (),
        keep_error_text: bool = False,
    ) -> AttemptRecord:
        """The end of what has begun."""
        known = isinstance(error, PenstockError)
        return AttemptRecord(
            request_id=begun.request_id,
            number=begun.number,
            provider=begun.provider,
            model=begun.model,
            started=begun.started,
            duration_s=duration_s,
            outcome=outcome_of(error),
            first_token_s=first_token_s,
            error=error_name(error),
            status=error.status if known else None,
            retryable=known and error.retryable,
            usage=usage,
            dropped_options=dropped(adapted),
            adapted=adapted,
            calls=tuple(calls) if len(calls) > 1 else (),
            key=begun.key,
            error_text=error_text_of(error) if keep_error_text and error_name(error) else None,
        )


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request has ended, with all its attempts in their order."""

    request_id: str
    operation: Operation
    started: float
    duration_s: float
    outcome: Outcome
    stream: bool = False
    requested_model: str | None = None
    key: str | None = None
    """The name of the key that the caller has shown."""
    tags: Mapping[str, str] = {}
    """Those of the key, and none of what the request's metadata says."""
    ranked: Sequence[Target] = ()
    """The targets in the order of the route; none when the request got no route."""
    allowed: Sequence[Target] = ()
    """Those of them that the caller may use and has money for."""
    decision: RouteDecision | None = None
    """How the order of the route came about, where there is more to it than the configuration."""
    provider: str | None = None
    """Who answered, or failed last; None when nobody was asked."""
    model: str | None = None
    """The model that answered, by the provider's name for it."""
    first_token_s: float | None = None
    stop_reason: StopReason | None = None
    response_id: str | None = None
    usage: Usage | None = None
    """What all attempts used together."""
    cost_nanos: int | None = None
    continued_by: str | None = None
    """The target that finished the answer after the stream of another one broke."""
    attempts: tuple[AttemptRecord, ...] = ()
    error: str | None = None
    """The name of the error's type."""
    error_text: str | None = None
    """What was said about the failure, where that is kept."""

    @property
    def adapted(self) -> tuple[Adaptation, ...]:
        """The options that the last target did not get as they were."""
        return self.attempts[-1].adapted if self.attempts else ()

    @staticmethod
    def of(
        begun: RequestStarted,
        *,
        duration_s: float,
        error: BaseException | None = None,
        provider: str | None = None,
        model: str | None = None,
        first_token_s: float | None = None,
        stop_reason: StopReason | None = None,
        response_id: str | None = None,
        usage: Usage | None = None,
        cost_nanos: int | None = None,
        continued_by: str | None = None,
        attempts: tuple[AttemptRecord, ...] = (),
        ranked: Sequence[Target] = (),
        allowed: Sequence[Target] = (),
        decision: RouteDecision | None = None,
        keep_error_text: bool = False,
    ) -> RequestRecord:
        """The end of what has begun; who answered is the last attempt's, unless it is given."""
        last = attempts[-1] if attempts else None
        return RequestRecord(
            request_id=begun.request_id,
            operation=begun.operation,
            started=begun.started,
            duration_s=duration_s,
            outcome=outcome_of(error),
            stream=begun.stream,
            requested_model=begun.requested_model,
            key=begun.key,
            tags=begun.tags,
            ranked=ranked,
            allowed=allowed,
            decision=decision,
            provider=provider or (last.provider if last else None),
            model=model or (last.model if last else None),
            first_token_s=first_token_s,
            stop_reason=stop_reason,
            response_id=response_id,
            usage=usage,
            cost_nanos=cost_nanos,
            continued_by=continued_by,
            attempts=attempts,
            error=error_name(error),
            error_text=error_text_of(error) if keep_error_text and error_name(error) else None,
        )


class RequestContent(msgspec.Struct, frozen=True):
    """What was said in a request that has been answered; only for those who asked for it."""

    request_id: str
    request: SamplingRequest
    answer: tuple[Content, ...] = ()
    key: str | None = None
    """The name of the key that the caller has shown."""


class TargetChanged(msgspec.Struct, frozen=True):
    """The breaker of a target has opened, closed, or lets single requests through."""

    target: str
    state: TargetCondition
    before: TargetCondition
    reason: str
    """Why it opened; empty when it closed."""
    at: float
    """Unix seconds, as all times here."""


class TargetPaused(msgspec.Struct, frozen=True):
    """A target has asked to be left alone for a time, as with `Retry-After`."""

    target: str
    seconds: float
    reason: str
    at: float
    """Unix seconds, as all times here."""


class BudgetWarned(msgspec.Struct, frozen=True, kw_only=True):
    """So much of a budget is spent, in nano-dollars; told once for each threshold and period."""

    budget: str
    threshold_nanos: int
    used_nanos: int
    limit_nanos: int
    resets_at: float | None
    at: float


class CallRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway let somebody not in; what was shown as a key is in none of this."""

    status: int
    method: str
    path: str
    peer: str
    key: str | None
    """The name of the key, where it is known."""
    reason: str
    at: float


class ConfigReloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway has read its configuration anew."""

    source: str
    problem: str | None
    """Why it was refused, so that the one before still holds; None when it is in force."""
    at: float


class ApprovalAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or an answer, waits for somebody to approve it; its words are in none of this."""

    id: str
    stage: Literal["request", "answer"]
    server: str | None
    """The MCP server that asks, where it is one."""
    key: str | None
    expires: float
    at: float


class ApprovalEnded(msgspec.Struct, frozen=True, kw_only=True):
    """It waits no longer."""

    id: str
    outcome: Literal["approved", "denied", "gone"]
    """Denied by somebody, or for want of a decision; gone with whoever had asked."""
    reason: str
    at: float


Happening: TypeAlias = (
    TargetChanged
    | TargetPaused
    | BudgetWarned
    | CallRefused
    | ConfigReloaded
    | ApprovalAsked
    | ApprovalEnded
)
"""What belongs to no single request."""
Record: TypeAlias = (
    RequestStarted | AttemptStarted | AttemptRecord | RequestContent | RequestRecord | Happening
)


def identity_of(
    record: RequestStarted | AttemptStarted | AttemptRecord | RequestContent | RequestRecord,
) -> RequestIdentity:
    """The request that this record belongs to."""
    return record.key, record.request_id


def has_answered(record: AttemptRecord | RequestRecord) -> bool:
    """Whether a model has said anything, which proves that it exists."""
    return record.outcome == "ok" or record.first_token_s is not None


def outcome_of(error: BaseException | None) -> Outcome:
    """How it ended: a caller who goes away has cancelled, which is nobody's failure."""
    if error is None:
        return "ok"
    # A generator that is closed early is a stream whose reader went away.
    gone = (asyncio.CancelledError, GeneratorExit, RequestCancelled)
    return "cancelled" if isinstance(error, gone) else "failed"


def error_name(error: BaseException | None) -> str | None:
    """The name of a failure's type; None for what is no failure."""
    return type(error).__name__ if error is not None and outcome_of(error) == "failed" else None
