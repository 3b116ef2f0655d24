"""Which targets can serve a request at all: what it needs, against what a model is able to do.

A target that cannot take what the request is made of is not worth a place in the ranking. What is
only likely, because our count of tokens is an estimate, costs a target its place and not its
chance. Options of lesser weight, such as a temperature, are the pool's to judge.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Content, Image, Text, ToolResult
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target
from penstock.tokens import Estimates

_BYTES = 4
"""A character has no more bytes, and a text no more tokens than bytes."""
_PLAIN_WRAPPING = 64
_SURELY = 1.25
"""By so much a prompt is hardly ever smaller than its estimate."""


class Fit(IntEnum):
    """How well a target suits a request."""

    FITS = 0
    TIGHT = 1
    """It may be too small, by an estimate."""
    UNABLE = 2


class Verdict(NamedTuple):
    """How well a target suits a request, and what is missing."""

    fit: Fit
    why: str = ""


GOOD = Verdict(Fit.FITS)


class Floor(NamedTuple):
    """What every one of some targets takes, for a quick look at a plain request."""

    context_window: int
    max_output: int
    streaming: bool


_ENDLESS = 1 << 62


def floor_of(able: list[Capabilities]) -> Floor:
    """The least that all of these take."""
    return Floor(
        min((_ENDLESS if a.context_window is None else a.context_window for a in able), default=0),
        min((_ENDLESS if a.max_output is None else a.max_output for a in able), default=0),
        all(a.streaming for a in able),
    )


def surely_fits(request: SamplingRequest, floor: Floor, streaming: bool) -> bool:
    """Whether no target could be unable to serve it; quick, and often no where it is yes."""
    if request.tools or request.mcp_tools or request.output_schema is not None:
        return False
    if request.max_tokens > floor.max_output or (streaming and not floor.streaming):
        return False
    size = len(request.system_prompt) if request.system_prompt else 0
    messages = request.messages
    for message in messages:
        for part in message.content:
            if type(part) is not Text:
                return False
            size += len(part.text)
    room = floor.context_window - request.max_tokens
    return _BYTES * size + _PLAIN_WRAPPING * (1 + len(messages)) <= room


def fit(
    request: SamplingRequest,
    target: Target,
    able: Capabilities,
    sizes: Estimates,
    *,
    streaming: bool = False,
) -> Verdict:
    """Whether this target can serve the request, of the `sizes`, and what it lacks.

    What `ignore_invalid_options` allows to drop, or to bring down, nobody lacks; nor a limit that
    is adapted.
    """
    lacking = [f"takes no {name}" for name in _content(request, able)]
    if streaming and not able.streaming:
        lacking.append("does not stream")
    if not request.ignore_invalid_options:
        lacking += _options(request, able)
    if lacking:
        return Verdict(Fit.UNABLE, " and ".join(lacking))
    return _room(request, target, able, sizes)


def _content(request: SamplingRequest, able: Capabilities) -> list[str]:
    if able.images and able.image_urls and able.audio:
        return []
    found: dict[str, None] = {}
    for message in request.messages:
        for part in message.content:
            for inner in _media(part):
                if not able.takes(inner):
                    found[_named(inner, able)] = None
    return list(found)


def _media(part: Content) -> list[Image | Audio]:
    inner = part.content if isinstance(part, ToolResult) else (part,)
    return [each for each in inner if isinstance(each, Image | Audio)]


def _named(part: Image | Audio, able: Capabilities) -> str:
    if isinstance(part, Audio):
        return "audio"
    return "images by url" if able.images else "images"


def _options(request: SamplingRequest, able: Capabilities) -> list[str]:
    schema = request.output_schema
    lacking: list[str] = []
    if request.tools and not able.tools:
        lacking.append("takes no tools")
    if request.mcp_tools and not able.native_mcp:
        lacking.append("connects to no MCP servers")
    if schema is not None and not able.output_schema and not schema.prompted:
        lacking.append("has no structured output")
    too_long = able.max_output is not None and request.max_tokens > able.max_output
    if too_long and request.adapt != "adapt":
        lacking.append(
            f"answers with {able.max_output} tokens at most ({request.max_tokens} asked for)"
        )
    return lacking


def _room(
    request: SamplingRequest, target: Target, able: Capabilities, sizes: Estimates
) -> Verdict:
    window = able.context_window
    if window is None or surely_fits(request, Floor(window, _ENDLESS, True), streaming=False):
        return GOOD
    prompt = sizes.of(target.model)
    answer = request.max_tokens
    lowered = request.ignore_invalid_options or request.adapt == "adapt"
    if lowered and able.max_output is not None:
        answer = min(answer, able.max_output)
    if prompt + answer <= window:
        return GOOD
    said = f"holds {window} tokens (about {prompt} to read, and {answer} to answer with)"
    return Verdict(Fit.UNABLE if prompt > _SURELY * window else Fit.TIGHT, said)
