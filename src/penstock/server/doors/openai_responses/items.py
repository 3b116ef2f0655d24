"""The items of a Responses request, and the way back from the engine's paths to the caller's.

Neighbouring items of the assistant are one turn, and so are neighbouring results of tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

import msgspec

from penstock.contract.errors import InvalidRequest, MalformedResponse, Problem
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Message,
    Reasoning,
    Role,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.server.doors.openai_chat.messages import InputAudio, read_audio, read_image, required
from penstock.server.doors.openai_responses.state import (
    FOREIGN_ORIGIN,
    OPENAI_ID,
    OPENAI_PHASE,
    is_sealed,
    unseal,
)
from penstock.server.errors import unsupported
from penstock.streaming.assemble import parse_arguments

_NUMBERED = re.compile(r"messages\[(\d{1,9})\](?:\.content\[(\d{1,9})\])?(.*)", re.DOTALL)
_ITEMS_OF_ASSISTANT = frozenset({"function_call", "reasoning", "mcp_call", "image_generation_call"})


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class WirePart(_Wire):
    """A part of a message's or a result's content, of any type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    input_audio: InputAudio | None = None


class WireItem(_Wire):
    """An item of any type; without one, it is a message."""

    type: str = "message"
    role: str | None = None
    content: str | list[WirePart] | None = None
    phase: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[WirePart] | None = None
    summary: list[WirePart] | None = None
    encrypted_content: str | None = None
    server_label: str | None = None
    error: Any = None
    result: str | None = None
    output_format: str | None = None


class Dialogue(msgspec.Struct, frozen=True, dict=True):
    """The turns, and where each part of them stands in the caller's `input`."""

    messages: tuple[Message, ...]
    places: tuple[tuple[str, ...], ...]

    def place(self, path: str, *, without_system: bool = False) -> str | None:
        """The caller's name of the engine's `messages[...]`; None for what is not in there.

        `without_system`: numbered as a provider does, which has the system's turns elsewhere.
        """
        match = _NUMBERED.fullmatch(path)
        if match is None:
            return None
        numbered = self._without_system if without_system else self.places
        number, part = int(match[1]), match[2]
        if number >= len(numbered):
            return "input"
        places = numbered[number]
        if part is not None and int(part) < len(places):
            return places[int(part)] + match[3]
        # A turn of several items has no name there; that of its first item leads to it.
        first = places[0].partition(".content")[0] if places else "input"
        return first + match[3]

    @cached_property
    def _without_system(self) -> Sequence[tuple[str, ...]]:
        each = zip(self.messages, self.places, strict=True)
        return [places for message, places in each if message.role != "system"]


class _Turns:
    """Collects parts into turns."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.places: list[tuple[str, ...]] = []
        self._role: Role | None = None
        self._results = False
        self._parts: list[Content] = []
        self._paths: list[str] = []
        self._seals: list[str] = []

    def add(self, role: Role, part: Content, path: str, *, result: bool = False) -> None:
        """A part of an item that shares its turn with its neighbours of the same kind."""
        if role != self._role or result != self._results:
            self.flush()
            self._role, self._results = role, result
        self._parts.append(part)
        self._paths.append(path)

    def seal(self, sealed: str) -> None:
        """What belongs to the assistant's turn here."""
        if self._role != "assistant":
            self.flush()
            self._role, self._results = "assistant", False
        self._seals.append(sealed)

    def turn(self, role: Role, parts: Sequence[Content], paths: Sequence[str]) -> None:
        """A whole turn."""
        self.flush()
        self.messages.append(Message(role, tuple(parts)))
        self.places.append(tuple(paths))

    def flush(self) -> None:
        """End the turn that is being collected."""
        parts, paths, seals = self._parts, self._paths, self._seals
        if seals:
            whole = unseal(seals, parts)
            if whole is not parts:
                # Parts that are not shown have no place of their own.
                base = paths[0] if paths else "input"
                parts, paths = list(whole), [base] * len(whole)
        if self._role is not None and parts:
            self.messages.append(Message(self._role, tuple(parts)))
            self.places.append(tuple(paths))
        self._role, self._parts, self._paths, self._seals = None, [], [], []


def read_input(wire: str | Sequence[WireItem]) -> Dialogue:
    """The conversation; raises InvalidRequest or HttpProblem naming the item."""
    if isinstance(wire, str):
        return Dialogue((Message("user", (Text(wire),)),), (("input",),))
    turns = _Turns()
    for index, item in enumerate(wire):
        path = f"input[{index}]"
        kind = item.type
        if kind == "message":
            _add_message(turns, item, path)
        elif kind == "function_call_output":
            call_id = required(item.call_id, f"{path}.call_id")
            turns.add("user", ToolResult(call_id, _output(item, path)), path, result=True)
        elif kind in _ITEMS_OF_ASSISTANT:
            _add_of_assistant(turns, item, path)
        elif kind != "mcp_list_tools":  # The servers are asked again.
            _refuse(kind, path)
    turns.flush()
    return Dialogue(tuple(turns.messages), tuple(turns.places))


