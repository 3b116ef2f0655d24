"""Whole answers, fetched in a way in which a silent target is noticed soon.

A whole answer has its headers when all of it is made, so a slow answer and a silent target look the
same for minutes. While another target is left, a long answer is therefore fetched as a stream,
whose first token shows that the target is at work. So is one whose stop sequences are enforced
here, because a stream can be left where it ends.
"""

from __future__ import annotations

import contextlib

from penstock.contract.errors import (
    AuthenticationFailed,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.pool.attempt import Asking
from penstock.pool.plan import Run, Ticket
from penstock.pool.stop_cut import StopCut, cut_reply, mark_cut

_SHAPING = frozenset(
    (
        *("top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "logit_bias"),
        *("repetition_penalty", "verbosity", "thinking", "user", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention"),
    )
)
"""Fields of callers that shape the words of an answer and add nothing beside them."""


async def fetch(
    run: Run[SamplingRequest], ticket: Ticket[SamplingRequest], asking: Asking[SamplingRequest]
) -> Reply:
    """The whole answer of this target."""
    limit_s = run.silence_s(ticket)
    if not ticket.stops:
        if limit_s is None:
            return await _at_once(ticket, asking, None)
        if run.is_short(ticket, limit_s):
            return await _at_once(ticket, asking, limit_s)
    if not _may_stream(ticket):
        return await _at_once(ticket, asking, None)
    try:
        return await _assembled(ticket, asking, limit_s)
    except PenstockError as error:
        if ticket.state.streams or not _may_refuse_streams(error) or ticket.characters:
            raise
    reply = await _at_once(ticket, asking, None)
    ticket.state.streams = False
    return reply


def _may_stream(ticket: Ticket[SamplingRequest]) -> bool:
    """Whether the target streams, and the stream holds all that the answer would hold."""
    extra = ticket.request.extra
    if extra is not None and not (extra.optional | _SHAPING).issuperset(extra.fields):
        # The answer to other fields may be only in the body of a whole answer.
        return False
    return ticket.able.streaming and ticket.state.streams is not False


async def _at_once(
    ticket: Ticket[SamplingRequest], asking: Asking[SamplingRequest], limit_s: float | None
) -> Reply:
    async with asking.limited(limit_s):
        with asking.calling(), asking.telling():
            reply = await ticket.provider.generate(ticket.attempt.target.model, ticket.request)
    return cut_reply(reply, ticket.stops)


async def _assembled(
    ticket: Ticket[SamplingRequest], asking: Asking[SamplingRequest], limit_s: float | None
) -> Reply:
    cut = StopCut(ticket.stops) if ticket.stops else None
    stream = ticket.provider.stream(ticket.attempt.target.model, ticket.request)
    async with contextlib.aclosing(stream) as batches:
        batch = await asking.first_of(batches, limit_s)
        while batch is not None:
            if cut is not None:
                cut.cut(batch)
            for event in batch:
                if isinstance(event, Finished):
                    ticket.state.streams = True
                    return event.reply if cut is None or not cut.is_hit else cut.reply(ticket)
                _note(ticket, event)
            if cut is not None and cut.is_hit:
                mark_cut(ticket, cut)
                return cut.reply(ticket)
            if ticket.characters > ticket.most_characters:
                raise too_long(ticket)
            batch = await anext(batches, None)
    raise StreamInterrupted("the stream ended without its terminal event")


def _note(ticket: Ticket[SamplingRequest], event: ProviderEvent) -> None:
    """Keep what was delivered, for the bill of an answer that breaks off."""
    if isinstance(event, Chunk):
        ticket.text.append(event.text)
        ticket.characters += len(event.text)
    elif isinstance(event, ReasoningDelta):
        ticket.hidden.append(event.text)
        ticket.characters += len(event.text)
    elif isinstance(event, ToolUseDelta):
        ticket.hidden.append(event.arguments)
        ticket.characters += len(event.arguments)


def _may_refuse_streams(error: PenstockError) -> bool:
    """Whether the error may be about the stream, so that a whole answer may still be given."""
    if isinstance(error, ContextLengthExceeded):
        return False
    refusals = (InvalidRequest, AuthenticationFailed, ModelNotFound, MalformedResponse)
    return isinstance(error, refusals)


def too_long(ticket: Ticket[SamplingRequest]) -> MalformedResponse:
    """The error for an answer that is longer than its token limit can explain."""
    ticket.too_long = True
    return MalformedResponse(
        f"the answer has more than {ticket.most_characters} characters, and its limit is "
        f"{ticket.request.max_tokens} tokens: the stream was cut",
        retryable=False,
    )
