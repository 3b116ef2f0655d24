"""What is told about requests and attempts.

No record holds what was said: no message, no answer, no text of an error and no value of the
caller's metadata. Content is a record of its own, made only for a subscriber that asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.errors import PenstockError, RequestCancelled
from penstock.contract.exchange import SamplingRequest, StopReason, Usage
from penstock.contract.messages import Content

Operation: TypeAlias = Literal["chat", "embeddings", "transcription"]
Outcome: TypeAlias = Literal["ok", "failed", "cancelled"]


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
    calls: tuple[Usage, ...] = ()
    """What each call took, where there were several: a price may depend on a call's length."""

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
        dropped_options: tuple[str, ...] = (),
    ) -> AttemptRecord:
        """The end of what has begun; the error is read for its type, never for its text."""
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
            dropped_options=dropped_options,
            calls=tuple(calls) if len(calls) > 1 else (),
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
    attempts: tuple[AttemptRecord, ...] = ()
    error: str | None = None
    """The name of the error's type."""

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
        attempts: tuple[AttemptRecord, ...] = (),
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
            provider=provider or (last.provider if last else None),
            model=model or (last.model if last else None),
            first_token_s=first_token_s,
            stop_reason=stop_reason,
            response_id=response_id,
            usage=usage,
            cost_nanos=cost_nanos,
            attempts=attempts,
            error=error_name(error),
        )


class RequestContent(msgspec.Struct, frozen=True):
    """What was said in a request that has been answered; only for those who asked for it."""

    request_id: str
    request: SamplingRequest
    answer: tuple[Content, ...] = ()


Record: TypeAlias = RequestStarted | AttemptStarted | AttemptRecord | RequestContent | RequestRecord


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
