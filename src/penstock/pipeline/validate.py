"""Checks a request against the standard and the configured limits, all problems at once."""

from __future__ import annotations

import asyncio
import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from penstock.contract.checks.addresses import forbidden, host_of
from penstock.contract.checks.lengths import NAME, URL, too_long
from penstock.contract.errors import Advice, InvalidRequest, Problem, first_problems, shown
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.contract.media import AUDIO_EXTENSIONS, data_problem, essence
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.contract.options import ModelPreferences
from penstock.pipeline.limits import Limits, excess, excess_texts, too_many
from penstock.pipeline.validate_mcp import mcp_problems

_MOST_TOKENS = 2**31 - 1
"""Wires carry no larger number."""
_LARGE_MEDIA = 500_000
"""Characters of base64 that take some milliseconds to check."""
_MOST_MODELS = 16
"""Names in `model=[...]`, each of which is ranked."""
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
"""As in ISO 639 and BCP 47: `en`, `yue`, `pt-BR`."""


def validate(request: SamplingRequest, limits: Limits) -> SamplingRequest:
    """The request with system messages moved into its system prompt.

    Raises InvalidRequest with every problem and its path.
    """
    if beyond := excess(request, limits):
        # What is counted there is not looked at one by one.
        raise InvalidRequest.of([*_options(request, limits), *beyond])
    _refuse(
        chain(
            _options(request, limits),
            _messages(request),
            _tools(request),
            mcp_problems(request) if request.mcp_tools else (),
        )
    )
    system = [message.text for message in request.messages if message.role == "system"]
    if not system:
        return request
    prompts = [request.system_prompt, *system] if request.system_prompt else system
    return msgspec.structs.replace(
        request,
        system_prompt="\n\n".join(prompts),
        messages=tuple(message for message in request.messages if message.role != "system"),
    )


async def validated(request: SamplingRequest, limits: Limits) -> SamplingRequest:
    """What `validate` returns; large pictures and sounds are checked in a thread."""
    if _media_size(request) < _LARGE_MEDIA:
        return validate(request, limits)
    return await asyncio.to_thread(validate, request, limits)


def _media_size(request: SamplingRequest) -> int:
    size = 0
    for message in request.messages:
        for part in message.content:
            inner = part.content if isinstance(part, ToolResult | MCPCall) else (part,)
            size += sum(len(each.data) for each in inner if isinstance(each, Image | Audio))
    return size


def validate_embedding(request: EmbeddingRequest, limits: Limits) -> EmbeddingRequest:
    """The request itself; raises InvalidRequest with every problem and its path."""
    _refuse(excess_texts(request, limits))
    _refuse(_embedding(request))
    return request


def _embedding(request: EmbeddingRequest) -> Iterator[Problem]:
    for index, text in enumerate(request.texts):
        if not text:
            yield Problem(f"texts[{index}]", "is empty; give some text")
        yield from _text(f"texts[{index}]", text)
    if not request.texts:
        yield Problem("texts", "give at least one text")
    yield from _name("model", request.model)
    if request.dimensions is not None and request.dimensions < 1:
        yield Problem("dimensions", f"{request.dimensions} is not a positive number")
    yield from _timeout(request.timeout)


def _refuse(problems: Iterable[Problem]) -> None:
    if found := first_problems(problems):
        raise InvalidRequest.of(found)


def validate_transcription(request: TranscriptionRequest, limits: Limits) -> TranscriptionRequest:
    """The request itself; raises InvalidRequest with every problem and its path."""
    _refuse(
        chain(
            _sound("audio", request.audio),
            _name("model", request.model),
            transcription_hints(request.language, request.prompt),
            _temperature(request.temperature, limits),
            _timeout(request.timeout),
        )
    )
    return request


def transcription_hints(language: str | None, prompt: str | None) -> Iterator[Problem]:
    """What is wrong with these, if anything; known before there is a recording."""
    if language is not None and not (len(language) <= NAME and _LANGUAGE.fullmatch(language)):
        yield Problem(
            "language", f"{shown(language)} is not a language code; write one such as 'en'"
        )
    if prompt is not None:
        if not prompt.strip():
            yield Problem("prompt", "is blank; leave it out")
        yield from _text("prompt", prompt)


def _sound(path: str, audio: Audio) -> Iterator[Problem]:
    if essence(audio.mime_type) not in AUDIO_EXTENSIONS:
        known = ", ".join(sorted(AUDIO_EXTENSIONS))
        yield Problem(
            f"{path}.mimeType", f"{audio.mime_type!r} is not a known audio type; known: {known}"
        )
    try:
        empty = not base64.b64decode(audio.data, validate=True)
    except ValueError as error:
        yield Problem(f"{path}.data", f"is not base64: {error}", Advice.ENCODE_AUDIO)
    else:
        if empty:
            yield Problem(f"{path}.data", "is empty; give a recording")


