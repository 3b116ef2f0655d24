"""Fits a request to what one model is able to do, or says which options it cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.contract.errors import Advice, UnsupportedOption
from penstock.contract.exchange import SamplingRequest, TranscriptionRequest
from penstock.contract.messages import Audio, Content, Image, ToolResult
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target

_DROPPED: dict[str, Any] = {
    "system_prompt": None,
    "temperature": None,
    "stop_sequences": (),
    "tools": (),
    "mcp_tools": (),
    "tool_choice": None,
    "parallel_tools": None,
    "output_schema": None,
    "reasoning_level": None,
}


def admit(
    request: SamplingRequest, able: Capabilities, target: Target
) -> tuple[SamplingRequest, tuple[str, ...]]:
    """The request as this target can take it, and the options that had to be dropped for it.

    Raises UnsupportedOption naming all of them, unless the request says `ignore_invalid_options`.
    Two are not dropped but brought down to what the model takes: `max_tokens` to its largest
    answer, and `reasoning_level="none"` to the least that a model thinks which always does. Content
    that the model cannot take (pictures, sounds, the beginning of its own answer) is never dropped:
    it is the question.
    """
    request = _schema_in_prompt(request, able)
    content = _unsupported_content(request, able)
    options = _unsupported_options(request, able)
    if content or (options and not request.ignore_invalid_options):
        names = [*content, *options]
        said = [_said(name, request, able) for name in names]
        if content:
            raise _refused(target, names, _content_remedy(content), said)
        raise _refused(target, names, _remedy(options), said, advice=[Advice.IGNORE_OPTIONS])
    if not options:
        return request, ()
    changes = {name: _DROPPED[name] for name in options if name in _DROPPED}
    if "tools" in changes or ("mcp_tools" in changes and not request.tools):
        changes |= {"tool_choice": None, "parallel_tools": None}
    if extra_options(request, able):
        changes["extra"] = None
    if "max_tokens" in options:
        changes["max_tokens"] = able.max_output
    if _thinks_anyway(request, able):
        # The dialect says it in its own words: the least effort, or the smallest budget.
        del changes["reasoning_level"]
    return msgspec.structs.replace(request, **changes), options


def admit_transcription(
    request: TranscriptionRequest, able: Capabilities, target: Target
) -> tuple[TranscriptionRequest, tuple[str, ...]]:
    """The request as this target can take it, and the options that had to be dropped for it.

    Raises UnsupportedOption, always when the model does not transcribe at all.
    """
    temperature, most = request.temperature, able.max_temperature
    checks = (
        ("prompt", request.prompt is not None and not able.transcription_prompt),
        ("temperature", temperature is not None and not able.temperature),
        ("temperature", temperature is not None and most is not None and temperature > most),
    )
    options = tuple(dict.fromkeys(name for name, refused in checks if refused))
    if not able.transcription:
        raise _refused(target, ["transcription"], _content_remedy([]))
    if options and not request.ignore_invalid_options:
        raise _refused(target, options, _remedy(options), advice=[Advice.IGNORE_OPTIONS])
    return msgspec.structs.replace(request, **dict.fromkeys(options)), options


def _refused(
    target: Target,
    names: Sequence[str],
    hint: str,
    said: Sequence[str] = (),
    advice: Sequence[Advice] = (),
) -> UnsupportedOption:
    return UnsupportedOption(
        f"{target} does not support {', '.join(said or names)}; {hint}",
        options=names,
        provider=target.provider,
        model=target.model,
        advice=advice,
    )


def _said(name: str, request: SamplingRequest, able: Capabilities) -> str:
    if name == "max_tokens":
        return f"max_tokens above {able.max_output} ({request.max_tokens} asked for)"
    if name == "reasoning_level" and _thinks_anyway(request, able):
        return "reasoning_level 'none', as it always thinks"
    if name == "reasoning_level" and able.reasoning:
        return f"reasoning_level with max_tokens up to {able.min_reasoning_tokens}"
    return name


def _content_remedy(names: list[str]) -> str:
    ends = "end with a user's turn, or " if "prefill" in names else ""
    return f"{ends}choose another model"


def _remedy(options: tuple[str, ...]) -> str:
    if "max_tokens" not in options:
        return "leave it out"
    return "lower it" if len(options) == 1 else "lower max_tokens and leave the rest out"


def _unsupported_options(request: SamplingRequest, able: Capabilities) -> tuple[str, ...]:
    temperature, stops = request.temperature, request.stop_sequences
    checks = (
        ("system_prompt", bool(request.system_prompt) and not able.system_prompt),
        ("temperature", temperature is not None and not able.temperature),
        (
            "temperature",
            temperature is not None
            and able.max_temperature is not None
            and temperature > able.max_temperature,
        ),
        ("stop_sequences", bool(stops) and not able.stop_sequences),
        (
            "stop_sequences",
            able.max_stop_sequences is not None and len(stops) > able.max_stop_sequences,
        ),
        ("tools", bool(request.tools) and not able.tools),
        ("mcp_tools", bool(request.mcp_tools) and not able.native_mcp),
        (
            "tool_choice",
            # Where there is no such switch, "none" means that no tool is offered.
            request.tool_choice is not None
            and request.tool_choice.mode not in ("auto", "none")
            and not able.tool_choice,
        ),
        ("parallel_tools", request.parallel_tools is not None and not able.parallel_tools_switch),
        ("output_schema", request.output_schema is not None and not able.output_schema),
        ("reasoning_level", _wants_reasoning(request) and not able.reasoning),
        ("reasoning_level", _thinks_anyway(request, able)),
        (
            "reasoning_level",
            able.min_reasoning_tokens is not None
            and _wants_reasoning(request)
            and request.max_tokens <= able.min_reasoning_tokens,
        ),
        ("max_tokens", able.max_output is not None and request.max_tokens > able.max_output),
    )
    refused = tuple(dict.fromkeys(name for name, refused in checks if refused))
    return refused if request.extra is None else refused + extra_options(request, able)


def extra_options(request: SamplingRequest, able: Capabilities) -> tuple[str, ...]:
    """The caller's own fields that this target cannot take, by their names on the wire."""
    return () if request.extra is None else request.extra.foreign_to(able.extra_of)


