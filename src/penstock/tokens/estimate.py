"""The estimate of a whole request: its texts, its tools, its pictures and what wraps them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from penstock.contract.checks.lengths import NAME
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
from penstock.tokens.size import measured
from penstock.tokens.steps import Steps
from penstock.tokens.text import MOST_MEASURED, Count, measure, sampled
from penstock.tokens.upper import Upper, upper, upper_of_bytes

MESSAGE_TOKENS = 8
"""What wraps a message, a tool, a call or its result: role, marks and ids."""
_MEDIA_MARGIN = 1.5
"""A maker's models differ more in pictures and sounds than in texts."""
_TEMPLATE = 64
"""What a chat template says of its own accord: a date, a name, how to answer."""
_PART_TOKENS = 2
"""What stands between two parts of a message."""
_SPREAD = 2
"""Tokens for each mark of a JSON text that a template writes over several lines."""
_ESCAPED = 6
"""Tokens for each unit of a character beyond ASCII that a template writes as `\\u20ac`."""
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
    o200k: bool = False
    """Whether the tokenizer is o200k, for which there is a bound of its own."""
    measured: bool = True
    """Whether the upper bound of all measured tokenizers holds; otherwise the bytes are it."""
    upper: float = 1.0
    """What the upper bound of all measured tokenizers is multiplied by."""
    image: media.ImageRule = media.patches
    audio_tokens_a_second: int = 10
    tools: int = 0
    """The instructions that the maker adds as soon as there are tools."""


OTHER = Family("other", (), measured=False)
"""Models whose tokenizer is not known; the estimate takes it for about as thrifty as o200k."""
FAMILIES: tuple[Family, ...] = (
    # Its tokenizer is not public: the factor is what was measured against o200k.
    Family("claude", ("claude",), text=1.3, upper=1.3, image=media.pixels, tools=350),
    Family("gpt-4o-mini", ("gpt-4o-mini",), o200k=True, image=media.dear_tiles),
    Family("gemini", ("gemini", "gemma"), image=media.tiles, audio_tokens_a_second=32),
)


GPT = Family("gpt", (), o200k=True)
_GPT = re.compile(r"(?:^|[/.:])(?:chatgpt|gpt-(?:4o|4\.[15]|[5-9]|oss)|o[134](?:$|-))")
"""OpenAI's models since GPT-4o, by their own names: other names say nothing of a tokenizer."""
MEASURED = Family("measured", ())
_MEASURED = re.compile(
    r"""
    (?: ^ | [/.:] ) (?:
      gpt-(?: 4 | 3\.?5 ) (?: $ | [-:] ) | text-embedding-(?: 3 | ada )
    | (?: (?: meta- )? llama | code-?llama | tinyllama ) -? v? [1-4] (?! \d )
    | (?: codellama | tinyllama ) (?! \w )
    | (?: qwen -? (?: 1\.5 | 2\.5 | [23] ) (?! \.?\d ) | qwq | qvq )
    | (?: open- )? (?: mi[sx]tral | ministral | codestral | devstral | magistral | pixtral )
      (?! [a-z] )
    | deepseek [-.] (?: v3 | r1 ) (?! \d )
    | command-r (?! [a-z0-9] )
    | smollm
    )
    """,
    re.VERBOSE,
)
"""Models whose tokenizer is among those of the shared bound, by their makers' names.

Names that say nothing of a generation, such as `deepseek-chat`, are left out: the next one may have
another tokenizer.
"""


class Contents(msgspec.Struct, frozen=True, gc=False):
    """A request as far as its tokens go, whichever model reads it."""

    texts: Upper
    """The upper bounds of all of them."""
    wrapped: int
    """How many parts have marks around them."""
    images: Mapping[media.ImageRule, int] = {}
    """The most tokens of all pictures by each rule; empty without pictures."""
    seconds: int = 0
    """The longest that all sounds together can last."""


def family_of(model: str) -> Family:
    """The row for a model's name, wherever it is served: `eu.anthropic.claude-...` is Claude."""
    return _family_of(model[:NAME])


