"""What a stream consists of: deltas, then exactly one terminal event."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.exchange import Reply, Result


class Chunk(msgspec.Struct, frozen=True, gc=False, tag="chunk"):
    """The next piece of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False, tag="reasoning"):
    """The next piece of the model's visible thinking."""

    text: str


class ToolUseDelta(msgspec.Struct, frozen=True, gc=False, tag="tool_use"):
    """The next piece of a tool call: `id` and `name` come first, then fragments of JSON arguments.

    `index` tells parallel calls apart.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


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


Delta: TypeAlias = Chunk | ReasoningDelta | ToolUseDelta
ProviderEvent: TypeAlias = Delta | Finished
StreamEvent: TypeAlias = Delta | Complete | Error | Cancelled
