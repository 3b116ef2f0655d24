"""The messages of a Messages request, and the way back to the caller's numbering.

On this wire a user's turn may hold a tool's results and more, and neighbouring turns of one role
are one turn. Here results stand alone, and all of them in the turn behind their calls: so a turn is
divided where it holds both, and calls and results of neighbouring turns are put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import (
    Content,
    Image,
    JSONObject,
    Message,
    Role,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.server.doors.anthropic.errors import wire_path
from penstock.server.doors.anthropic.thinking import unseal
from penstock.server.errors import unsupported

_NUMBERED = re.compile(r"messages\[(\d{1,9})\](?:\.content\[(\d{1,9})\])?(.*)", re.DOTALL)
T = TypeVar("T")

_ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_REMEDIES: Mapping[str, str] = {
    "document": "documents are not supported here; send their text, or pictures of their pages",
    "search_result": "search results are not supported here; send their text",
}


class _Wire(msgspec.Struct, gc=False):
    """What the shapes below share: they hold no cycles, so the collector need not look at them."""


class _Source(_Wire):
    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class WireBlock(_Wire):
    """A block of content, of any type."""

    type: str
    text: str | None = None
    source: _Source | str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: JSONObject | None = None
    tool_use_id: str | None = None
    content: str | list[WireBlock] | WireBlock | None = None
    is_error: bool | None = None
    cache_control: Any = None


class WireMessage(_Wire):
    """A message of any role."""

    role: str
    content: str | list[WireBlock]


_Place: TypeAlias = tuple[int, int | None]
"""A message of the caller's, and the block in it; None where its content is a plain text."""


class _Turn(NamedTuple):
    role: Role
    parts: list[Content]
    places: list[_Place]

    def take(self, part: Content, place: _Place) -> None:
        self.parts.append(part)
        self.places.append(place)


class Conversation:
    """The messages as the engine takes them, each part with its place on the wire."""

    __slots__ = ("_joined", "_role", "_run", "_turns", "messages")

    def __init__(self, wire: Sequence[WireMessage]) -> None:
        """Read all messages; raises InvalidRequest or HttpProblem naming the block."""
        self._turns: list[_Turn] = []
        self._run = 0  # where the neighbouring turns of one role begin
        self._role: str | None = None
        self._joined: _Turn | None = None
        """The turn of this run that others join: the assistant's, or that of all results."""
        messages = _plain(wire)
        if messages is None:
            for index, message in enumerate(wire):
                self._add(message, index)
            messages = [Message(turn.role, tuple(turn.parts)) for turn in self._turns]
        self.messages = tuple(messages)

    def in_callers_words(self, error: InvalidRequest) -> InvalidRequest:
        """The error with the names and numbers that the caller has used."""
        if type(error) is not InvalidRequest or not error.problems:
            return error
        told = InvalidRequest.of(
            [Problem(self._wire_path(problem.path), problem.message) for problem in error.problems]
        )
        told.located(
            provider=error.provider,
            model=error.model,
            request_id=error.request_id,
            metadata=error.metadata,
        )
        return told

    def _add(self, message: WireMessage, index: int) -> None:
        role = message.role
        if role == "system":
            self._turns.append(_turn("system", _texts(message, index)))
            return
        if role != self._role:
            self._role, self._run, self._joined = role, len(self._turns), None
        if role == "user":
            self._add_user(message, index)
        elif role == "assistant":
            if self._joined is None:
                self._joined = self._begin(_Turn("assistant", [], []))
            for part, place in _assistant_parts(message, index):
                self._joined.take(part, place)
        else:
            raise _wrong(f"messages[{index}].role", f"{role!r} is none of user, assistant, system")

    def _add_user(self, message: WireMessage, index: int) -> None:
        rest = _Turn("user", [], [])
        for part, place in _user_parts(message, index):
            (self._results() if isinstance(part, ToolResult) else rest).take(part, place)
        if rest.parts or not message.content:
            self._begin(rest)

    def _begin(self, turn: _Turn) -> _Turn:
        self._turns.append(turn)
        return turn

    def _results(self) -> _Turn:
        """The turn of all results of the present run, which comes before what else was said."""
        if self._joined is None:
            self._joined = _Turn("user", [], [])
            self._turns.insert(self._run, self._joined)
        return self._joined

    def _wire_path(self, path: str) -> str:
        match = _NUMBERED.fullmatch(path)
        if match is None or int(match[1]) >= len(self.messages):
            return wire_path(path)
        number = int(match[1])
        places = self._turns[number].places if self._turns else [(number, None)]
        part = int(match[2]) if match[2] else None
        if part is None or part >= len(places):
            index = places[0][0] if places else number
            return f"messages[{index}]{match[3]}"
        return f"{_path(*places[part])}{match[3]}"


