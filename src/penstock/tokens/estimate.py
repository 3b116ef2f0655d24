"""The estimate of a whole request: its texts, its tools, its pictures and what wraps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.tokens import media
from penstock.tokens.text import MOST_MEASURED, Count, measure, sampled

MESSAGE_TOKENS = 8
"""What wraps a message, a tool, a call or its result: role, marks and ids."""
_MEDIA_MARGIN = 1.5
"""A maker's models differ more in pictures and sounds than in texts."""
_UPPER = 1.4
"""What makes a reservation an upper bound of every text that `bench/tokens.py` looks at."""
_UPPER_TOOLS = 1.6
_UPPER_IMAGES = 2.5
"""OpenAI's smallest models count a picture up to 2.46 times as much as the others."""
_SHORT = 1024
"""Bytes of text that a worst case is not measured for: no tokenizer makes more tokens of them."""
_SCHEMA_IN_WORDS = 64
"""What asks for a schema in the prompt, where the API has no other way."""

_THINKING_APART: tuple[tuple[str, int], ...] = (
    ("*non-reasoning*", 0),
    ("*grok-[23]", 0),
    ("*grok-2-*", 0),
    ("*grok-3-fast*", 0),
    ("*grok-*", 32_768),
    ("*sonar-deep-research*", 131_072),
    ("*sonar-reasoning*", 32_768),
)
"""Models whose thinking `max_tokens` does not limit, and the most of it that is expected; the first
pattern that fits holds."""


@dataclass(frozen=True, slots=True)
class Family:
    """What the models of one maker have in common; a row of `FAMILIES`."""

    name: str
    models: tuple[str, ...]
    """Parts of lower-case model names."""
    text: float = 1.0
    """Tokens for each of o200k's."""
    image: media.ImageRule = media.patches
    audio_tokens_a_second: int = 10
    tools: int = 0
    """The instructions that the maker adds as soon as there are tools."""


OTHER = Family("other", ())
"""OpenAI's models, and all whose tokenizer is about as thrifty as o200k."""
FAMILIES: tuple[Family, ...] = (
    Family("claude", ("claude",), text=1.3, image=media.pixels, tools=350),
    Family("gpt-4o-mini", ("gpt-4o-mini",), image=media.dear_tiles),
    Family("gemini", ("gemini", "gemma"), image=media.tiles, audio_tokens_a_second=32),
)


class Contents(msgspec.Struct, frozen=True, gc=False):
    """A request as far as its tokens go, whichever model reads it."""

    texts: Count
    """All of them in one."""
    wrapped: int
    """How many parts have marks around them."""
    images: Sequence[Image] = ()
    sounds: Sequence[Audio] = ()


# Each request asks both of every target; callers make names up, so few are remembered.
@lru_cache(maxsize=1024)
def family_of(model: str) -> Family:
    """The row for a model's name, wherever it is served: `eu.anthropic.claude-...` is Claude."""
    name = model.lower()
    return next((row for row in FAMILIES if any(part in name for part in row.models)), OTHER)


@lru_cache(maxsize=1024)
def thinking_apart(model: str) -> int:
    """The most that this model is expected to think beyond `max_tokens`; 0 where that limits it."""
    name = model.lower()
    return next((most for pattern, most in _THINKING_APART if fnmatchcase(name, pattern)), 0)


def estimate_text(text: str, family: Family = OTHER) -> int:
    """The likeliest number of tokens of a text; never more than its bytes in UTF-8."""
    return measure(text).tokens(family.text)


def reserve_text(text: str, family: Family = OTHER) -> int:
    """A number of tokens that the text hardly ever exceeds; never more than its bytes."""
    return measure(text).reserve(family.text)


class Estimates:
    """The likeliest number of tokens that models read for one request.

    Its texts are counted once, and not before a model is asked about.
    """

    def __init__(self, request: SamplingRequest) -> None:
        """Nothing is counted yet."""
        self._request = request
        self._counts: tuple[Count, ...] | None = None
        self._found: dict[str, int] = {}

    def of(self, model: str) -> int:
        """As the tokenizer of this model counts."""
        family = family_of(model)
        found = self._found.get(family.name)
        if found is None:
            if self._counts is None:
                self._counts = tuple(_counts(self._request, sample=True))
            found = self._found[family.name] = (
                sum(count.tokens(family.text) for count in self._counts)
                + _wrapping(self._request, family)
                + _media(self._request, family, media.image_tokens, media.seconds)
            )
        return found


def estimate_request(request: SamplingRequest, model: str) -> int:
    """The likeliest number of tokens that `model` reads for this request."""
    return Estimates(request).of(model)


def estimate_sound(audio: Audio, family: Family = OTHER) -> int:
    """The likeliest number of tokens of a recording."""
    return math.ceil(media.seconds(audio) * family.audio_tokens_a_second)


def reserve_tokens(request: SamplingRequest, model: str) -> int:
    """A number of tokens that `model` hardly ever exceeds in reading this request.

    For budgets: about 1.25 times the estimate for English and code, and more for languages that
    tokenizers know little of. The tokens of the answer are not in it; `max_tokens` limits those.
    """
    family = family_of(model)
    heard = _media(request, family, media.most_image_tokens, media.most_seconds)
    return (
        sum(count.reserve(family.text) for count in _counts(request))
        + _wrapping(request, family)
        + math.ceil(heard * _MEDIA_MARGIN)
    )