def thinking_apart(model: str) -> int:
    """The most that this model is expected to think beyond `max_tokens`; 0 where that limits it."""
    return _thinking_apart(model[:NAME])


# Each request asks both of every target; callers and providers choose names, so few are remembered.
@lru_cache(maxsize=1024)
def _family_of(model: str) -> Family:
    name = model.lower()
    found = next((row for row in FAMILIES if any(part in name for part in row.models)), None)
    if found is not None:
        return found
    return GPT if _GPT.search(name) else MEASURED if _MEASURED.search(name) else OTHER


@lru_cache(maxsize=1024)
def _thinking_apart(model: str) -> int:
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

    It is measured once, and not before a model is asked about.
    """

    def __init__(self, request: SamplingRequest) -> None:
        """Nothing is counted yet."""
        self._request = request
        self._likely: _Likely | None = None
        self._found: dict[str, int] = {}

    async def prepare(self, models: Iterable[str]) -> None:
        """Count for these models ahead, outside of the event loop where it takes long."""
        families = {family.name: family for family in map(family_of, models)}
        await measured(self._request, lambda: [*map(self._of, families.values())])

    def of(self, model: str) -> int:
        """As the tokenizer of this model counts."""
        return self._of(family_of(model))

    def _of(self, family: Family) -> int:
        found = self._found.get(family.name)
        if found is None:
            likely = self._likely = self._likely or _likely(self._request)
            found = self._found[family.name] = (
                sum(count.tokens(family.text) for count in likely.counts)
                + _wrapping(self._request, family)
                + sum(family.image(*size) for size in likely.sizes)
                + likely.seconds * family.audio_tokens_a_second
            )
        return found


class _Likely(msgspec.Struct, frozen=True, gc=False):
    """What the likeliest number is made of, whichever model reads the request."""

    counts: Sequence[Count]
    sizes: Sequence[tuple[int, int]]
    seconds: int


def _likely(request: SamplingRequest) -> _Likely:
    images, sounds = _media_of(request)
    steps = Steps()
    return _Likely(
        tuple(_counts(request, sample=True)),
        [media.likely_size(image, steps) for image in images],
        sum(map(media.seconds, sounds)),
    )


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
    images, sounds = _media_of(request)
    steps = Steps()
    seen = sum(media.most_image_tokens(image, family.image, steps) for image in images)
    heard = sum(map(media.most_seconds, sounds)) * family.audio_tokens_a_second
    return (
        sum(count.reserve(family.text) for count in _counts(request))
        + _wrapping(request, family)
        + math.ceil((seen + heard) * _MEDIA_MARGIN)
    )


def upper_text(text: str, family: Family = OTHER) -> int:
    """The most tokens that a text can have; see `penstock.tokens.upper`."""
    return _of_family(upper(text) if family.measured else upper_of_bytes(text), family)


def _of_family(found: Upper, family: Family) -> int:
    if family.o200k:
        return found.o200k
    if not family.measured:
        return found.others
    return min(found.others, math.ceil(found.shared * family.upper))


def upper_sound(audio: Audio, family: Family = OTHER) -> int:
    """The same for a recording, at the lowest bit rate that its format is used with."""
    return math.ceil(media.longest(audio) * family.audio_tokens_a_second * _MEDIA_MARGIN)


def measure_request(request: SamplingRequest, *, rough: bool = False) -> Contents:
    """What `upper_tokens` asks of a request for any model: a short text is taken for its bytes.

    So it takes no time where time counts. `rough` takes every text for its bytes, which is about
    four times too much for English.
    """
    said: list[str] = [request.system_prompt] if request.system_prompt else []
    plain = not (request.tools or request.mcp_tools or request.extra or request.tool_choice)
    plain = plain and request.output_schema is None
    parts = 0
    for message in request.messages:
        parts += len(message.content)
        for part in message.content:
            if isinstance(part, Text) and part.meta is None:
                said.append(part.text)
            else:
                plain = False
    # Most requests are words and nothing else, and every request is measured.
    if plain:
        texts = _upper_of(said, rough=rough)
        between = _both(parts * _PART_TOKENS)
        return Contents(texts + between, len(request.messages) + bool(request.system_prompt))
    written = [*_written(request)]
    texts = _upper_of([*_said(request), *written], rough=rough) + _both(parts * _PART_TOKENS)
    texts = sum(map(_in_lines, written), texts)
    images, sounds = _media_of(request)
    steps = Steps()
    return Contents(
        texts,
        _wrapped(request) + len(request.mcp_tools),
        _most_of(images, steps),
        sum(media.longest(sound, steps) for sound in sounds),
    )


def _most_of(images: Sequence[Image], steps: Steps) -> dict[media.ImageRule, int]:
    """The most tokens of these pictures, by each rule."""
    sizes = [media.all_sizes(image, steps) for image in images]
    if not sizes:
        return {}
    return {rule: sum(max(rule(*size) for size in each) for each in sizes) for rule in media.RULES}


def _upper_of(texts: Sequence[str], *, rough: bool) -> Upper:
    # A NUL is in no list, so that no run goes on from one text into the next.
    text = "\n\0".join(texts)
    return upper_of_bytes(text) if rough or len(text) <= _SHORT else upper(text)


def _in_lines(written: str) -> Upper:
    """What a template may add to JSON: line ends, indents, escapes; OpenAI's escapes nothing."""
    marks = sum(map(written.count, ",:{}[]"))
    beyond = 0 if written.isascii() else len(written.encode("utf-16-le", "surrogatepass")) // 2
    most = marks * _SPREAD + beyond * _ESCAPED
    return Upper(marks, most, most)