def _schema_in_prompt(request: SamplingRequest, able: Capabilities) -> SamplingRequest:
    """With the schema as an instruction, where the model has no mode for it and that will do."""
    schema = request.output_schema
    if schema is None or able.output_schema or not schema.prompted:
        return request
    return request.with_schema_in_words(in_system_prompt=able.system_prompt)


def _wants_reasoning(request: SamplingRequest) -> bool:
    # A model that cannot think satisfies "none" by itself.
    return request.reasoning_level not in (None, "none")


def _thinks_anyway(request: SamplingRequest, able: Capabilities) -> bool:
    return request.reasoning_level == "none" and able.reasoning and not able.reasoning_off


def _unsupported_content(request: SamplingRequest, able: Capabilities) -> list[str]:
    found: dict[str, None] = {}
    refuses = not (able.prefill or able.assistant_last)
    if refuses and request.messages and request.messages[-1].role == "assistant":
        found["prefill"] = None
    if able.images and able.audio and able.image_urls:
        return list(found)
    for message in request.messages:
        for part in message.content:
            _note_content(part, able, found)
    return list(found)


def _note_content(part: Content, able: Capabilities, found: dict[str, None]) -> None:
    if isinstance(part, Image):
        if not able.images:
            found["images"] = None
        elif part.url and not able.image_urls:
            found["images by url"] = None
    elif isinstance(part, Audio):
        if not able.audio:
            found["audio"] = None
    elif isinstance(part, ToolResult):
        for inner in part.content:
            _note_content(inner, able, found)
