"""What a request may cost at most, before it is made: what a budget must be able to hold.

Tokens of the prompt are estimated upward and charged at the dearest kind of input, as if nothing
were found in a cache and all of it were written into one; the answer is as long as it may be. So
the cost that is settled later is never more, as long as the provider reads no more tokens than the
estimate and writes no more than it was allowed. Three things are out of its sight: what an MCP
server answers that the provider itself asks, prices for what providers do unasked, and thinking
that `max_tokens` does not limit, for which there is an allowance.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from penstock.budget.pricing.price_book import PriceBook
from penstock.contract.exchange import AnyRequest, EmbeddingRequest, SamplingRequest
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.tokens import (
    Contents,
    family_of,
    measure_request,
    thinking_apart,
    upper_sound,
    upper_text,
    upper_tokens,
)
from penstock.tokens.estimate import MESSAGE_TOKENS
from penstock.tokens.media import longest

_INSTRUCTIONS = 200
"""What asks a model that hears for a transcript, where there is no call of its own for it."""
_WORDS_A_SECOND = 10
"""Tokens of a transcript for each second: nobody speaks as fast."""
_LEAST_ANSWER = 8192
"""What a transcript may have in any case, where the model's own limit is not known."""


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """The most that a call reads and writes."""

    read: int
    written: int
    sound: bool = False
    """Whether sound is among what it reads."""
    seconds: int = 0


def worst_case(
    request: AnyRequest,
    target: Target,
    able: Capabilities,
    book: PriceBook,
    *,
    at: datetime | None = None,
) -> int | None:
    """The most that one call of this target costs, in nano-dollars; None without a price.

    `at` is when the call is made; settle with the same time, for prices may change in between.
    """
    return worst_cases(request, ((target, able),), book, at=at)[0]


def worst_cases(
    request: AnyRequest,
    targets: Iterable[tuple[Target, Capabilities]],
    book: PriceBook,
    *,
    at: datetime | None = None,
    rough: bool = False,
) -> list[int | None]:
    """The same for each of several targets; the request is measured once.

    `rough` is for who has money enough: it costs less time, and may be several times too much.
    """
    contents: Contents | None = None
    found: list[int | None] = []
    for target, able in targets:
        tariff = book.tariff(target, at)
        if tariff is None or tariff.free:
            found.append(None if tariff is None else 0)
            continue
        if contents is None and isinstance(request, SamplingRequest):
            contents = measure_request(request, rough=rough)
        most = bounds(request, target.model, able, contents)
        found.append(tariff.most(most.read, most.written, sound=most.sound, seconds=most.seconds))
    return found


def bounds(
    request: AnyRequest, model: str, able: Capabilities, contents: Contents | None = None
) -> Bounds:
    """The most that `model` reads and writes for this request."""
    if isinstance(request, SamplingRequest):
        found = contents or measure_request(request)
        return Bounds(
            upper_tokens(request, model, found),
            min(request.max_tokens, able.max_output or request.max_tokens) + thinking_apart(model),
            bool(found.seconds),
            found.seconds,
        )
    family = family_of(model)
    if isinstance(request, EmbeddingRequest):
        return Bounds(sum(upper_text(text, family) + MESSAGE_TOKENS for text in request.texts), 0)
    seconds = longest(request.audio)
    hints = upper_text(request.prompt or "", family) + _INSTRUCTIONS
    words = max(_LEAST_ANSWER, seconds * _WORDS_A_SECOND)
    return Bounds(
        upper_sound(request.audio, family) + hints, able.max_output or words, True, seconds
    )
