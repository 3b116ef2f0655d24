"""Whose thinking is whose: what one provider has signed is sent to no other.

A signature (or an encrypted thought) is opaque, and only who made it can read it; anybody else
answers it with a 400. So every signed part of an answer says where it comes from, and a part that
comes from elsewhere is left out of a request: its text too, for nobody else has said it. A part
without an origin was made by the caller, and goes out as it is.

The origin is the dialect and the provider, because an account's encrypted thoughts are not
another's. Where a family of models reads its thoughts on every account, its catalogue gives the
family a name by the option `origin`. State that other parts carry in `_meta` needs no more than its
key there, which names the dialect that alone reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.events import ProviderEvent, ReasoningDelta
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Content, Message, Reasoning
from penstock.providers.profiles import ModelProfile


def origin_of(dialect: str, provider: str, profile: ModelProfile) -> str:
    """Where the answers of this model come from."""
    return profile.options.get("origin") or f"{dialect}/{provider}"


def stamped(reply: Reply, origin: str) -> Reply:
    """The reply with its origin on every signed part."""
    if not any(_is_signed(part) for part in reply.content):
        return reply
    content = tuple(
        msgspec.structs.replace(part, origin=origin) if _is_signed(part) else part
        for part in reply.content
    )
    return msgspec.structs.replace(reply, content=content)


def stamped_events(events: Sequence[ProviderEvent], origin: str) -> Sequence[ProviderEvent]:
    """The events with the origin on every signed part that they tell of."""
    # In most batches there is nothing but text.
    if ReasoningDelta not in map(type, events):
        return events
    return [
        ReasoningDelta(event.text, msgspec.structs.replace(event.signed, origin=origin))
        if isinstance(event, ReasoningDelta) and event.signed is not None
        else event
        for event in events
    ]


def legible(request: SamplingRequest, origin: str) -> SamplingRequest:
    """The request without what comes from elsewhere; a turn of nothing else is left out whole."""
    messages = request.messages
    if not any(_has_foreign(message, origin) for message in messages):
        return request
    kept = (_without_foreign(message, origin) for message in messages)
    return msgspec.structs.replace(
        request, messages=tuple(message for message in kept if message is not None)
    )


def _is_signed(part: Content) -> bool:
    return isinstance(part, Reasoning) and part.signature is not None


def _is_foreign(part: Content, origin: str) -> bool:
    return isinstance(part, Reasoning) and part.origin is not None and part.origin != origin


def _has_foreign(message: Message, origin: str) -> bool:
    if message.role != "assistant":
        return False
    return any(_is_foreign(part, origin) for part in message.content)


def _without_foreign(message: Message, origin: str) -> Message | None:
    if not _has_foreign(message, origin):
        return message
    content = tuple(part for part in message.content if not _is_foreign(part, origin))
    return msgspec.structs.replace(message, content=content) if content else None
