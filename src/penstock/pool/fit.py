"""Fits a request to what one model is able to do, or says which options it cannot take.

`contract.adaptation.OPTIONS` says what becomes of an option that a model lacks. Here those rows are
applied to the values of one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from penstock.contract.adaptation import (
    ADVISORY_FIELDS,
    EMULATED,
    HINT_FIELDS,
    OMITTED,
    OPTIONS,
    PORTABLE_FIELDS,
    PROMPTED,
    RANDOMNESS,
    Adaptation,
    nearest_level,
    takes_field,
)
from penstock.contract.errors import Advice, UnsupportedOption
from penstock.contract.exchange import SamplingRequest, TranscriptionRequest
from penstock.contract.messages import Audio, Content, Image, Text, ToolResult, user
from penstock.contract.options import Capabilities, Extra
from penstock.contract.ports import Target

R = TypeVar("R")


class Fitted(msgspec.Struct, Generic[R], frozen=True):
    """A request as one target can take it."""

    request: R
    adapted: tuple[Adaptation, ...] = ()
    """What the target does not get as the caller wrote it."""
    stops: tuple[str, ...] = ()
    """The stop sequences that are enforced here, because the target cannot."""


class _Lack(NamedTuple):
    """An option of the request that the model does not take as it is."""

    option: str
    row: str
    """The row of `OPTIONS` that decides."""
    said: str
    """The option as an error names it."""
    used: str
    """What takes its place."""
    changes: dict[str, Any]


def admit(request: SamplingRequest, able: Capabilities, target: Target) -> Fitted[SamplingRequest]:
    """The request as this target can take it, and the options that were changed for it.

    Raises UnsupportedOption naming all that cannot be. What is emulated never is: the result is the
    same. Advisory options are refused unless the request says `adapt`, and then brought to the
    nearest value or left out. `ignore_invalid_options` allows to leave out all others as well.
    Content that the model cannot take (pictures, sounds, the beginning of its own answer) is never
    left out: it is the question.
    """
    asked, adapted, stops = _emulated(request, able)
    content = _unsupported_content(asked, able)
    lacking = list(_lacking(asked, able))
    if request.ignore_invalid_options:
        refused: list[_Lack] = []
    elif request.adapt == "adapt":
        refused = [lack for lack in lacking if OPTIONS[lack.row].otherwise == "refused"]
    else:
        refused = lacking
    if content or refused:
        names = [*content, *(lack.option for lack in refused)]
        said = [*content, *(lack.said for lack in refused)]
        if content:
            raise _refused(target, names, _content_remedy(content), said)
        raise _refused(target, names, _remedy(names), said, advice=[Advice.IGNORE_OPTIONS])
    extra, hints = _own_fields(asked, able, lacking)
    changes = {name: value for lack in lacking for name, value in lack.changes.items()}
    if "tools" in changes or ("mcp_tools" in changes and not asked.tools):
        changes |= {"tool_choice": None, "parallel_tools": None}
    if extra is not asked.extra:
        changes["extra"] = extra
    adapted += [Adaptation(lack.option, "adapted", lack.used) for lack in lacking]
    if request.adapt == "adapt":
        adapted += [Adaptation(name, "adapted") for name in hints]
    if changes:
        asked = msgspec.structs.replace(asked, **changes)
    return Fitted(asked, tuple(adapted), stops)


def admit_transcription(
    request: TranscriptionRequest, able: Capabilities, target: Target
) -> Fitted[TranscriptionRequest]:
    """The request as this target can take it, and the options that were left out for it.

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
    fitted = msgspec.structs.replace(request, **dict.fromkeys(options))
    return Fitted(fitted, tuple(Adaptation(name, "adapted") for name in options))


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


def _content_remedy(names: list[str]) -> str:
    ends = "end with a user's turn, or " if "prefill" in names else ""
    return f"{ends}choose another model"


def _remedy(options: Sequence[str]) -> str:
    if "max_tokens" not in options:
        return "leave it out"
    return "lower it" if len(options) == 1 else "lower max_tokens and leave the rest out"


def _emulated(
    request: SamplingRequest, able: Capabilities
) -> tuple[SamplingRequest, list[Adaptation], tuple[str, ...]]:
    """The request without what is done here, and the stop sequences that are enforced here."""
    adapted: list[Adaptation] = []
    schema, stops = request.output_schema, request.stop_sequences
    if schema is not None and schema.prompted and not able.output_schema:
        request = request.with_schema_in_words(in_system_prompt=able.system_prompt)
        adapted.append(Adaptation("output_schema", "emulated", PROMPTED))
    if request.system_prompt and not able.system_prompt:
        request = _with_system_in_turn(request, request.system_prompt)
        adapted.append(Adaptation("system_prompt", "emulated", EMULATED))
    most = able.max_stop_sequences
    if not stops or (able.stop_sequences and (most is None or len(stops) <= most)):
        return request, adapted, ()
    adapted.append(Adaptation("stop_sequences", "emulated", EMULATED))
    return msgspec.structs.replace(request, stop_sequences=()), adapted, stops


