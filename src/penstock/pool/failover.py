"""Down the ranked list until one target answers, with patience where it may help."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

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
from penstock.contract.ports import Attempt, OpenStream, Provider, Target
from penstock.pool.admit import admit, admit_transcription
from penstock.pool.backoff import RetryBudget
from penstock.pool.continuation import Continuation, MidStream
from penstock.pool.run import Fit, RetrySettings, Run
from penstock.pool.states import TargetStates

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)
T = TypeVar("T")


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
        self, ranked: Sequence[Target], request: SamplingRequest
    ) -> tuple[Attempt, Reply]:
        """The first good answer; raises AllTargetsFailed, or the error when there is but one."""
        return await self._first(ranked, request, admit, _whole)

    async def count_tokens(self, target: Target, request: SamplingRequest) -> int | None:
        """The provider's own count for the one target; models count differently, so no other's."""
        provider = self._provider(target.provider)
        able = provider.capabilities(target.model)
        if able.max_output is not None and request.max_tokens > able.max_output:
            # Nothing is answered, so nobody is told that the answer could not be so long.
            request = msgspec.structs.replace(request, max_tokens=able.max_output)
        admitted, _ = admit(request, able, target)
        return await provider.count_tokens(target.model, admitted)

    async def embed(self, target: Target, request: EmbeddingRequest) -> tuple[Attempt, Vectors]:
        """The vectors of this one target, asked as patiently as any; raises its own error.

        A size of vectors that the model does not have is dropped with `ignore_invalid_options`.
        """
        try:
            return await self._first([target], request, _as_it_is, _embedded)
        except InvalidRequest as error:
            at_fault = any(problem.path == "dimensions" for problem in error.problems)
            if not (at_fault and request.dimensions and request.ignore_invalid_options):
                raise
        request = msgspec.structs.replace(request, dimensions=None)
        attempt, vectors = await self._first([target], request, _as_it_is, _embedded)
        return Attempt(attempt.target, attempt.number, ("dimensions",)), vectors

    async def transcribe(
        self, ranked: Sequence[Target], request: TranscriptionRequest
    ) -> tuple[Attempt, Transcript]:
        """The first good transcript; raises as `generate` does."""
        return await self._first(ranked, request, admit_transcription, _transcribed)

    @contextlib.asynccontextmanager
    async def open(
        self, ranked: Sequence[Target], request: SamplingRequest
    ) -> AsyncGenerator[OpenStream, None]:
        """The first stream that brings an event; leaving the context stops the upstream call.

        A stream that breaks later is gone on with by the next target, where that can be done.
        """
        run = self._run(ranked, request, admit)
        stream = Continuation(run, request, self._mid_stream)
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
        call: Callable[[Provider, str, R], Awaitable[T]],
    ) -> tuple[Attempt, T]:
        run = self._run(ranked, request, fit)
        async with contextlib.aclosing(run.tickets()) as tickets:
            async for ticket in tickets:
                state = ticket.state
                try:
                    async with state.place(run.caller):
                        target = ticket.attempt.target
                        answer = await call(ticket.provider, target.model, ticket.request)
                except PenstockError as error:
                    run.failed(ticket, error)
                except BaseException:
                    # The caller has gone, which says nothing about the target.
                    ticket.permit.ignore()
                    raise
                else:
                    state.succeeded(ticket.permit)
                    return ticket.attempt, answer
        raise run.exhausted()

    def _run(self, ranked: Sequence[Target], request: R, fit: Fit[R]) -> Run[R]:
        return Run(
            ranked,
            request,
            fit,
            provider=self._provider,
            states=self.states,
            budget=self._budget,
            settings=self._settings,
        )


def _whole(provider: Provider, model: str, request: SamplingRequest) -> Awaitable[Reply]:
    return provider.generate(model, request)


def _as_it_is(
    request: EmbeddingRequest, _able: Capabilities, _target: Target
) -> tuple[EmbeddingRequest, tuple[str, ...]]:
    return request, ()


def _embedded(provider: Provider, model: str, request: EmbeddingRequest) -> Awaitable[Vectors]:
    return provider.embed(model, request)


def _transcribed(
    provider: Provider, model: str, request: TranscriptionRequest
) -> Awaitable[Transcript]:
    return provider.transcribe(model, request)
