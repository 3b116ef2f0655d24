"""Down the ranked list until one target answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from penstock.contract.errors import (
    AllTargetsFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    PenstockError,
    StreamInterrupted,
    UnsupportedOption,
)
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest, Transcript, TranscriptionRequest
from penstock.contract.options import Capabilities
from penstock.contract.ports import Attempt, Provider, ProviderStream, Target
from penstock.pool.admit import admit, admit_transcription

R = TypeVar("R", SamplingRequest, TranscriptionRequest)
T = TypeVar("T")


def may_fail_over(error: PenstockError) -> bool:
    """Whether another target could do better: not with a bad request, nor around a filter."""
    if isinstance(error, ContextLengthExceeded | UnsupportedOption):
        return True
    return not isinstance(error, InvalidRequest | ContentRejected)


class FailoverPool:
    """Tries targets in their order; the first one that answers, or starts to, wins."""

    def __init__(self, provider: Callable[[str], Provider]) -> None:
        """`provider(name)` gives a configured provider, made when first asked for."""
        self._provider = provider

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

    async def transcribe(
        self, ranked: Sequence[Target], request: TranscriptionRequest
    ) -> tuple[Attempt, Transcript]:
        """The first good transcript; raises as `generate` does."""
        return await self._first(ranked, request, admit_transcription, _transcribed)

    @contextlib.asynccontextmanager
    async def open(
        self, ranked: Sequence[Target], request: SamplingRequest
    ) -> AsyncGenerator[tuple[Attempt, ProviderStream], None]:
        """The first stream that brings an event; leaving the context stops the upstream call."""
        attempt, (first, rest) = await self._first(ranked, request, admit, _start)
        # Both are closed here: a generator that was never read would not close what it wraps.
        async with contextlib.aclosing(rest), contextlib.aclosing(_resume(first, rest)) as stream:
            try:
                yield attempt, stream
            except PenstockError as error:
                error.located(provider=attempt.target.provider, model=attempt.target.model)
                raise

    async def _first(
        self,
        ranked: Sequence[Target],
        request: R,
        fit: Callable[[R, Capabilities, Target], tuple[R, tuple[str, ...]]],
        call: Callable[[Provider, str, R], Awaitable[T]],
    ) -> tuple[Attempt, T]:
        failures: list[PenstockError] = []
        for number, target in enumerate(ranked, 1):
            try:
                provider = self._provider(target.provider)
                able = provider.capabilities(target.model)
                admitted, dropped = fit(request, able, target)
                answer = await call(provider, target.model, admitted)
            except PenstockError as error:
                failures.append(error.located(provider=target.provider, model=target.model))
                if not may_fail_over(error):
                    raise
                continue
            return Attempt(target, number, dropped), answer
        if len(failures) == 1:
            raise failures[0]
        said = "; ".join(
            f"{target}: {error}" for target, error in zip(ranked, failures, strict=True)
        )
        raise AllTargetsFailed(
            f"all {len(failures)} targets failed: {said}", attempts=failures
        ) from failures[-1]


def _whole(provider: Provider, model: str, request: SamplingRequest) -> Awaitable[Reply]:
    return provider.generate(model, request)


async def _transcribed(provider: Provider, model: str, request: TranscriptionRequest) -> Transcript:
    return await provider.transcribe(model, request)


async def _start(
    provider: Provider, model: str, request: SamplingRequest
) -> tuple[Sequence[ProviderEvent], ProviderStream]:
    stream = provider.stream(model, request)
    async for events in stream:
        if events:
            return events, stream
    raise StreamInterrupted("the stream ended before it began")


async def _resume(first: Sequence[ProviderEvent], rest: ProviderStream) -> ProviderStream:
    yield first
    async for events in rest:
        yield events
