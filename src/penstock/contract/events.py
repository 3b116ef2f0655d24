"""What a stream consists of: deltas, then exactly one terminal event."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.contract.errors import PenstockError, Problem
from penstock.contract.exchange import Reply, Result
from penstock.contract.messages import Audio, Image, JSONObject, Reasoning, Text


class Chunk(msgspec.Struct, frozen=True, gc=False, tag="chunk"):
    """The next piece of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag="reasoning", omit_defaults=True):
    """The next piece of the model's visible thinking.

    Thinking that has to go back to its provider ends with a piece whose `text` is empty and whose
    `signed` is the whole part; of thinking that may not be seen, there is no other piece.
    """

    text: str
    signed: Reasoning | None = None


class ToolUseDelta(msgspec.Struct, frozen=True, gc=False, tag="tool_use"):
    """The next piece of a tool call: `id` and `name` come first, then fragments of JSON arguments.

    `index` tells parallel calls apart.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ToolStarted(msgspec.Struct, frozen=True, tag="tool_started"):
    """A tool is being called, and not by the reader of the stream.

    `server` names the MCP server whose tool it is.
    """

    id: str
    name: str
    input: JSONObject
    server: str = ""


class ToolProgress(msgspec.Struct, frozen=True, tag="tool_progress"):
    """How far a tool has come, in its own words and numbers; `total` is None when it does not know.

    The id is that of its `ToolStarted`.
    """

    id: str
    name: str
    progress: float
    total: float | None = None
    message: str | None = None


class ToolEnded(msgspec.Struct, frozen=True, tag="tool_ended"):
    """A tool has answered; the id is that of its `ToolStarted`."""

    id: str
    name: str
    is_error: bool = False
    content: tuple[Text | Image | Audio, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """A provider's terminal event; the engine turns its reply into `Complete`."""

    reply: Reply


class Complete(msgspec.Struct, frozen=True):
    """The stream ended well; the whole result is here too."""

    result: Result


class Error(msgspec.Struct, frozen=True):
    """The stream failed; nothing follows."""

    error: PenstockError


class Cancelled(msgspec.Struct, frozen=True):
    """The stream was cancelled; nothing follows."""


Delta: TypeAlias = Chunk | ReasoningDelta | ToolUseDelta | ToolStarted | ToolEnded
ProviderEvent: TypeAlias = Delta | Finished
StreamEvent: TypeAlias = Delta | Complete | Error | Cancelled


class AnswerRejected(msgspec.Struct, frozen=True, tag="answer_rejected"):
    """The answer does not fit the type that a generator wants: its text is void, a new one follows.

    Only streams of structured generators have it, once at most.
    """

    problems: tuple[Problem, ...]


GeneratorDelta: TypeAlias = Delta | ToolProgress
GeneratorEvent: TypeAlias = GeneratorDelta | AnswerRejected | Complete | Error
"""What the stream of a generator consists of; one that is cancelled is an error there."""