def _with_system_in_turn(request: SamplingRequest, system: str) -> SamplingRequest:
    """With the system prompt at the beginning of the first user's turn."""
    messages = list(request.messages)
    at = next((at for at, turn in enumerate(messages) if turn.role == "user"), None)
    if at is None:
        messages.insert(0, user(system))
    else:
        first, *rest = messages[at].content or (Text(""),)
        begun: tuple[Content, ...] = (Text(f"{system}\n\n"), first)
        if isinstance(first, Text):
            begun = (msgspec.structs.replace(first, text=f"{system}\n\n{first.text}"),)
        elif isinstance(first, ToolResult):
            # Results come first in a turn.
            begun = (first, Text(system))
        messages[at] = msgspec.structs.replace(messages[at], content=(*begun, *rest))
    return msgspec.structs.replace(request, messages=tuple(messages), system_prompt=None)


def _lacking(request: SamplingRequest, able: Capabilities) -> Iterator[_Lack]:
    if (lack := _temperature(request, able)) is not None:
        yield lack
    if request.tools and not able.tools:
        yield _omitted("tools", ())
    if request.mcp_tools and not able.native_mcp:
        yield _omitted("mcp_tools", ())
    choice = request.tool_choice
    # Where there is no such switch, "none" means that no tool is offered.
    if choice is not None and choice.mode not in ("auto", "none") and not able.tool_choice:
        yield _omitted("tool_choice", None)
    if request.parallel_tools is not None and not able.parallel_tools_switch:
        yield _omitted("parallel_tools", None)
    if request.output_schema is not None and not able.output_schema:
        yield _omitted("output_schema", None)
    if (lack := _reasoning(request, able)) is not None:
        yield lack
    if able.max_output is not None and request.max_tokens > able.max_output:
        yield _Lack(
            "max_tokens",
            "max_tokens",
            f"max_tokens above {able.max_output} ({request.max_tokens} asked for)",
            str(able.max_output),
            {"max_tokens": able.max_output},
        )
    if request.extra is not None:
        yield from _fields(request.extra, able)


def _omitted(option: str, nothing: object, *, row: str = "", said: str = "") -> _Lack:
    return _Lack(option, row or option, said or option, OMITTED, {option: nothing})


def _temperature(request: SamplingRequest, able: Capabilities) -> _Lack | None:
    given, most = request.temperature, able.max_temperature
    if given is None:
        return None
    if not able.temperature:
        return _omitted("temperature", None)
    if most is None or given <= most:
        return None
    row = "temperature_above_maximum"
    return _Lack("temperature", row, "temperature", f"{most:g}", {"temperature": most})


def _reasoning(request: SamplingRequest, able: Capabilities) -> _Lack | None:
    option, level = "reasoning_level", request.reasoning_level
    if level is None:
        return None
    if level == "none":
        # A model that cannot think satisfies it by itself.
        if able.reasoning_off or not able.reasoning:
            return None
        # The dialect says it in its own words: the least effort, or the smallest budget.
        said = "reasoning_level 'none', as it always thinks"
        return _Lack(option, "reasoning_level_none", said, "least", {})
    if not able.reasoning:
        return _omitted(option, None)
    least = able.min_reasoning_tokens
    if least is not None and min(request.max_tokens, able.max_output or least + 1) <= least:
        said = f"reasoning_level with max_tokens up to {least}"
        return _omitted(option, None, row="reasoning_level_without_room", said=said)
    if level in able.reasoning_levels:
        return None
    near = nearest_level(level, able)
    row = f"reasoning_level_{level}"
    said = f"reasoning_level {level!r}"
    return _Lack(option, row if row in OPTIONS else option, said, near, {option: near})


def _fields(extra: Extra, able: Capabilities) -> Iterator[_Lack]:
    """The caller's own fields that the target lacks, and that ask for something."""
    for name in extra.fields:
        if name in extra.optional or _takes(name, extra, able):
            continue
        row = "advisory_field" if name in ADVISORY_FIELDS else "essential_field"
        yield _Lack(name, row, name, OMITTED, {})


def _takes(name: str, extra: Extra, able: Capabilities) -> bool:
    """Whether the target takes a field of this name, as it is or in its own words."""
    if extra.dialect == able.extra_of and name not in extra.inner:
        return able.temperature or name not in RANDOMNESS
    return name in PORTABLE_FIELDS and takes_field(name, able)


def _own_fields(
    request: SamplingRequest, able: Capabilities, lacking: Sequence[_Lack]
) -> tuple[Extra | None, list[str]]:
    """The caller's own fields in the words of the target, and the hints that it does not get."""
    extra = request.extra
    if extra is None or not extra.fields:
        return extra, []
    same = extra.dialect == able.extra_of
    fields: dict[str, Any] = {}
    placed: dict[str, Any] = {}
    hints: list[str] = []
    for name, value in extra.fields.items():
        if not _takes(name, extra, able):
            if name in HINT_FIELDS and name in extra.optional and value is not None:
                hints.append(name)
            continue
        place = able.sampling_fields.get(name, name)
        if same and place == name:
            fields[name] = value
        elif value is not None and (name not in extra.optional or name in HINT_FIELDS):
            placed[place] = value
    if same and len(fields) == len(extra.fields):
        return extra, hints
    if not (same or placed or lacking):
        # The encoders of other dialects do not look at it.
        return extra, hints
    if same:
        return msgspec.structs.replace(extra, fields=fields, placed=placed), hints
    return (Extra("", placed=placed) if placed else None), hints


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
