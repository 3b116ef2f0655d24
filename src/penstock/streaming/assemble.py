"""Collects the deltas of one stream into the content of its reply."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.messages import Content, JSONObject, Reasoning, Text, ToolUse

MAX_TOOL_CALLS = 1024
"""Most tool calls of one answer; a provider may write a call in three bytes."""


MAX_PARTS = 65_536
"""Most parts of one answer; citations and signatures cut a text into many."""
_Part = TypeVar("_Part")


class Parts(list[_Part]):
    """The parts of one answer; `append` raises MalformedResponse beyond `MAX_PARTS`."""

    def append(self, part: _Part, /) -> None:
        """Add a part."""
        if len(self) >= MAX_PARTS:
            raise MalformedResponse(f"the answer has more than {MAX_PARTS} parts", retryable=False)
        super().append(part)


def check_tool_calls(count: int) -> None:
    """Raise MalformedResponse when an answer has more than `MAX_TOOL_CALLS` calls."""
    if count > MAX_TOOL_CALLS:
        raise MalformedResponse(
            f"the answer has more than {MAX_TOOL_CALLS} tool calls", retryable=False
        )


def parse_arguments(text: str, *, tool: str) -> JSONObject:
    """The arguments of a tool call; models write nothing at all for a call without arguments."""
    if not text.strip():
        return {}
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedResponse(
            f"the arguments of the call to {tool!r} are not JSON: {text[:200]!r}"
        ) from error
    if not isinstance(value, dict):
        raise MalformedResponse(
            f"the arguments of the call to {tool!r} are not an object: {text[:200]!r}"
        )
    return value  # pyright: ignore[reportUnknownVariableType]


class Assembler:
    """Keeps what a stream has said so far, in the order in which each part began."""

    __slots__ = ("_parts", "_tools", "run")

    def __init__(self) -> None:
        """Start empty."""
        self._parts: Parts[_TextBuffer | _ReasoningBuffer | CallBuffer | Content] = Parts()
        self._tools: dict[int, CallBuffer] = {}
        self.run: list[str] = []
        """The text since the last part of another kind: always the same list, to append to.

        Most pieces of most streams are text, and so they cost an append and nothing else.
        """

    def text(self, piece: str) -> None:
        """Append to the current text part, or begin one."""
        self.run.append(piece)

    def reasoning(self, piece: str = "", *, signature: str | None = None) -> None:
        """Append to the current thinking part, or begin one."""
        parts = self.settled()
        last = parts[-1] if parts else None
        if not isinstance(last, _ReasoningBuffer):
            last = _ReasoningBuffer()
            parts.append(last)
        last.pieces.append(piece)
        last.signature = signature or last.signature

    def tool(self, index: int, *, id: str = "", name: str = "", arguments: str = "") -> None:
        """Append to the tool call of this index, or begin it."""
        call = self._tools.get(index)
        if call is None:
            call = self._tools[index] = CallBuffer(index)
            self.settled().append(call)
        call.id = call.id or id
        call.name = call.name or name
        call.pieces.append(arguments)

    def whole(self, part: Content) -> None:
        """Append a part that is complete; nothing is ever joined to it."""
        self.settled().append(part)

    @property
    def has_tools(self) -> bool:
        """Whether the model asked for any tool."""
        return bool(self._tools)

    @property
    def partial_text(self) -> str:
        """All text so far."""
        return "".join(
            part.text if isinstance(part, Text) else "".join(part.pieces)
            for part in self.settled()
            if isinstance(part, (Text, _TextBuffer))
        )

    def content(self, *, cut: bool = False) -> tuple[Content, ...]:
        """The finished parts; raises MalformedResponse when a call's arguments are not JSON.

        `cut` says that the answer ran out of tokens: a call that it broke off at its end is left
        out.
        """
        parts = self.settled()
        if cut and parts and isinstance(parts[-1], CallBuffer) and parts[-1].broken:
            parts = parts[:-1]
        return tuple(part.build() if isinstance(part, _BUFFERS) else part for part in parts)

    def settled(self) -> list[Any]:
        """The parts so far, whole ones among them; they may be replaced by others."""
        parts = self._parts
        if self.run:
            last = parts[-1] if parts else None
            if not isinstance(last, _TextBuffer):
                last = _TextBuffer()
                parts.append(last)
            # The strings themselves, which the pool keeps as well: joined, they would exist twice.
            last.pieces += self.run
            self.run.clear()
        return parts


class _TextBuffer:
    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def build(self) -> Content:
        return Text("".join(self.pieces))


class _ReasoningBuffer:
    __slots__ = ("pieces", "signature")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.signature: str | None = None

    def build(self) -> Content:
        return Reasoning("".join(self.pieces), signature=self.signature)


class CallBuffer:
    """A tool call whose arguments come in pieces."""

    __slots__ = ("id", "name", "pieces", "slot")

    def __init__(self, slot: int, id: str = "", name: str = "") -> None:
        """Begin the call with this number, from 0, among the calls of an answer."""
        check_tool_calls(slot + 1)
        self.slot = slot
        self.id = id
        self.name = name
        self.pieces: list[str] = []

    def build(self) -> ToolUse:
        """The part; raises MalformedResponse when its arguments are not an object."""
        return ToolUse(self.id, self.name, parse_arguments("".join(self.pieces), tool=self.name))

    @property
    def broken(self) -> bool:
        """Whether its arguments are not there, at the end of an answer that was cut off."""
        try:
            self.build()
        except MalformedResponse:
            return True
        # No arguments at all means "none" in a whole answer, and "not yet" in a cut one.
        return not "".join(self.pieces).strip()


_BUFFERS = (_TextBuffer, _ReasoningBuffer, CallBuffer)
