"""One ticket in use: a place at its target, the permit of its breaker, and the record of it all."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from penstock.contract.errors import PenstockError, RateLimited
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Trail
from penstock.pool.run import Ticket
from penstock.tokens import estimate_request, estimate_text, family_of

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)


class Asking(Generic[R]):
    """From the wait for a place to the end of the answer; everything is given back once.

    An error that leaves the block is left to `Run.failed` to judge; a caller who goes away says
    nothing about the target.
    """

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_began", "_caller", "_ticket", "_trail", "_try", "usage")

    def __init__(self, ticket: Ticket[R], caller: str, trail: Trail) -> None:
        """`caller` is who waits in line; callers take turns."""
        self._ticket = ticket
        self._caller = caller
        self._trail = trail
        self.usage: Usage | None = None

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
        if isinstance(error, RateLimited):
            # While the place is still held, for it counts among the too many.
            state.slots.throttled(error.retry_after)
        state.slots.release(well=error is None)
        if error is None:
            state.succeeded(ticket.permit)
        elif not isinstance(error, PenstockError):
            ticket.permit.ignore()
        self._try.end(error, self.usage or self._estimated())

    def calling(self) -> AbstractContextManager[None]:
        """The block in which the provider is called; for a stream, until its first event."""
        return self._try.calling()

    def answered(self, usage: Usage) -> None:
        """The whole answer is there; `usage` is as the provider counts it."""
        self.usage = usage
        self._ticket.state.answers.add(time.perf_counter() - self._began)

    def first_token(self) -> None:
        """The first event is there."""
        self._try.first_token()
        self._ticket.state.first_tokens.add(time.perf_counter() - self._began)

    def _estimated(self) -> Usage | None:
        """What a call took that did not end well: nothing, if nothing came of it.

        A call that was outrun by another is billed for its prompt, whether or not it was heard.
        """
        request = self._ticket.request
        said = self._ticket.said
        if not (said or self._ticket.outrun) or not isinstance(request, SamplingRequest):
            return None
        model = self._ticket.attempt.target.model
        return Usage(
            estimate_request(request, model),
            estimate_text("".join(said), family_of(model)),
            estimated=True,
        )
