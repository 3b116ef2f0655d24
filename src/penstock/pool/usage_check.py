"""Checks the counts of a provider against what its request makes possible.

A count is possible when it is a whole number from 0 to a bound. The bound of the input is that of
the request's own content, the bound of the output that of its token limit; both have a margin,
because providers add instructions, templates and thinking that the request does not show. Requests
with tools that the provider runs itself have a much higher bound: each round reads all of it again.

Parts of a count (cached input, thinking) may not exceed the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.exchange import AnyRequest, EmbeddingRequest, SamplingRequest
from penstock.contract.messages import Audio, ToolResult
from penstock.contract.metadata import Usage
from penstock.tokens import (
    family_of,
    measure_request,
    thinking_apart,
    upper_sound,
    upper_tokens,
)
from penstock.tokens.media import longest, seconds

HIDDEN_INPUT = 131_072
"""Tokens that a provider may read beyond the request: a whole context window of instructions."""
HIDDEN_OUTPUT = 65_536
"""Tokens that a model may write beyond the limit: thinking that the provider does not limit."""
PROVIDER_TOOLS = 16_777_216
"""The bound of both for requests whose tools the provider runs itself."""
_BYTES_PER_CHARACTER = 4
_TOKENS_PER_TEXT = 8
_WORDS_PER_SECOND = 10
_EXTRA_SECONDS = 600.0
_MOST_SECONDS = 10**9


class Checked(msgspec.Struct, frozen=True, gc=False):
    """The possible counts of a usage; impossible ones are None, and `implausible` is set."""

    usage: Usage
    least_input: int = 0
    """The least that an estimate in place of the input may be."""
    least_output: int = 0


def check(usage: Usage, request: AnyRequest, model: str) -> Checked:
    """The counts that are possible for this request; never raises, whatever the counts are."""
    read = (usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens)
    sound = (usage.input_audio_tokens,)
    written = (usage.output_tokens, usage.reasoning_tokens, usage.output_image_tokens)
    good_input = _possible((*read, *sound), HIDDEN_INPUT) or _possible(
        (*read, *sound), most_input(request, model)
    )
    good_output = _possible(written, HIDDEN_OUTPUT) or _possible(
        written, most_output(request, model)
    )
    input_fits = good_input and _fit(read) and _fit((read[0], *sound))
    output_fits = good_output and _fit(written)
    seconds_fit = usage.audio_seconds is None or are_possible_seconds(usage.audio_seconds, request)
    if input_fits and output_fits and seconds_fit:
        return Checked(usage)
    checked = msgspec.structs.replace(usage, implausible=True)
    least_input = least_output = 0
    if not input_fits:
        least_input = max(count or 0 for count in (*read, *sound)) if good_input else 0
        checked = msgspec.structs.replace(
            checked,
            input_tokens=None,
            cached_input_tokens=None,
            cache_write_tokens=None,
            input_audio_tokens=None,
        )
    if not output_fits:
        least_output = max(count or 0 for count in written) if good_output else 0
        checked = msgspec.structs.replace(
            checked, output_tokens=None, reasoning_tokens=None, output_image_tokens=None
        )
    if not seconds_fit:
        heard = float(sum(map(seconds, _sounds(request))))
        checked = msgspec.structs.replace(checked, audio_seconds=heard)
    return Checked(checked, least_input, least_output)


def is_possible_count(count: object, request: SamplingRequest, model: str) -> bool:
    """Whether a provider can have counted so many tokens of this prompt."""
    return _possible((count,), most_input(request, model))


def are_possible_seconds(value: float | None, request: AnyRequest) -> bool:
    """Whether a provider can have heard so much sound; False for None."""
    # An adapter may give anything, and a whole number that no float can hold.
    if type(value) not in (int, float) or value is None or not -1 < value < _MOST_SECONDS:
        return False
    return 0 <= value <= _EXTRA_SECONDS + sum(map(longest, _sounds(request)))


def most_input(request: AnyRequest, model: str) -> int:
    """The most tokens that a provider can have read for this request."""
    if isinstance(request, SamplingRequest):
        if request.mcp_tools or request.extra is not None:
            return PROVIDER_TOOLS
        # Measured by bytes, which takes no time and is an upper bound of any tokenizer.
        return HIDDEN_INPUT + upper_tokens(request, model, measure_request(request, rough=True))
    if isinstance(request, EmbeddingRequest):
        characters = sum(map(len, request.texts))
        texts = _TOKENS_PER_TEXT * len(request.texts)
        return HIDDEN_INPUT + _BYTES_PER_CHARACTER * characters + texts
    prompt = _BYTES_PER_CHARACTER * len(request.prompt or "")
    return HIDDEN_INPUT + upper_sound(request.audio, family_of(model)) + prompt


def most_output(request: AnyRequest, model: str) -> int:
    """The most tokens that a provider can have written for this request."""
    if isinstance(request, SamplingRequest):
        if request.mcp_tools or request.extra is not None:
            return max(PROVIDER_TOOLS, request.max_tokens)
        return HIDDEN_OUTPUT + request.max_tokens + thinking_apart(model)
    if isinstance(request, EmbeddingRequest):
        return HIDDEN_OUTPUT
    return HIDDEN_OUTPUT + _WORDS_PER_SECOND * longest(request.audio)


def _possible(counts: Sequence[object], most: int) -> bool:
    # Adapters outside of this package may give anything; `True` is no count.
    return all(count is None or (type(count) is int and 0 <= count <= most) for count in counts)


def _fit(counts: Sequence[int | None]) -> bool:
    """Whether the parts are no more than the whole, the first count."""
    whole, *parts = counts
    return whole is None or sum(part or 0 for part in parts) <= whole


def _sounds(request: AnyRequest) -> list[Audio]:
    if isinstance(request, EmbeddingRequest):
        return []
    if not isinstance(request, SamplingRequest):
        return [request.audio]
    parts = [part for message in request.messages for part in message.content]
    inner = [each for part in parts if isinstance(part, ToolResult) for each in part.content]
    return [each for each in (*parts, *inner) if isinstance(each, Audio)]
