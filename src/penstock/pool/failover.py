"""Down the ranked list until one target answers, with patience where it may help."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.contract.adaptation import Adaptation
from penstock.contract.errors import InvalidRequest, PenstockError
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.options import Capabilities
from penstock.contract.ports import Attempt, OpenStream, Provider, Target, Trail
from penstock.pool.attempt import Asking
from penstock.pool.backoff import RetryBudget
from penstock.pool.continuation.stream import Continuation, MidStream
from penstock.pool.fit import Fitted, admit, admit_transcription
from penstock.pool.hedging import race
from penstock.pool.plan import Fit, RetrySettings, Run, Ticket
from penstock.pool.targets.states import TargetStates
from penstock.pool.usage_check import is_possible_count
from penstock.pool.whole_answers import fetch
from penstock.telemetry.record_builder import unheard
from penstock.tokens.size import measured

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)
A = TypeVar("A", Reply, Transcript, Vectors)


class FailoverPool:
    """Tries targets in their order; the first one that answers, or starts to, wins."""

    def __init__(
        self,
        provider: Callable[[str], Provider],
        *,
        states: TargetStates | None = None,
        settings: RetrySettings | None = None,
        mid_stream: MidStream = "continue",
    ) -> None:
        """`provider(name)` gives a configured provider, made when first asked for."""
        self._provider = provider
        self.states = states or TargetStates()
        self._settings = settings or RetrySettings()
        self._mid_stream: MidStream = mid_stream
        self._budget = RetryBudget()

    async def generate(
        self, ranked: Sequence[Target], request: SamplingRequest, trail: Trail | None = None
    ) -> tuple[Attempt, Reply]:
        """The first good answer; raises AllTargetsFailed, or the error when there is but one."""
        heard = trail or unheard()
        run = self._run(ranked, request, admit, heard)

        async def ask(ticket: Ticket[SamplingRequest]) -> Reply:
            async with Asking(ticket, run.caller, heard) as asking:
                reply = await fetch(run, ticket, asking)
                asking.answered(reply)
            # What an answer that was left at a stop sequence took is known when it has ended.
            return (
                reply
                if ticket.billed is None
                else msgspec.structs.replace(reply, usage=ticket.billed)
            )

        return await self._tried(run, ask)

    async def count_tokens(self, target: Target, request: SamplingRequest) -> int | None:
        """The provider's own count for the one target; models count differently, so no other's.

        None as well for a count that is impossible.
        """
        provider = self._provider(target.provider)
        able = provider.capabilities(target.model)
        if able.max_output is not None and request.max_tokens > able.max_output:
            # Nothing is answered, so nobody is told that the answer could not be so long.
            request = msgspec.structs.replace(request, max_tokens=able.max_output)
        admitted = admit(request, able, target).request
        count = await provider.count_tokens(target.model, admitted)
        possible = await measured(
            admitted, lambda: is_possible_count(count, admitted, target.model)
        )
        return count if possible else None

    async def embed(
        self, target: Target, request: EmbeddingRequest, trail: Trail | None = None
    ) -> tuple[Attempt, Vectors]:
        """The vectors of this one target, asked as patiently as any; raises its own error.

        A size of vectors that the model does not have is dropped with `ignore_invalid_options`.
        """
        try:
            return await self._first([target], request, _as_it_is, _embedded, trail)
        except InvalidRequest as error:
            at_fault = any(problem.path == "dimensions" for problem in error.problems)
            if not (at_fault and request.dimensions and request.ignore_invalid_options):
                raise
        request = msgspec.structs.replace(request, dimensions=None)
        attempt, vectors = await self._first([target], request, _as_it_is, _embedded, trail)
        adapted = (Adaptation("dimensions", "adapted"),)
        return Attempt(attempt.target, attempt.number, adapted), vectors

    async def transcribe(
        self, ranked: Sequence[Target], request: TranscriptionRequest, trail: Trail | None = None
    ) -> tuple[Attempt, Transcript]:
        """The first good transcript; raises as `generate` does."""
        return await self._first(ranked, request, admit_transcription, _transcribed, trail)

    @contextlib.asynccontextmanager
    async def open(
        self, ranked: Sequence[Target], request: SamplingRequest, trail: Trail | None = None
    ) -> AsyncGenerator[OpenStream, None]:
        """The first stream that brings an event; leaving the context stops the upstream call.

        A stream that breaks later is gone on with by the next target, where that can be done.
        """
        heard = trail or unheard()
        run = self._run(ranked, request, admit, heard)
        stream = Continuation(run, heard, self._mid_stream)
        async with contextlib.aclosing(stream.events()) as batches:
            opened = await stream.opened(batches)
            async with contextlib.aclosing(opened.batches):
                try:
                    yield opened
                except PenstockError as error:
                    target = opened.attempt.target
                    error.located(provider=target.provider, model=target.model)
                    raise

    async def _first(
        self,
        ranked: Sequence[Target],
        request: R,
        fit: Fit[R],
        call: Callable[[Provider, str, R], Awaitable[A]],
        trail: Trail | None,
    ) -> tuple[Attempt, A]:
        heard = trail or unheard()
        run = self._run(ranked, request, fit, heard)

        async def ask(ticket: Ticket[R]) -> A:
            async with Asking(ticket, run.caller, heard) as asking:
                async with asking.limited(run.transcript_s(ticket)):
                    with asking.calling(), asking.telling():
                        answer = await call(
                            ticket.provider, ticket.attempt.target.model, ticket.request
                        )
                asking.answered(answer)
            return answer

        return await self._tried(run, ask)

    async def _tried(
        self, run: Run[R], ask: Callable[[Ticket[R]], Coroutine[Any, Any, A]]
    ) -> tuple[Attempt, A]:
        """The first good answer of the targets of this run."""
        while (ticket := await run.next()) is not None:
            late_s = run.late_after(ticket.state.answers)
            try:
                if late_s is None:
                    winner, answer = ticket, await ask(ticket)
                else:
                    winner, answer = await race(run, ticket, late_s, ask, _forget)
            except PenstockError as error:
                run.failed(ticket, error)
                continue
            if run.may_replace(answer):
                return await _replaced(run, ask, (winner.attempt, answer))
            return winner.attempt, answer
        raise run.exhausted()

    def _run(self, ranked: Sequence[Target], request: R, fit: Fit[R], trail: Trail) -> Run[R]:
        return Run(
            ranked,
            request,
            fit,
            provider=self._provider,
            states=self.states,
            budget=self._budget,
            settings=self._settings,
            trail=trail,
        )


async def _replaced(
    run: Run[R], ask: Callable[[Ticket[R]], Awaitable[A]], empty: tuple[Attempt, A]
) -> tuple[Attempt, A]:
    """The answer of the next target, whatever it is, or the empty one if there is none."""
    ticket: Ticket[R] | None = None
    try:
        ticket = await run.next()
        return empty if ticket is None else (ticket.attempt, await ask(ticket))
    except PenstockError as error:
        if ticket is not None:
            run.noted(ticket, error)
        return empty


def _as_it_is(
    request: EmbeddingRequest, _able: Capabilities, _target: Target
) -> Fitted[EmbeddingRequest]:
    return Fitted(request)


def _embedded(provider: Provider, model: str, request: EmbeddingRequest) -> Awaitable[Vectors]:
    return provider.embed(model, request)


def _transcribed(
    provider: Provider, model: str, request: TranscriptionRequest
) -> Awaitable[Transcript]:
    return provider.transcribe(model, request)


async def _forget(_answer: object) -> None:
    """Of an answer that came too late nothing is left to be given back."""
