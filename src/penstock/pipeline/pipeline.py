"""The flow of every request: validate, approve, route, call with failover, tell what happened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import cast

import msgspec

from penstock.contract.approval import Estimate, Reviewer
from penstock.contract.context import ContextProvider
from penstock.contract.errors import (
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Complete, Delta, Error, Finished, StreamEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    EmbeddingResult,
    Result,
    SamplingRequest,
    TokenCount,
    TranscriptionRequest,
    TranscriptionResult,
)
from penstock.contract.ports import Pool, RankedTarget, RouteDecision, Router, Target
from penstock.contract.requests import Caller
from penstock.pipeline.context import ContextStage
from penstock.pipeline.hold import Accounts, NoAccounts
from penstock.pipeline.limits import Limits
from penstock.pipeline.registry import InFlight
from penstock.pipeline.scope import NOBODY, Meter
from penstock.pipeline.validate import validate_embedding, validate_transcription, validated
from penstock.streaming.handle import EventBatches, StreamHandle
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.usage_counters import UsageCounters
from penstock.tokens import estimate_request
from penstock.tokens.size import measured

_log = logging.getLogger(__name__)


class Pipeline:
    """Runs requests; holds no state of any single one."""

    def __init__(
        self,
        router: Router,
        pool: Pool,
        limits: Limits,
        *,
        accounts: Accounts | None = None,
        hooks: Hooks | None = None,
        context: ContextProvider | None = None,
    ) -> None:
        """The stages, introduced to each other by the gateway; `hooks` hear of each request.

        `context` gives what requests with `include_context` have attached; without it they are
        refused.
        """
        self._router = router
        self._pool = pool
        self.limits = limits
        self._accounts = accounts or NoAccounts()
        self.context = ContextStage(context)
        self.hooks = hooks or Hooks()
        self.usage = UsageCounters()
        self.in_flight = InFlight()

    def continue_from(self, before: Pipeline) -> None:
        """Tell and count where another pipeline has told and counted."""
        self.hooks = before.hooks
        self.usage = before.usage

    async def run(
        self, request: SamplingRequest, request_id: str | None = None, caller: Caller = NOBODY
    ) -> Result:
        """The whole answer at once."""
        with self._meter(request, request_id, caller) as meter:
            request = await self._prepared(meter, request, caller)
            limit = request.timeout
            ranked = await meter.within(limit, lambda: self._ranked(meter, request))
            async with meter.paying(request, ranked) as targets:
                attempt, reply = await meter.within(
                    limit, lambda: self._pool.generate(targets, request, meter.trail)
                )
            return meter.result(attempt, reply)

    async def start(
        self, request: SamplingRequest, request_id: str | None = None, caller: Caller = NOBODY
    ) -> StreamHandle:
        """The answer while it is made; returns, or raises, when the first event is there."""
        with self._meter(request, request_id, caller, stream=True) as meter:
            request = await self._prepared(meter, request, caller)
            events = self._stream(meter, request)
            first = await anext(events)
        return StreamHandle(
            meter.request_id, meter.attempt, first, events, failure=lambda: meter.failure
        )

    async def route(self, request: SamplingRequest, caller: Caller = NOBODY) -> RouteDecision:
        """The targets that `run` and `start` would try, in their order, with the reasons.

        Where budgets can be read, each target has what they would decide.
        """
        request = await self._with_context(request, caller)
        decision = await self._router.explain(request, key=caller.key)
        try:
            verdicts = await self._accounts.verdicts(request, decision.targets, caller)
        except PenstockError as error:
            _log.warning("a route is explained without its budgets: %s", error)
            return decision
        ranked = tuple(
            msgspec.structs.replace(each, budgets=found)
            for each, found in zip(decision.ranked, verdicts, strict=True)
        )
        return msgspec.structs.replace(decision, ranked=ranked)

    async def allowed(
        self, request: SamplingRequest, caller: Caller = NOBODY
    ) -> tuple[SamplingRequest, Sequence[RankedTarget]]:
        """The request as it would be made, and the targets that the caller may use, ranked."""
        request = await self._with_context(request, caller)
        decision = await self._router.explain(request, key=caller.key)
        if caller.terms is None:
            return request, decision.ranked
        mine = frozenset(caller.terms.allowed(request, decision.targets))
        return request, [each for each in decision.ranked if each.target in mine]

    async def check_admission(self, request: SamplingRequest, caller: Caller = NOBODY) -> None:
        """Do what `run` does before it calls a provider, and release what was reserved."""
        # No request has ended here, so nothing is counted or reported.
        with Meter(
            request, InFlight(), UsageCounters(), Hooks(), self._accounts, caller=caller
        ) as meter:
            request = await self._with_context(request, caller)
            ranked = await meter.within(request.timeout, lambda: self._router.rank(request))
            async with meter.paying(request, ranked):
                pass

    async def count(self, request: SamplingRequest, caller: Caller = NOBODY) -> TokenCount:
        """The tokens that the best target would read, without an answer."""
        # Nothing is answered, and so nothing is counted among the answers, nor told.
        with Meter(request, InFlight(), UsageCounters(), Hooks(), NoAccounts()) as meter:
            request = await self._with_context(request, caller)
            return await meter.within(request.timeout, lambda: self._count(request, caller))

    async def embed(
        self,
        target: Target,
        request: EmbeddingRequest,
        request_id: str | None = None,
        caller: Caller = NOBODY,
    ) -> EmbeddingResult:
        """A vector for each text."""
        with self._meter(request, request_id, caller) as meter:
            request = validate_embedding(request, self.limits)
            async with meter.paying(request, (target,)):
                attempt, answer = await meter.within(
                    request.timeout, lambda: self._pool.embed(target, request, meter.trail)
                )
            metadata = meter.answered(attempt, answer)
        return EmbeddingResult(answer.vectors, metadata.model, metadata)

    async def transcribe(
        self,
        ranked: Sequence[Target],
        request: TranscriptionRequest,
        request_id: str | None = None,
        caller: Caller = NOBODY,
    ) -> TranscriptionResult:
        """The words of a recording."""
        with self._meter(request, request_id, caller) as meter:
            request = validate_transcription(request, self.limits)
            async with meter.paying(request, ranked) as targets:
                attempt, answer = await meter.within(
                    request.timeout, lambda: self._pool.transcribe(targets, request, meter.trail)
                )
            metadata = meter.answered(attempt, answer)
        return TranscriptionResult(
            answer.text,
            metadata.model,
            metadata,
            answer.language,
            answer.duration_s,
            answer.segments,
        )

    def _ranked(
        self, meter: Meter, request: SamplingRequest, *, streaming: bool = False
    ) -> Awaitable[Sequence[Target]]:
        """The route of a request that is about to be made."""
        trail = meter.trail
        return self._router.rank(
            request,
            request_id=meter.request_id,
            key=trail.key,
            streaming=streaming,
            told=trail.decided,
        )

    def _meter(
        self,
        request: SamplingRequest | EmbeddingRequest | TranscriptionRequest,
        request_id: str | None = None,
        caller: Caller = NOBODY,
        *,
        stream: bool = False,
    ) -> Meter:
        return Meter(
            request,
            self.in_flight,
            self.usage,
            self.hooks,
            self._accounts,
            request_id=request_id,
            caller=caller,
            stream=stream,
        )

    async def _prepared(
        self, meter: Meter, request: SamplingRequest, caller: Caller
    ) -> SamplingRequest:
        """The valid request with its context, as its reviewer has left it."""
        limit = request.timeout
        checked = await self.context.validated(request, self.limits)
        if checked.include_context != "none":
            checked = await meter.within(
                limit, lambda: self.context.attached(checked, caller, self.limits)
            )
        if caller.review is not None:
            checked = await self._reviewed(meter, checked, caller.review)
        return checked

    async def _with_context(self, request: SamplingRequest, caller: Caller) -> SamplingRequest:
        checked = await self.context.validated(request, self.limits)
        return await self.context.attached(checked, caller, self.limits)

    async def _reviewed(
        self, meter: Meter, request: SamplingRequest, review: Reviewer
    ) -> SamplingRequest:
        """The request as its reviewer has left it, which must be valid too."""
        with meter.paused():
            request = await review(request, self._estimate)
        return await validated(request, self.limits)

    async def _estimate(self, request: SamplingRequest) -> Estimate:
        ranked = await self._router.rank(request)
        cost = await self._accounts.estimate(request, ranked)
        tokens = await measured(request, lambda: estimate_request(request, ranked[0].model))
        return Estimate(tokens, cost)

    async def _count(self, request: SamplingRequest, caller: Caller) -> TokenCount:
        # Nothing is answered, so no target's answers are too short for it.
        ranked = await self._router.rank(msgspec.structs.replace(request, max_tokens=1))
        if caller.terms is not None:
            ranked = caller.terms.allowed(request, ranked)
        target = ranked[0]
        try:
            counted = await self._pool.count_tokens(target, request)
        except (ModelNotFound, ProviderUnavailable):
            # A server that does not count, or cannot just now, is no reason to know nothing.
            counted = None
        tokens = counted
        if tokens is None:
            tokens = await measured(request, lambda: estimate_request(request, target.model))
        return TokenCount(tokens, counted is None, target.provider, target.model)

    async def _stream(self, meter: Meter, request: SamplingRequest) -> EventBatches:
        limit = request.timeout
        started = False
        final: Sequence[StreamEvent] = ()
        try:
            async with AsyncExitStack() as stack:
                ranked = await meter.within(
                    limit, lambda: self._ranked(meter, request, streaming=True)
                )
                paying = meter.paying(request, ranked)
                targets = await stack.enter_async_context(paying)
                opening = self._pool.open(targets, request, meter.trail)
                opened = await meter.within(limit, lambda: stack.enter_async_context(opening))
                while not final:
                    batch = await meter.within(limit, lambda: anext(opened.batches, None))
                    meter.first_token()
                    meter.attempt = opened.attempt
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
        except BaseException as gone:
            # A caller who leaves, or a bug of a provider: the request has ended all the same.
            if started:
                meter.failed(gone, meter.attempt.target)
            raise
        # Only here, when the upstream call has been given back, does the caller hear of the end.
        yield final
