"""One ticket in use: a place at its target, the permit of its breaker, and the record of it all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType
from typing import Any, Generic, TypeVar

from penstock.contract.calls import Calls, Telling
from penstock.contract.errors import PenstockError, ProviderTimeout, RateLimited
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.metadata import Usage
from penstock.contract.ports import ProviderStream, Trail
from penstock.pool.attempt_usage import bills, counted, estimated, untold
from penstock.pool.plan import Ticket
from penstock.pool.targets.latency import Waits
from penstock.tokens.size import is_long

T = TypeVar("T")
R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)


class Asking(Generic[R]):
    """From the wait for a place to the end of the answer; everything is given back once.

    An error that leaves the block is left to `Run.failed` to judge; a caller who goes away says
    nothing about the target.
    """

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_answer", "_began", "_caller", "_calls", "_ticket", "_trail", "_try")

    def __init__(self, ticket: Ticket[R], caller: str, trail: Trail) -> None:
        """`caller` is who waits in line, if no key says it; callers take turns."""
        self._ticket = ticket
        self._caller = trail.key or caller
        self._trail = trail
        self._calls = Calls()
        self._answer: Reply | Transcript | Vectors | None = None

    async def __aenter__(self) -> Asking[R]:
        """Wait in line."""
        self._began = time.perf_counter()
        try:
            await self._ticket.state.slots.acquire(self._caller)
        except BaseException:
            self._ticket.permit.ignore()
            raise
        self._try = self._trail.begin(self._ticket.attempt)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Make room; after a 429, for fewer than before."""
        ticket, state = self._ticket, self._ticket.state
        if ticket.is_cut and isinstance(error, GeneratorExit):
            # The stream was closed because the answer is whole.
            error = None
        if isinstance(error, RateLimited):
            # While the place is still held, for it counts among the too many.
            state.slots.throttled(error.retry_after)
        state.slots.release(well=error is None)
        if error is None:
            state.succeeded(ticket.permit, ticket.pauses)
        elif not isinstance(error, PenstockError):
            ticket.permit.ignore()
        bills = await self._bills(error)
        if ticket.is_cut and bills:
            ticket.billed = sum(bills[1:], bills[0])
        self._try.end(error, bills)

    def calling(self) -> AbstractContextManager[None]:
        """The block in which the provider is called; for a stream, until its first event."""
        return self._try.calling()

    def telling(self) -> Telling:
        """The block in which the provider finds where to tell of its calls; beside `calling`."""
        return Telling(self._calls)

    def limited(self, limit_s: float | None) -> Silence:
        """The block in which the target is silent; raises ProviderTimeout after `limit_s`.

        A sign of life begins the time again.
        """
        sampling = isinstance(self._ticket.request, SamplingRequest)
        silence = Silence(limit_s, self._ticket.first_tokens if sampling else None)
        self._calls.on_alive = silence.interrupted
        return silence

    def answered(self, answer: Reply | Transcript | Vectors) -> None:
        """The whole answer is there."""
        self.counted(answer)
        self._ticket.state.answers.add(time.perf_counter() - self._began)

    def counted(self, answer: Reply | Transcript | Vectors) -> None:
        """Take over what the provider counts, for an adapter that has told of no calls."""
        self._answer = answer

    def first_token(self) -> None:
        """The first event is there."""
        self._ticket.permit.alive()
        self._try.first_token()
        self._ticket.first_tokens.add(time.perf_counter() - self._began)

    async def first_of(
        self, batches: ProviderStream, limit_s: float | None
    ) -> Sequence[ProviderEvent] | None:
        """The first batch of a stream; raises ProviderTimeout after `limit_s` without one."""
        async with self.limited(limit_s):
            with self.calling(), self.telling():
                while (first := await anext(batches, None)) is not None and not first:
                    pass
        self._calls.on_alive = None
        if first:
            self.first_token()
        return first

    async def _bills(self, error: BaseException | None) -> list[Usage]:
        if self._counts_long():
            found = await _uncancelled(asyncio.to_thread(self._usages, error))
        else:
            found = self._usages(error)
        if any(usage.implausible for usage in found):
            self._ticket.state.miscounted([call.answer for call in self._calls.begun])
        return found

    def _counts_long(self) -> bool:
        """Whether there is so much to count that the event loop has to be spared."""
        begun = self._calls.begun
        requests = [call.request for call in begun] or [self._ticket.request]
        answers = [call.answer for call in begun] or [self._answer]
        texts = (each.text for each in answers if isinstance(each, Transcript))
        parts = (part for each in answers if isinstance(each, Reply) for part in each.content)
        return is_long(*requests, texts=chain(self._ticket.delivered, texts), parts=parts)

    def _usages(self, error: BaseException | None) -> list[Usage]:
        ticket, model = self._ticket, self._ticket.attempt.target.model
        if self._calls.begun:
            return bills(self._calls.begun, ticket.delivered, model)
        if self._answer is not None:
            return [counted(self._answer, ticket.request, model)]
        if ticket.is_cut:
            return [estimated(ticket.request, "".join(ticket.delivered), model)]
        return untold(ticket.request, ticket.delivered, model, error)


async def _uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work; a cancellation meanwhile arrives after it."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (current := asyncio.current_task()) is not None:
        # The same number of cancellations as before, for a timeout counts them.
        current.uncancel()
        current.cancel()
    return task.result()


class Silence:
    """The block in which a target is silent; raises ProviderTimeout when that lasts too long."""

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_limit_s", "_timeout", "_usual")

    def __init__(self, limit_s: float | None, usual: Waits | None) -> None:
        """None: for as long as the provider's own limits allow; `usual` is what it took before."""
        self._limit_s = limit_s
        self._timeout = None if limit_s is None else asyncio.timeout(limit_s)
        self._usual = usual

    def interrupted(self) -> None:
        """Begin the time again; the transport limits how long a target may only send such signs."""
        if self._timeout is not None and self._limit_s is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    async def __aenter__(self) -> None:
        """The time begins."""
        if self._timeout is not None:
            await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It has said something, or failed, or the time is over."""
        if self._timeout is None or self._limit_s is None:
            return
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            # What is usual must follow a target that has become slower.
            if self._usual is not None:
                self._usual.add(2 * self._limit_s)
            raise ProviderTimeout(f"no token came within {self._limit_s:g} s") from None