def _options(request: SamplingRequest, limits: Limits) -> Iterator[Problem]:
    if request.max_tokens < 1:
        yield Problem("max_tokens", f"{request.max_tokens} is not a positive number")
    if request.max_tokens > _MOST_TOKENS:
        yield Problem("max_tokens", f"is more than {_MOST_TOKENS}")
    yield from _name("model", request.model)
    yield from _fallbacks(request)
    if request.system_prompt:
        yield from _text("system_prompt", request.system_prompt)
    for name, value in request.metadata.items():
        # It names requests in the ledger, and some wires carry it.
        yield from _text("metadata", f"{name}{value if isinstance(value, str) else ''}")
    if request.temperature is not None:
        yield from _temperature(request.temperature, limits)
    stops = request.stop_sequences
    if problem := too_many("stop_sequences", len(stops), limits, "max_stop_sequences"):
        yield problem
    for index, sequence in enumerate(stops[: limits.max_stop_sequences]):
        if not sequence:
            yield Problem(f"stop_sequences[{index}]", "is empty; leave it out")
        yield from _text(f"stop_sequences[{index}]", sequence)
    yield from _timeout(request.timeout)
    for index, tool in enumerate(request.tools):
        yield from _name(f"tools[{index}].name", tool.name)
    if request.output_schema is not None:
        yield from _name("output_schema.name", request.output_schema.name)
    if request.model_preferences is not None:
        yield from _preferences(request.model_preferences)


def _fallbacks(request: SamplingRequest) -> Iterator[Problem]:
    names = request.fallback_models
    if names and not request.model:
        yield Problem("fallback_models", "needs a model to fall back from; give model")
    if len(names) >= _MOST_MODELS:
        yield Problem("model", f"{len(names) + 1} models given, at most {_MOST_MODELS} are allowed")
        return
    for index, name in enumerate(names, 1):
        if not name:
            yield Problem(f"model[{index}]", "is empty; give the name of a model")
        yield from _name(f"model[{index}]", name)


def _temperature(temperature: float | None, limits: Limits) -> Iterator[Problem]:
    if temperature is not None and not 0 <= temperature <= limits.max_temperature:
        yield Problem(
            "temperature", f"{temperature} is not between 0 and {limits.max_temperature:g}"
        )


def _timeout(seconds: float | None) -> Iterator[Problem]:
    if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
        yield Problem("timeout", f"{seconds} is not a positive number of seconds")


def _name(path: str, name: str | None) -> Iterator[Problem]:
    if name and (problem := too_long(name)):
        yield Problem(path, problem)
    elif name and not _is_sound(name):
        yield from _text(path, name)
    elif name and (name != name.strip() or not name.isprintable()):
        problem = "a name has no blanks around it and no invisible characters"
        yield Problem(path, f"is {name!r}: {problem}")


def _text(path: str, text: str) -> Iterator[Problem]:
    if not _is_sound(text):
        yield Problem(path, "holds half a character (a lone surrogate)")


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        # It stems from undecodable bytes of a command line or file name; no wire can carry it.
        return False
    return True


def _preferences(preferences: ModelPreferences) -> Iterator[Problem]:
    hints: object = preferences.hints
    if isinstance(hints, str):
        # It is a sequence of strings to Python, and each letter would be a hint that matches.
        yield Problem("model_preferences.hints", "is a single text; give a list of texts")
    else:
        for index, hint in enumerate(preferences.hints):
            # Advice: one that matches no name changes nothing, so only its length is limited.
            path = f"model_preferences.hints[{index}]"
            if problem := too_long(hint):
                yield Problem(path, problem)
            yield from _text(path, hint)
    for name in ("cost", "speed", "intelligence"):
        value: object = getattr(preferences, name)
        if value is not None and not isinstance(value, int | float):
            said = f"{shown(value)} is not a number; give one from 0 to 1"
            yield Problem(f"model_preferences.{name}", said)
        elif value is not None and not 0 <= value <= 1:
            yield Problem(f"model_preferences.{name}", f"{value} is not between 0 and 1")


