"""The flow of every request: validate, route, call with failover, and tell what happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar, cast

from penstock.contract.errors import (
    ModelNotFound,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Complete, Delta, Error, Finished, StreamEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    EmbeddingResult,
    Metadata,
    Reply,
    Result,
    SamplingRequest,
    TokenCount,
    Transcript,
    TranscriptionRequest,
    TranscriptionResult,
)
from penstock.contract.ports import Attempt, Pool, RouteDecision, Router, Target
from penstock.engine.running import new_request_id
from penstock.engine.validate import (
    Limits,
    validate,
    validate_embedding,
    validate_transcription,
)
from penstock.streaming.handle import EventBatches, StreamHandle
from penstock.telemetry.usage import UsageCounters
from penstock.tokens import estimate_request

T = TypeVar("T")


class Meter:
    """Keeps time for one request and writes down what it took."""

    __slots__ = ("_first_token", "_started", "_usage", "attempt", "request_id")

    attempt: Attempt
    """The attempt that answers; a stream has it from its first event on."""

    def __init__(self, usage: UsageCounters, request_id: str | None = None) -> None:
        """The request begins now."""
        self.request_id = request_id or new_request_id()
        self._usage = usage
        self._started = time.perf_counter()
        self._first_token: float | None = None

    def first_token(self) -> None:
        """The first event has arrived."""
        if self._first_token is None:
            self._first_token = time.perf_counter()

    def result(self, attempt: Attempt, reply: Reply) -> Result:
        """The answer with its metadata."""
        metadata = self.metadata(attempt, reply)
        self._usage.answered(attempt.target, metadata)
        return Result(reply.content, metadata.model, reply.stop_reason, metadata)

    def metadata(self, attempt: Attempt, reply: Reply | Transcript) -> Metadata:
        """What there is to know about the call so far."""
        first = self._first_token
        return Metadata(
            provider=attempt.target.provider,
            model=reply.model or attempt.target.model,
            request_id=self.request_id,
            latency_ms=self.elapsed_ms(),
            first_token_ms=None if first is None else round((first - self._started) * 1000),
            usage=reply.usage,
            api_calls=attempt.number - 1 + reply.api_calls,
            attempts=attempt.number,
            response_id=reply.response_id,
            response_status=reply.response_status,
            dropped_options=attempt.dropped_options + reply.dropped_options,
        )

    def within(self, limit_s: float | None, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """What the work gives; raises ProviderTimeout when the request's own limit runs out."""
        return work() if limit_s is None else self._limited(limit_s, work)

    async def _limited(self, limit_s: float, work: Callable[[], Awaitable[T]]) -> T:
        message = f"no whole answer within the request's own limit of {limit_s:g} s"
        left = limit_s - (time.perf_counter() - self._started)
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

    def __enter__(self) -> Meter:
        """Errors that leave the block are counted, and carry the request's id."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the request."""
        if error is not None:
            self.failed(error)

    def failed(self, error: BaseException, target: Target | None = None) -> None:
        """The request ends with this error, at this target if it is with one."""
        self._usage.failed(error, target)
        if isinstance(error, PenstockError):
            error.located(request_id=self.request_id)

    def elapsed_ms(self) -> int:
        """Milliseconds since the request began."""
        return round((time.perf_counter() - self._started) * 1000)


