"""Fits a request to what one model is able to do, or says which options it cannot take."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import UnsupportedOption
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Content, Image, Text, ToolResult
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target

_DROPPED: dict[str, Any] = {
    "system_prompt": None,
    "temperature": None,
    "stop_sequences": (),
    "tools": (),
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
    Content that the model cannot take (pictures, sounds) is never dropped: it is the question.
    """
    request = _schema_in_prompt(request, able)
    content = _unsupported_content(request, able)
    options = _unsupported_options(request, able)
    if content or (options and not request.ignore_invalid_options):
        names = [*content, *options]
        hint = (
            "; choose another model"
            if content
            else "; leave it out, or set ignore_invalid_options=True"
        )
        raise UnsupportedOption(
            f"{target} does not support {', '.join(names)}{hint}",
            options=names,
            provider=target.provider,
            model=target.model,
        )
    if not options:
        return request, ()
    changes = {name: _DROPPED[name] for name in options}
    if "tools" in changes:
        changes |= {"tool_choice": None, "parallel_tools": None}
    return msgspec.structs.replace(request, **changes), options


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
    )
    return tuple(dict.fromkeys(name for name, refused in checks if refused))


def _schema_in_prompt(request: SamplingRequest, able: Capabilities) -> SamplingRequest:
    """With the schema as an instruction, where the model has no mode for it and that will do."""
    schema = request.output_schema
    if schema is None or able.output_schema or not schema.prompted:
        return request
    system = "\n\n".join(filter(None, (request.system_prompt, schema.instruction)))
    if able.system_prompt:
        return msgspec.structs.replace(request, output_schema=None, system_prompt=system)
    *earlier, last = request.messages
    asked = msgspec.structs.replace(last, content=(*last.content, Text(schema.instruction)))
    return msgspec.structs.replace(request, output_schema=None, messages=(*earlier, asked))


def _wants_reasoning(request: SamplingRequest) -> bool:
    # A model that cannot think satisfies "none" by itself.
    return request.reasoning_level not in (None, "none")


def _unsupported_content(request: SamplingRequest, able: Capabilities) -> list[str]:
    if able.images and able.audio and able.image_urls:
        return []
    found: dict[str, None] = {}
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