def _messages(request: SamplingRequest) -> Iterator[Problem]:
    roles = [message.role for message in request.messages]
    if roles.count("system") == len(roles):
        yield Problem("messages", "give at least one user message")
    path = ""
    waiting: Mapping[str, None] = {}
    """The ids of the calls that wait for their results, in their order."""
    for index, message in enumerate(request.messages):
        if not waiting and _is_one_text(message):
            continue
        yield from _content(f"messages[{index}]", message)
        if message.role == "system":
            continue
        path = f"messages[{index}]"
        yield from _balance(path, message, waiting)
        uses = message.tool_uses if message.role == "assistant" else ()
        waiting = dict.fromkeys(use.id for use in uses)
    for identifier in waiting:
        yield Problem(path, f"the call {identifier!r} has no tool result after it")


def _is_one_text(message: Message) -> bool:
    """Whether it is a turn of one sound text, as most are: the other checks find no fault in it."""
    if len(message.content) != 1 or message.role == "system":
        return False
    part = message.content[0]
    return isinstance(part, Text) and part.text.strip() != "" and _is_sound(part.text)


def _content(path: str, message: Message) -> Iterator[Problem]:
    if not message.content:
        yield Problem(f"{path}.content", "is empty; give at least one part")
    for index, part in enumerate(message.content):
        yield from _place(f"{path}.content[{index}]", part, message.role)
        yield from _part(f"{path}.content[{index}]", part)
    blank = all(isinstance(part, Text) and not part.text.strip() for part in message.content)
    if blank and message.content and message.role != "assistant":
        yield Problem(f"{path}.content", "is blank; say something")


def _place(path: str, part: Content, role: str) -> Iterator[Problem]:
    if isinstance(part, ToolUse | MCPCall | Reasoning) and role != "assistant":
        what = "reasoning" if isinstance(part, Reasoning) else "a tool call"
        yield Problem(path, f"{what} belongs to the assistant, not to the {role}")
    elif isinstance(part, ToolResult) and role != "user":
        yield Problem(path, f"a tool result belongs to the user, not to the {role}")
    elif isinstance(part, Image | Audio) and role == "system":
        yield Problem(path, "a system message may hold text only")


def _part(path: str, part: Content) -> Iterator[Problem]:
    if isinstance(part, Text | Reasoning):
        yield from _text(path, part.text)
    elif isinstance(part, Image):
        if not (part.url or (part.data and part.mime_type)):
            yield Problem(path, "an image needs data with a mimeType, or a url")
        elif part.data and (wrong := data_problem(part)):
            yield Problem(f"{path}.{wrong[0]}", wrong[1])
        if part.url and (problem := too_long(part.url, URL)):
            yield Problem(f"{path}.url", f"{problem}; send the image itself")
        elif part.url and (reason := forbidden(host_of(part.url))):
            # A provider of one's own would fetch it from there.
            yield Problem(f"{path}.url", f"its host {reason}; give the address of an image")
    elif isinstance(part, Audio):
        if not (part.data and part.mime_type):
            yield Problem(path, "audio needs data and a mimeType")
        elif wrong := data_problem(part):
            yield Problem(f"{path}.{wrong[0]}", wrong[1])
    elif isinstance(part, ToolResult | MCPCall):
        for index, inner in enumerate(part.content):
            yield from _part(f"{path}.content[{index}]", inner)
    elif not isinstance(part, ToolUse):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield Problem(path, f"{type(part).__name__} is not a content part")


def _balance(path: str, message: Message, waiting: Mapping[str, None]) -> Iterator[Problem]:
    results = [part for part in message.content if isinstance(part, ToolResult)]
    if results and len(results) != len(message.content):
        yield Problem(f"{path}.content", "a message with tool results may hold nothing else")
    calls = [use.id for use in message.tool_uses]
    if len(set(calls)) != len(calls):
        yield Problem(path, "two calls have the same id")
    answered = {result.tool_use_id for result in results}
    for identifier in waiting:
        if identifier not in answered:
            yield Problem(path, f"the call {identifier!r} before it has no tool result here")
    for result in results:
        if result.tool_use_id not in waiting:
            yield Problem(path, f"the tool result {result.tool_use_id!r} answers no call before it")
    if len(answered) != len(results):
        yield Problem(path, "a call is answered twice")


def _tools(request: SamplingRequest) -> Iterator[Problem]:
    names: set[str] = set()
    for index, tool in enumerate(request.tools):
        if not tool.name:
            yield Problem(f"tools[{index}].name", "is empty")
        elif tool.name in names:
            yield Problem(f"tools[{index}].name", f"{tool.name!r} is there twice")
        names.add(tool.name)
    choice = request.tool_choice
    if choice is None:
        return
    if choice.mode == "tool" and choice.name not in names:
        yield Problem("tool_choice", f"{choice.name!r} is not one of the tools")
    if choice.mode == "required" and not names and not request.mcp_tools:
        yield Problem("tool_choice", "is 'required', but there are no tools")