def upper_text(text: str, family: Family = OTHER) -> int:
    """More tokens than any text we have met has; never more than its bytes."""
    return measure(text).reserve(family.text * _UPPER)


def upper_sound(audio: Audio, family: Family = OTHER) -> int:
    """The same for a recording, at the lowest bit rate that its format is used with."""
    return math.ceil(media.longest(audio) * family.audio_tokens_a_second * _MEDIA_MARGIN)


def measure_request(request: SamplingRequest, *, rough: bool = False) -> Contents:
    """What `upper_tokens` asks of a request for any model: a short text is taken for its bytes.

    So it takes no time where time counts, and the bound is then certain. `rough` takes every text
    for its bytes, which is about four times too much for English.
    """
    said: list[str] = [request.system_prompt] if request.system_prompt else []
    plain = not request.tools and request.output_schema is None
    for message in request.messages:
        for part in message.content:
            if isinstance(part, Text):
                said.append(part.text)
            else:
                plain = False
    # Most requests are words and nothing else, and every request is measured.
    text = "\n".join(said if plain else chain.from_iterable(_texts(request)))
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    count = Count(size, 0, size) if rough or size <= _SHORT else measure(text)
    if plain:
        return Contents(count, len(request.messages) + bool(request.system_prompt))
    return Contents(count, _wrapped(request), *_media_of(request))


def upper_tokens(request: SamplingRequest, model: str, contents: Contents | None = None) -> int:
    """More tokens than `model` reads for any request that we have met, for worst cases.

    About 1.4 times `reserve_tokens`, and more for short ones. What an MCP server will tell the
    provider that asks it, no estimate knows. `contents` is what `measure_request` found, for who
    asks about one request for many models.
    """
    family = family_of(model)
    found = contents or measure_request(request)
    most = found.texts.reserve(family.text * _UPPER) + found.wrapped * MESSAGE_TOKENS
    if request.tools:
        most += family.tools + math.ceil(family.tools * (_UPPER_TOOLS - 1))
    if request.output_schema is not None:
        most += _SCHEMA_IN_WORDS
    if found.images:
        seen = sum(media.most_image_tokens(image, family.image) for image in found.images)
        most += math.ceil(seen * _UPPER_IMAGES)
    if found.sounds:
        heard = sum(map(media.longest, found.sounds)) * family.audio_tokens_a_second
        most += math.ceil(heard * _MEDIA_MARGIN)
    return most


def _counts(request: SamplingRequest, *, sample: bool = False) -> Iterator[Count]:
    """What each part is made of; with `sample`, about what a very long request is made of."""
    found = list(_texts(request))
    if sample and sum(map(len, chain.from_iterable(found))) > MOST_MEASURED:
        yield sampled([*chain.from_iterable(found)])
        return
    for texts in found:
        first, *others = map(measure, texts)
        yield sum(others, first)


def _texts(request: SamplingRequest) -> Iterator[tuple[str, ...]]:
    """The texts of each part, of a kind in which their tokens are wrapped together."""
    if request.system_prompt:
        yield (request.system_prompt,)
    for tool in request.tools:
        yield (_json([tool.name, tool.description, tool.input_schema]),)
    if request.output_schema is not None:
        schema = request.output_schema
        yield (_json([schema.name, schema.description, schema.schema]),)
    for message in request.messages:
        for part in message.content:
            yield from _part(part)


def _part(part: Content) -> Iterator[tuple[str, ...]]:
    match part:
        case Text():
            yield (part.text,)
        case Reasoning():
            # What is sealed cannot be read; its length is that of the thinking inside.
            yield (part.text or (part.signature or ""),)
        case ToolUse():
            yield (_json([part.id, part.name, part.input]),)
        case ToolResult():
            yield part.tool_use_id, part.text
        case MCPCall():
            yield _json([part.id, part.server, part.name, part.input]), part.text
        case Image() | Audio():
            pass


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        # Not for any wire either, which will say so; for a length it does as it is.
        return repr(value)


def _wrapping(request: SamplingRequest, family: Family) -> int:
    return _wrapped(request) * MESSAGE_TOKENS + (family.tools if request.tools else 0)


def _wrapped(request: SamplingRequest) -> int:
    wrapped = len(request.messages) + len(request.tools) + bool(request.system_prompt)
    wrapped += request.output_schema is not None
    return wrapped + sum(
        isinstance(part, ToolUse | ToolResult | MCPCall)
        for message in request.messages
        for part in message.content
    )


def _media(
    request: SamplingRequest,
    family: Family,
    image_tokens: Callable[[Image, media.ImageRule], int],
    seconds: Callable[[Audio], int],
) -> int:
    images, sounds = _media_of(request)
    seen = sum(image_tokens(image, family.image) for image in images)
    return seen + sum(map(seconds, sounds)) * family.audio_tokens_a_second


def _media_of(request: SamplingRequest) -> tuple[list[Image], list[Audio]]:
    items = [
        item
        for message in request.messages
        for part in message.content
        for item in (part.content if isinstance(part, ToolResult) else (part,))
    ]
    images = [item for item in items if isinstance(item, Image)]
    return images, [item for item in items if isinstance(item, Audio)]