def _plain(wire: Sequence[WireMessage]) -> list[Message] | None:
    """The messages if all are plain texts, as many are: then there is nothing to rearrange."""
    messages: list[Message] = []
    for message in wire:
        content, role = message.content, _ROLES.get(message.role)
        if role is None or not isinstance(content, str):
            return None
        messages.append(Message(role, (Text(content),)))
    return messages


def marks_cache(blocks: Iterable[WireBlock]) -> bool:
    """Whether one of these blocks ends a prefix that is to be cached."""
    return any(block.cache_control is not None for block in blocks)


def _path(index: int, block: int | None) -> str:
    return f"messages[{index}].content" + ("" if block is None else f"[{block}]")


def _turn(role: Role, parts: Iterable[tuple[Content, _Place]]) -> _Turn:
    turn = _Turn(role, [], [])
    for part, place in parts:
        turn.take(part, place)
    return turn


def _user_parts(message: WireMessage, index: int) -> Iterator[tuple[Content, _Place]]:
    content = message.content
    if isinstance(content, str):
        yield Text(content), (index, None)
        return
    for number, block in enumerate(content):
        path = _path(index, number)
        if block.type == "tool_result":
            yield _result(block, path), (index, number)
        else:
            yield seen_part(block, path, "a user's turn"), (index, number)


def _assistant_parts(message: WireMessage, index: int) -> Iterator[tuple[Content, _Place]]:
    content = message.content
    if isinstance(content, str):
        yield Text(content), (index, None)
        return
    for number, block in enumerate(content):
        path = _path(index, number)
        kind = block.type
        part: Content
        if kind == "text":
            part = Text(required(block.text, f"{path}.text"))
        elif kind == "thinking":
            thinking = required(block.thinking, f"{path}.thinking")
            part = unseal(thinking, block.signature, f"{path}.signature")
            if not thinking and part.signature is None:
                continue  # Nobody has thought this.
        elif kind == "redacted_thinking":
            data = required(block.data, f"{path}.data")
            part = unseal("", data, f"{path}.data", redacted=True)
        elif kind == "tool_use":
            part = ToolUse(
                required(block.id, f"{path}.id"),
                required(block.name, f"{path}.name"),
                required(block.input, f"{path}.input"),
            )
        else:
            raise _refused(kind, path, "an assistant's turn")
        yield part, (index, number)


def _texts(message: WireMessage, index: int) -> Iterator[tuple[Content, _Place]]:
    content = message.content
    if isinstance(content, str):
        yield Text(content), (index, None)
        return
    for number, block in enumerate(content):
        path = _path(index, number)
        if block.type != "text":
            raise _refused(block.type, path, "a system message")
        yield Text(required(block.text, f"{path}.text")), (index, number)


def _result(block: WireBlock, path: str) -> ToolResult:
    content = block.content
    inner: tuple[Text | Image, ...] = ()
    if isinstance(content, str):
        inner = (Text(content),)
    elif isinstance(content, list):
        inner = tuple(
            seen_part(part, f"{path}.content[{number}]", "a tool's result")
            for number, part in enumerate(content)
        )
    elif content is not None:
        raise _wrong(f"{path}.content", "give a text, or a list of blocks")
    return ToolResult(
        required(block.tool_use_id, f"{path}.tool_use_id"),
        inner,
        is_error=block.is_error is True,
    )


def seen_part(block: WireBlock, path: str, where: str) -> Text | Image:
    """A block that may stand in a user's turn and in a tool's result."""
    if block.type == "text":
        return Text(required(block.text, f"{path}.text"))
    if block.type == "image":
        return _image(required(block.source, f"{path}.source"), f"{path}.source")
    raise _refused(block.type, path, where)


def _image(source: _Source | str, path: str) -> Image:
    if isinstance(source, str):
        raise _wrong(path, "give an object of type base64 or url")
    if source.type == "base64":
        return Image(
            data=required(source.data, f"{path}.data"),
            mime_type=required(source.media_type, f"{path}.media_type"),
        )
    if source.type == "url":
        return Image(url=required(source.url, f"{path}.url"))
    message = f"pictures of type {source.type!r} are not supported here; use base64 or url"
    raise unsupported(f"{path}.type", message)


def required(value: T | None, path: str) -> T:
    """The value; raises InvalidRequest when it is not there."""
    if value is None:
        raise _wrong(path, "is missing")
    return value


def _refused(kind: str, path: str, where: str) -> Exception:
    usual = f"{kind!r} cannot be part of {where} here"
    return unsupported(f"{path}.type", _REMEDIES.get(kind, usual))


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(path, message)])