def _both(count: int) -> Upper:
    return Upper(count, count, count)


def upper_tokens(request: SamplingRequest, model: str, contents: Contents | None = None) -> int:
    """The most tokens that `model` reads for this request: what hard limits hold.

    What an MCP server tells the provider that asks it, no estimate knows. `contents` is what
    `measure_request` found, to ask about one request for many models.
    """
    family = family_of(model)
    found = contents or measure_request(request)
    most = _of_family(found.texts, family) + found.wrapped * MESSAGE_TOKENS + _TEMPLATE
    if request.tools:
        most += family.tools + math.ceil(family.tools * (_UPPER_TOOLS - 1))
    if request.output_schema is not None:
        most += _SCHEMA_IN_WORDS
    if found.images:
        most += math.ceil(found.images[family.image] * _UPPER_IMAGES)
    most += math.ceil(found.seconds * family.audio_tokens_a_second * _MEDIA_MARGIN)
    return most


def _said(request: SamplingRequest) -> Iterator[str]:
    """All texts that are sent as they are, sealed ones too."""
    if request.system_prompt:
        yield request.system_prompt
    for message in request.messages:
        for part in message.content:
            match part:
                case Text():
                    yield part.text
                case Reasoning():
                    yield part.text
                    yield part.signature or ""
                case ToolResult():
                    yield part.tool_use_id
                    yield part.text
                case MCPCall():
                    yield part.text
                case ToolUse() | Image() | Audio():
                    pass
            if part.meta is not None:
                yield _json(part.meta)


def _written(request: SamplingRequest) -> Iterator[str]:
    """What is sent as JSON, which a chat template writes in its own way."""
    for tool in request.tools:
        yield _json([tool.name, tool.description, tool.input_schema, tool.meta])
    if request.output_schema is not None:
        schema = request.output_schema
        yield _json([schema.name, schema.description, schema.schema])
    for server in request.mcp_tools:
        yield _json([server.name, server.url, server.allowed_tools])
    if request.tool_choice is not None:
        yield _json(request.tool_choice)
    if request.extra is not None:
        yield _json(request.extra.fields)
    for message in request.messages:
        for part in message.content:
            if isinstance(part, ToolUse):
                yield _json([part.id, part.name, part.input])
            elif isinstance(part, MCPCall):
                yield _json([part.id, part.server, part.name, part.input])


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


def _media_of(request: SamplingRequest) -> tuple[list[Image], list[Audio]]:
    items = [
        item
        for message in request.messages
        for part in message.content
        for item in (part.content if isinstance(part, ToolResult) else (part,))
    ]
    images = [item for item in items if isinstance(item, Image)]
    return images, [item for item in items if isinstance(item, Audio)]
