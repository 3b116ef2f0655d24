"""The messages of a Chat Completions request, and the way back to the caller's numbering."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.server.doors.openai_tools import in_callers_places
from penstock.server.errors import unsupported
from penstock.streaming.assemble import parse_arguments

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII)
_NUMBERED = re.compile(r"messages\[(\d{1,9})\](.*)", re.DOTALL)
T = TypeVar("T")

_AUDIO_TYPES: Mapping[str, str] = {"mp3": "audio/mpeg"}


class InputAudio(msgspec.Struct, gc=False):
    """A recording as OpenAI's wires carry it."""

    data: str
    format: str


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _ImageUrl(_Wire):
    url: str
    detail: str | None = None


class WirePart(_Wire):
    """A part of a message's content, of any type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _ImageUrl | str | None = None
    input_audio: InputAudio | None = None


class _Function(_Wire):
    name: str
    arguments: str = ""


class _ToolCall(_Wire):
    id: str
    type: str = "function"
    function: _Function | None = None


class WireMessage(_Wire):
    """A message of any role."""

    role: str
    content: str | list[WirePart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


def read_messages(wire: Sequence[WireMessage]) -> tuple[Message, ...]:
    """The conversation; a run of tool messages becomes one turn that holds all their results."""
    messages: list[Message] = []
    results: list[Content] = []
    for index, message in enumerate(wire):
        if message.role == "tool":
            results.append(_tool_result(message, index))
            continue
        if results:
            messages.append(Message("user", tuple(results)))
            results = []
        messages.append(_message(message, index))
    if results:
        messages.append(Message("user", tuple(results)))
    return tuple(messages)


def in_callers_numbers(
    error: InvalidRequest, messages: Sequence[Message], tool_places: Sequence[str] = ()
) -> InvalidRequest:
    """The error with the wire's numbers: there, a turn of results is several messages.

    `tool_places` says where each MCP server stands among the tools.
    """
    if type(error) is not InvalidRequest or not error.problems:
        return error
    # Where each message begins on the wire, and where the last one ends.
    starts = [0, *itertools.accumulate(map(_wire_length, messages))]
    told = InvalidRequest.of(
        Problem(in_callers_places(_renumbered(problem.path, starts), tool_places), problem.message)
        for problem in error.problems
    )
    told.located(
        provider=error.provider,
        model=error.model,
        request_id=error.request_id,
        metadata=error.metadata,
    )
    return told


def _renumbered(path: str, starts: Sequence[int]) -> str:
    match = _NUMBERED.fullmatch(path)
    if match is None:
        return path
    return f"messages[{starts[min(int(match[1]), len(starts) - 1)]}]{match[2]}"


def _wire_length(message: Message) -> int:
    return sum(isinstance(part, ToolResult) for part in message.content) or 1


def _message(wire: WireMessage, index: int) -> Message:
    role = wire.role
    if role == "user":
        return Message("user", _user_content(wire, index))
    if role == "assistant":
        return Message("assistant", tuple(_assistant_content(wire, index)))
    if role in ("system", "developer"):
        return Message("system", tuple(_texts(wire, index)))
    known = "system, developer, user, assistant, tool"
    raise _wrong(f"messages[{index}].role", f"{role!r} is none of {known}")


def _user_content(wire: WireMessage, index: int) -> tuple[Content, ...]:
    content = wire.content
    if isinstance(content, str):
        return (Text(content),)
    return tuple(
        _part(part, f"messages[{index}].content[{place}]")
        for place, part in enumerate(content or ())
    )


def _assistant_content(wire: WireMessage, index: int) -> Iterator[Content]:
    if wire.reasoning_content:
        yield Reasoning(wire.reasoning_content)
    # Beside tool calls, many clients write an empty text that nobody said.
    if wire.content or not wire.tool_calls:
        yield from _texts(wire, index)
    if wire.refusal:
        yield Text(wire.refusal)
    for place, call in enumerate(wire.tool_calls or ()):
        path = f"messages[{index}].tool_calls[{place}]"
        if call.type != "function":
            raise unsupported(f"{path}.type", f"calls of type {call.type!r} are not supported here")
        if call.function is None:
            raise _wrong(f"{path}.function", "is missing")
        try:
            arguments = parse_arguments(call.function.arguments, tool=call.function.name)
        except (MalformedResponse, RecursionError) as error:
            raise _wrong(f"{path}.function.arguments", str(error)) from error
        yield ToolUse(call.id, call.function.name, arguments)


def _tool_result(wire: WireMessage, index: int) -> ToolResult:
    if wire.tool_call_id is None:
        raise _wrong(f"messages[{index}].tool_call_id", "is missing")
    return ToolResult(wire.tool_call_id, tuple(_texts(wire, index)))


def _texts(wire: WireMessage, index: int) -> Iterator[Text]:
    """The content of the roles that can only write: everybody's but the user's."""
    content = wire.content
    if isinstance(content, str):
        yield Text(content)
        return
    for place, part in enumerate(content or ()):
        path = f"messages[{index}].content[{place}]"
        if part.type == "text":
            yield Text(required(part.text, f"{path}.text"))
        elif part.type == "refusal" and wire.role == "assistant":
            yield Text(required(part.refusal, f"{path}.refusal"))
        else:
            raise unsupported(
                f"{path}.type", f"{part.type!r} cannot be part of a {wire.role} message"
            )


def _part(part: WirePart, path: str) -> Content:
    kind = part.type
    if kind == "text":
        return Text(required(part.text, f"{path}.text"))
    if kind == "image_url":
        image = required(part.image_url, f"{path}.image_url")
        url, detail = (image, None) if isinstance(image, str) else (image.url, image.detail)
        return read_image(url, detail, f"{path}.image_url")
    if kind == "input_audio":
        return read_audio(required(part.input_audio, f"{path}.input_audio"))
    raise unsupported(f"{path}.type", f"content parts of type {kind!r} are not supported here")


def read_audio(audio: InputAudio) -> Audio:
    """A recording with its MIME type."""
    return Audio(audio.data, _AUDIO_TYPES.get(audio.format, f"audio/{audio.format}"))


def read_image(url: str, detail: str | None, path: str) -> Image:
    """A picture by its address, or in a data URL; raises InvalidRequest naming the path."""
    meta = {"detail": detail} if detail else None
    if url.startswith(("http://", "https://")):
        return Image(url=url, meta=meta)
    match = _DATA_URL.match(url)
    if match is None:
        raise _wrong(path, "give an http(s) address, or data:image/...;base64,...")
    return Image(data=url[match.end() :], mime_type=match[1], meta=meta)


def required(value: T | None, path: str) -> T:
    """The value; raises InvalidRequest where the wire must have one and has none."""
    if value is None:
        raise _wrong(path, "is missing")
    return value


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