def _refuse(kind: str, path: str) -> NoReturn:
    remedy = "leave it out"
    if kind == "item_reference":
        remedy = "nothing is stored here: send the item itself, as clients do with `store: false`"
    raise unsupported(f"{path}.type", f"items of type {kind!r} are not supported here; {remedy}")


def _add_message(turns: _Turns, item: WireItem, path: str) -> None:
    role = required(item.role, f"{path}.role")
    content = required(item.content, f"{path}.content")
    if role == "assistant":
        meta: JSONObject | None = {OPENAI_PHASE: item.phase} if item.phase else None
        for text, place in _said(content, path):
            # Beside calls, many clients write an empty text that nobody said.
            if text:
                turns.add("assistant", Text(text, meta=meta), place)
        return
    if role not in ("user", "system", "developer"):
        known = "user, assistant, system, developer"
        raise _wrong(f"{path}.role", f"{role!r} is none of {known}")
    if isinstance(content, str):
        parts: list[Content] = [Text(content)]
        paths = [f"{path}.content"]
    else:
        paths = [f"{path}.content[{place}]" for place in range(len(content))]
        parts = [_input(part, place) for part, place in zip(content, paths, strict=True)]
    turns.turn("user" if role == "user" else "system", parts, paths)


def _said(content: str | list[WirePart], path: str) -> list[tuple[str, str]]:
    """What the assistant has said, with its places."""
    if isinstance(content, str):
        return [(content, f"{path}.content")]
    said: list[tuple[str, str]] = []
    for index, part in enumerate(content):
        place = f"{path}.content[{index}]"
        if part.type == "output_text":
            said.append((required(part.text, f"{place}.text"), place))
        elif part.type == "refusal":
            said.append((required(part.refusal, f"{place}.refusal"), place))
        else:
            raise unsupported(
                f"{place}.type", f"{part.type!r} cannot be part of an assistant message"
            )
    return said


def _add_of_assistant(turns: _Turns, item: WireItem, path: str) -> None:
    if item.type == "reasoning":
        thought = _thought(item)
        sealed = item.encrypted_content or ""
        if is_sealed(sealed):
            turns.seal(sealed)
        if thought is not None:
            turns.add("assistant", thought, path)
    elif item.type == "function_call":
        call_id = required(item.call_id, f"{path}.call_id")
        name = required(item.name, f"{path}.name")
        turns.add("assistant", ToolUse(call_id, name, _arguments(item, path)), path)
    elif item.type == "mcp_call":
        turns.add("assistant", _mcp_call(item, path), path)
    else:
        picture = required(item.result, f"{path}.result")
        kind = item.output_format or "png"
        turns.add("assistant", Image(data=picture, mime_type=f"image/{kind}"), path)


def _thought(item: WireItem) -> Reasoning | None:
    parts = item.summary or (item.content if isinstance(item.content, list) else None) or ()
    text = "\n\n".join(part.text for part in parts if part.text)
    signature = item.encrypted_content
    if signature and not is_sealed(signature):
        meta: JSONObject | None = {OPENAI_ID: item.id} if item.id else None
        return Reasoning(
            text, signature=signature, redacted=not text, origin=FOREIGN_ORIGIN, meta=meta
        )
    return Reasoning(text) if text else None


def _arguments(item: WireItem, path: str) -> JSONObject:
    try:
        return parse_arguments(item.arguments or "", tool=item.name or "")
    except (MalformedResponse, RecursionError) as error:
        raise _wrong(f"{path}.arguments", str(error)) from error


def _mcp_call(item: WireItem, path: str) -> MCPCall:
    server = required(item.server_label, f"{path}.server_label")
    name = required(item.name, f"{path}.name")
    failed = item.error is not None
    content = _failure(item.error) if failed else _output(item, path)
    return MCPCall(item.id or "", server, name, _arguments(item, path), content, failed)


def _failure(error: Any) -> tuple[Text | Image | Audio, ...]:
    match error:
        case str(text) | {"message": str(text)} | {"content": [{"text": str(text)}]}:
            return (Text(text),)
        case _:
            return (Text(msgspec.json.encode(error).decode()),)


def _output(item: WireItem, path: str) -> tuple[Text | Image | Audio, ...]:
    output = item.output
    if output is None and item.type == "mcp_call":
        return ()
    output = required(output, f"{path}.output")
    if isinstance(output, str):
        return (Text(output),)
    return tuple(_input(part, f"{path}.output[{place}]") for place, part in enumerate(output))


def _input(part: WirePart, path: str) -> Text | Image | Audio:
    kind = part.type
    if kind == "input_text":
        return Text(required(part.text, f"{path}.text"))
    if kind == "input_image":
        return _image(part, path)
    if kind == "input_audio":
        return read_audio(required(part.input_audio, f"{path}.input_audio"))
    raise unsupported(f"{path}.type", f"content parts of type {kind!r} are not supported here")


def _image(part: WirePart, path: str) -> Image:
    if part.image_url is None and part.file_id is not None:
        raise unsupported(
            f"{path}.file_id", "no files are stored here; send the picture in image_url"
        )
    url = required(part.image_url, f"{path}.image_url")
    # "auto" is what every wire does by itself.
    detail = None if part.detail == "auto" else part.detail
    return read_image(url, detail, f"{path}.image_url")


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
