"""The shapes of this wire, as far as they are read; any other field is skipped."""

from __future__ import annotations

from typing import Any

import msgspec


class _Shape(msgspec.Struct, gc=False):
    """What all shapes share: without cycles, they are no work for the garbage collector."""


class Function(_Shape):
    """The name and the arguments of a call; emulators send the arguments as text too."""

    name: str | None = None
    arguments: dict[str, Any] | str | None = None


class ToolCall(_Shape):
    """A whole tool call; only newer servers give it an id."""

    id: str | None = None
    function: Function | None = None


class Piece(_Shape):
    """A whole message, or the next piece of one."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class Line(_Shape):
    """A line of a stream, without what every line repeats."""

    message: Piece | None = None
    done: bool = False
    error: Any = None


class Answer(Line):
    """A whole body, or the last line of a stream."""

    model: str | None = None
    done_reason: str | None = None
    prompt_eval_count: msgspec.Raw = msgspec.Raw()
    eval_count: msgspec.Raw = msgspec.Raw()
