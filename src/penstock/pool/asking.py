"""One ticket in use: a place at its target, the permit of its breaker, and the record of it all."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import msgspec

from penstock.contract.errors import PenstockError, RateLimited
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.contract.metadata import Usage
from penstock.contract.ports import Trail
from penstock.pool.run import Ticket
from penstock.tokens import estimate_request, estimate_text, family_of, thinking_apart

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)


class Asking(Generic[R]):
    """From the wait for a place to the end of the answer; everything is given back once.

    An error that leaves the block is left to `Run.failed` to judge; a caller who goes away says
    nothing about the target.
    """

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_began", "_caller", "_ticket", "_trail", "_try", "usage")

    def __init__(self, ticket: Ticket[R], caller: str, trail: Trail) -> None:
        """`caller` is who waits in line, if no key says it; callers take turns."""
        self._ticket = ticket
        self._caller = trail.key or caller
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

    def answered(self, answer: Reply | Transcript | Vectors) -> None:
        """The whole answer is there."""
        self.counted(answer)
        self._ticket.state.answers.add(time.perf_counter() - self._began)

    def counted(self, answer: Reply | Transcript | Vectors) -> None:
        """Take over what the provider counts; where it does not count, what it must have been."""
        self.usage = answer.usage
        if answer.usage.total_tokens is None:
            if isinstance(answer, Reply):
                self.usage = self._estimate(_said(answer))
            elif isinstance(answer, Vectors):
                self.usage = self._estimate("")

    def first_token(self) -> None:
        """The first event is there."""
        self._ticket.permit.alive()
        self._try.first_token()
        self._ticket.state.first_tokens.add(time.perf_counter() - self._began)

    def _estimated(self) -> Usage | None:
        """What a call took that did not end well: nothing, if nothing came of it.

        A call that was outrun by another is billed for its prompt, whether or not it was heard.
        """
        said = self._ticket.said
        return self._estimate("".join(said)) if said or self._ticket.outrun else None

    def _estimate(self, said: str) -> Usage | None:
        request, model = self._ticket.request, self._ticket.attempt.target.model
        family = family_of(model)
        if isinstance(request, EmbeddingRequest):
            read = sum(estimate_text(text, family) for text in request.texts)
            return Usage(read, estimated=True)
        if not isinstance(request, SamplingRequest):
            return None
        # No more than it was allowed, which is what was held for it.
        most = request.max_tokens + thinking_apart(model)
        written = min(estimate_text(said, family), most)
        return Usage(estimate_request(request, model), written, estimated=True)


def _said(reply: Reply) -> str:
    """All that the model has written, thoughts and arguments included."""
    written: list[str] = []
    for part in reply.content:
        if isinstance(part, Text | Reasoning):
            written.append(part.text)
        elif isinstance(part, ToolUse):
            written.append(msgspec.json.encode(part.input).decode())
    return "".join(written)