class Pipeline:
    """Runs requests; holds no state of any single one."""

    def __init__(self, router: Router, pool: Pool, limits: Limits) -> None:
        """The stages, introduced to each other by the gateway."""
        self._router = router
        self._pool = pool
        self._limits = limits
        self.usage = UsageCounters()

    async def run(self, request: SamplingRequest, request_id: str | None = None) -> Result:
        """The whole answer at once."""
        with Meter(self.usage, request_id) as meter:
            request = validate(request, self._limits)
            attempt, reply = await meter.within(request.timeout, lambda: self._answer(request))
        return meter.result(attempt, reply)

    async def start(self, request: SamplingRequest, request_id: str | None = None) -> StreamHandle:
        """The answer while it is made; returns, or raises, when the first event is there."""
        with Meter(self.usage, request_id) as meter:
            events = self._stream(meter, validate(request, self._limits))
            first = await anext(events)
        return StreamHandle(meter.request_id, meter.attempt, first, events)

    async def route(self, request: SamplingRequest) -> RouteDecision:
        """The targets that `run` and `start` would try, in their order, with the reasons."""
        return await self._router.explain(validate(request, self._limits))

    async def count(self, request: SamplingRequest) -> TokenCount:
        """The tokens that the best target would read, without an answer."""
        # Nothing is answered, and so nothing is counted among the answers.
        with Meter(UsageCounters()) as meter:
            request = validate(request, self._limits)
            return await meter.within(request.timeout, lambda: self._count(request))

    async def embed(self, target: Target, request: EmbeddingRequest) -> EmbeddingResult:
        """A vector for each text."""
        with Meter(self.usage) as meter:
            request = validate_embedding(request)
            attempt, answer = await meter.within(
                request.timeout, lambda: self._pool.embed(target, request)
            )
        metadata = Metadata(
            provider=target.provider,
            model=answer.model or target.model,
            request_id=meter.request_id,
            latency_ms=meter.elapsed_ms(),
            usage=answer.usage,
            api_calls=attempt.number - 1 + answer.api_calls,
            attempts=attempt.number,
            dropped_options=attempt.dropped_options,
            embedding_count=len(answer.vectors),
            embedding_dims=len(answer.vectors[0]),
        )
        self.usage.answered(target, metadata)
        return EmbeddingResult(answer.vectors, metadata.model, metadata)

    async def transcribe(
        self, ranked: Sequence[Target], request: TranscriptionRequest
    ) -> TranscriptionResult:
        """The words of a recording."""
        with Meter(self.usage) as meter:
            request = validate_transcription(request, self._limits)
            attempt, answer = await meter.within(
                request.timeout, lambda: self._pool.transcribe(ranked, request)
            )
        metadata = meter.metadata(attempt, answer)
        self.usage.answered(attempt.target, metadata)
        return TranscriptionResult(
            answer.text,
            metadata.model,
            metadata,
            answer.language,
            answer.duration_s,
            answer.segments,
        )

    async def _answer(self, request: SamplingRequest) -> tuple[Attempt, Reply]:
        ranked = await self._router.rank(request)
        return await self._pool.generate(ranked, request)

    async def _count(self, request: SamplingRequest) -> TokenCount:
        target = (await self._router.rank(request))[0]
        try:
            counted = await self._pool.count_tokens(target, request)
        except (ModelNotFound, ProviderUnavailable):
            # A server that does not count, or cannot just now, is no reason to know nothing.
            counted = None
        tokens = estimate_request(request, target.model) if counted is None else counted
        return TokenCount(tokens, counted is None, target.provider, target.model)

    async def _stream(self, meter: Meter, request: SamplingRequest) -> EventBatches:
        limit = request.timeout
        started = False
        final: Sequence[StreamEvent] = ()
        try:
            async with AsyncExitStack() as stack:
                ranked = await meter.within(limit, lambda: self._router.rank(request))
                opening = self._pool.open(ranked, request)
                opened = await meter.within(limit, lambda: stack.enter_async_context(opening))
                meter.attempt = opened.attempt
                while not final:
                    batch = await meter.within(limit, lambda: anext(opened.batches, None))
                    meter.first_token()
                    if batch is None:
                        raise StreamInterrupted("the stream ended without its terminal event")
                    if batch and isinstance(last := batch[-1], Finished):
                        deltas = cast(Sequence[Delta], batch[:-1])
                        final = [*deltas, Complete(meter.result(opened.attempt, last.reply))]
                    elif batch:
                        started = True
                        yield cast(Sequence[Delta], batch)
        except PenstockError as error:
            # Before the first event the caller gets an exception, later an event: never both.
            if not started:
                raise
            meter.failed(error, meter.attempt.target)
            final = [Error(error)]
        except (asyncio.CancelledError, GeneratorExit) as gone:
            if started:
                meter.failed(gone, meter.attempt.target)
            raise
        # Only here, when the upstream call has been given back, does the caller hear of the end.
        yield final
