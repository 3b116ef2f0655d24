"""Collects the deltas of one stream into the content of its reply."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.contract.errors import MalformedResponse
from penstock.contract.messages import Content, JSONObject, Reasoning, Text, ToolUse


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

    def __init__(self) -> None:
        """Start empty."""
        self._parts: list[_TextBuffer | _ReasoningBuffer | _ToolBuffer] = []
        self._tools: dict[int, _ToolBuffer] = {}

    def text(self, piece: str) -> None:
        """Append to the current text part, or begin one."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _TextBuffer):
            last = _TextBuffer()
            self._parts.append(last)
        last.pieces.append(piece)

    def reasoning(self, piece: str = "", *, signature: str | None = None) -> None:
        """Append to the current thinking part, or begin one."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _ReasoningBuffer):
            last = _ReasoningBuffer()
            self._parts.append(last)
        last.pieces.append(piece)
        last.signature = signature or last.signature

    def tool(self, index: int, *, id: str = "", name: str = "", arguments: str = "") -> None:
        """Append to the tool call of this index, or begin it."""
        call = self._tools.get(index)
        if call is None:
            call = self._tools[index] = _ToolBuffer()
            self._parts.append(call)
        call.id = call.id or id
        call.name = call.name or name
        call.pieces.append(arguments)

    @property
    def has_tools(self) -> bool:
        """Whether the model asked for any tool."""
        return bool(self._tools)

    @property
    def partial_text(self) -> str:
        """All text so far."""
        return "".join(
            "".join(part.pieces) for part in self._parts if isinstance(part, _TextBuffer)
        )

    def content(self, *, cut: bool = False) -> tuple[Content, ...]:
        """The finished parts; raises MalformedResponse when a call's arguments are not JSON.

        `cut` says that the answer ran out of tokens: a call that it broke off at its end is left
        out.
        """
        parts = self._parts[:-1] if cut and self._ends_in_broken_call() else self._parts
        return tuple(part.build() for part in parts)

    def _ends_in_broken_call(self) -> bool:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _ToolBuffer):
            return False
        try:
            last.build()
        except MalformedResponse:
            return True
        # No arguments at all means "none" in a whole answer, and "not yet" in a cut one.
        return not "".join(last.pieces).strip()


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


class _ToolBuffer:
    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    def build(self) -> Content:
        return ToolUse(self.id, self.name, parse_arguments("".join(self.pieces), tool=self.name))
