"""Keeps time for one request and tells its one end, whatever that is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TypeVar

from penstock.contract.adaptation import OMITTED
from penstock.contract.checks.lengths import cut
from penstock.contract.errors import PenstockError, ProviderTimeout, attach_metadata
from penstock.contract.exchange import (
    AnyRequest,
    EmbeddingRequest,
    Metadata,
    Reply,
    Result,
    SamplingRequest,
    StopReason,
    Transcript,
    TranscriptionRequest,
    Usage,
    Vectors,
)
from penstock.contract.metadata import ErrorMetadata
from penstock.contract.ports import Attempt, Target
from penstock.contract.requests import Caller
from penstock.contract.terms import Admission, Terms
from penstock.pipeline.hold import Accounts, Paid
from penstock.pipeline.registry import InFlight, new_request_id
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.record_builder import Trail
from penstock.telemetry.records import Operation, RequestContent, RequestStarted
from penstock.telemetry.usage_counters import UsageCounters
from penstock.tokens.size import measured

T = TypeVar("T")
_OPERATIONS: dict[type, Operation] = {
    SamplingRequest: "chat",
    EmbeddingRequest: "embeddings",
    TranscriptionRequest: "transcription",
}
NOBODY = Caller()


async def _admitted(terms: Terms, request: AnyRequest, targets: Sequence[Target]) -> Admission:
    # Only the count is made in a thread: the windows of the key belong to the loop.
    count = await measured(request, lambda: terms.count(request, targets))
    return terms.admit(request, targets, count)


class Meter:
    """From the arrival of a request to its end, of which there is one: answered, or failed."""

    __slots__ = (
        "_accounts",
        "_caller",
        "_ended",
        "_first_token_s",
        "_hall",
        "_request",
        "_started",
        "_usage",
        "attempt",
        "failure",
        "request_id",
        "trail",
    )

    attempt: Attempt
    """The attempt that answers; a stream has it from its first event on."""

    def __init__(
        self,
        request: AnyRequest,
        hall: InFlight,
        usage: UsageCounters,
        hooks: Hooks,
        accounts: Accounts,
        *,
        request_id: str | None = None,
        caller: Caller = NOBODY,
        stream: bool = False,
    ) -> None:
        """The request begins now; it stays in the hall until its end."""
        self.request_id = request_id or new_request_id()
        self._request = request
        self._hall = hall
        self._usage = usage
        self._accounts = accounts
        self._caller = caller
        self._started = time.perf_counter()
        self._first_token_s: float | None = None
        self._ended = False
        self.failure: ErrorMetadata | None = None
        """What is known of the request, once it has failed."""
        sampling = isinstance(request, SamplingRequest)
        self.trail = Trail(
            hooks,
            RequestStarted(
                request_id=self.request_id,
                operation=_OPERATIONS[type(request)],
                started=time.time(),
                stream=stream,
                requested_model=None if request.model is None else cut(request.model),
                max_tokens=request.max_tokens if sampling else None,
                temperature=request.temperature if sampling else None,
                key=caller.key,
                tags=caller.tags,
                traceparent=caller.traceparent,
                tracestate=caller.tracestate,
            ),
        )
        hall.enter()

    def paying(self, request: AnyRequest, ranked: Sequence[Target]) -> Paid:
        """The block in which the request may be made: held before, settled after."""
        caller, terms = self._caller, self._caller.terms
        return Paid(
            ranked,
            None if terms is None else lambda targets: _admitted(terms, request, targets),
            # Within the request's own limit; settling is not, for the answer is there by then.
            lambda targets: self.within(
                request.timeout,
                lambda: self._accounts.reserve(self.request_id, request, targets, caller),
            ),
            self.trail,
        )

    @contextlib.contextmanager
    def paused(self) -> Generator[None, None, None]:
        """A while that counts neither as latency nor towards the request's own limit."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._started += time.perf_counter() - began

    def first_token(self) -> None:
        """The first event has arrived."""
        if self._first_token_s is None:
            self._first_token_s = self._elapsed_s()

    def result(self, attempt: Attempt, reply: Reply) -> Result:
        """The answer with its metadata; the request has ended."""
        hooks = self.trail.hooks
        if hooks.wants_content and isinstance(self._request, SamplingRequest):
            hooks.content(
                RequestContent(self.request_id, self._request, reply.content, self._caller.key)
            )
        metadata = self.answered(attempt, reply)
        return Result(
            reply.content,
            metadata.model,
            reply.stop_reason,
            metadata,
            extra=reply.extra,
            stop_sequence=reply.stop_sequence,
        )

    def answered(self, attempt: Attempt, answer: Reply | Transcript | Vectors) -> Metadata:
        """What there is to know about the call; the request has ended."""
        metadata = self._metadata(attempt, answer)
        self._usage.answered(attempt.target, metadata, self._caller.key)
        self._end(
            None,
            provider=metadata.provider,
            model=metadata.model,
            stop_reason=answer.stop_reason if isinstance(answer, Reply) else None,
            response_id=metadata.response_id,
            cost_nanos=metadata.cost_nanos,
            continued_by=metadata.continued_by,
        )
        return metadata

    def failed(self, error: BaseException, target: Target | None = None) -> None:
        """The request ends with this error, at this target if it is with one.

        What has ended already does not end again: a caller may go away with the answer in hand.
        """
        if isinstance(error, PenstockError):
            error.located(request_id=self.request_id)
        if not self._ended:
            cost = self._accounts.cost(self.trail.attempts)
            self.failure = self._failure(target, cost)
            if isinstance(error, PenstockError | asyncio.CancelledError):
                attach_metadata(error, self.failure)
            self._usage.failed(error, target, self._caller.key)
            self._end(error, cost_nanos=cost)

    def within(self, limit_s: float | None, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """What the work gives; raises ProviderTimeout when the request's own limit runs out."""
        return work() if limit_s is None else self._limited(limit_s, work)

    def __enter__(self) -> Meter:
        """Errors that leave the block are the request's end, and carry its id."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the request."""
        if error is not None:
            self.failed(error)

    def _metadata(self, attempt: Attempt, answer: Reply | Transcript | Vectors) -> Metadata:
        first_s = self._first_token_s
        # Its number is not how many there were: the one after it may have been outrun.
        attempts = len(self.trail.attempts) or attempt.number
        vectors = answer.vectors if isinstance(answer, Vectors) else None
        said = None if isinstance(answer, Vectors) else answer
        relaxed = tuple(f"{name}={OMITTED}" for name in said.dropped_options) if said else ()
        return Metadata(
            provider=attempt.target.provider,
            model=answer.model or attempt.target.model,
            request_id=self.request_id,
            latency_ms=round(self._elapsed_s() * 1000),
            first_token_ms=None if first_s is None else round(first_s * 1000),
            usage=self._used(answer.usage),
            cost_nanos=self._accounts.cost(self.trail.attempts),
            api_calls=attempts - 1 + answer.api_calls,
            attempts=attempts,
            response_id=said.response_id if said else None,
            response_status=said.response_status if said else None,
            dropped_options=attempt.dropped_options + (said.dropped_options if said else ()),
            adapted=tuple(map(str, attempt.adapted)) + relaxed,
            continued_by=str(attempt.target) if attempt.continues else None,
            stop_detail=answer.stop_detail if isinstance(answer, Reply) else None,
            embedding_count=None if vectors is None else len(vectors),
            embedding_dims=None if vectors is None else len(vectors[0]),
        )

    def _failure(self, target: Target | None, cost_nanos: int | None) -> ErrorMetadata:
        tried, first_s = self.trail.attempts, self._first_token_s
        if tried:
            target = Target(tried[-1].provider, tried[-1].model)
        return ErrorMetadata(
            request_id=self.request_id,
            latency_ms=round(self._elapsed_s() * 1000),
            provider=None if target is None else target.provider,
            model=None if target is None else target.model,
            first_token_ms=None if first_s is None else round(first_s * 1000),
            attempts=len(tried),
            api_calls=len(tried),
            usage=self.trail.used or Usage(),
            cost_nanos=cost_nanos,
        )

    def _used(self, told: Usage) -> Usage:
        """What the provider told of the answer, and what earlier attempts took beside it.

        Counts that are impossible are replaced by what is billed for them.
        """
        billed = [each.usage for each in self.trail.attempts if each.usage is not None]
        if len(billed) <= 1 and not any(each.implausible for each in billed):
            return told
        return sum(billed[1:], billed[0])

    def _end(
        self,
        error: BaseException | None,
        *,
        provider: str | None = None,
        model: str | None = None,
        stop_reason: StopReason | None = None,
        response_id: str | None = None,
        cost_nanos: int | None = None,
        continued_by: str | None = None,
    ) -> None:
        self._ended = True
        self._usage.took(self.trail.attempts, self._accounts.cost, self._caller.key)
        self.trail.finished(
            self._elapsed_s(),
            error=error,
            provider=provider,
            model=model,
            first_token_s=self._first_token_s,
            stop_reason=stop_reason,
            response_id=response_id,
            cost_nanos=cost_nanos,
            continued_by=continued_by,
        )
        self._hall.leave()

    async def _limited(self, limit_s: float, work: Callable[[], Awaitable[T]]) -> T:
        message = f"no whole answer within the request's own limit of {limit_s:g} s"
        left = limit_s - self._elapsed_s()
        if left <= 0:
            raise ProviderTimeout(message)
        clock = asyncio.timeout(left)
        try:
            async with clock:
                return await work()
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise ProviderTimeout(message) from error

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._started
