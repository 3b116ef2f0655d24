"""What an upstream does, said in no provider's words; each dialect renders it as its own wire.

`Scenario` is one answer, good or bad. Its pieces are what a stream is made of: every piece of
text, of thinking and of a call's arguments is one event of the wire, and `after=2` means "after
the second such piece", whatever else the dialect sends around them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Stop: TypeAlias = Literal["end", "max_tokens", "stop_sequence", "tool_use", "filtered"]

FailureKind: TypeAlias = Literal[
    "rate_limit",
    "quota",
    "authentication",
    "permission",
    "unknown_model",
    "context_length",
    "bad_request",
    "content_filter",
    "server_error",
    "overloaded",
]

FaultKind: TypeAlias = Literal[
    "malformed",  # an event that is not the protocol, with the good ones around it
    "truncated",  # the body ends well, the stream does not
    "no_terminal",  # everything up to the event that says why it ended
    "cut",  # the connection ends in the middle of the body
    "reset",  # the connection is torn down
    "stall",  # nothing more comes, and the connection stays
    "pings",  # nothing more comes but signs of life
    "open",  # everything comes, and the body does not end
    "silent",  # not even headers come
    "error_event",  # the dialect's own error inside the stream
    "error_in_200",  # an error's body under a good status
    "html_error",  # a proxy's page with status 502
    "html",  # a proxy's page with status 200
    "wrong_type",  # a whole answer where a stream was asked for, and the other way round
    "not_json",  # a good status and type, and a body that is neither
    "redirect",  # the answer is somewhere else
    "gzip",  # a compressed body, if the caller takes one
]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model; its arguments are streamed in these fragments of JSON."""

    id: str
    name: str
    fragments: tuple[str, ...]

    @classmethod
    def of(cls, id: str, name: str, arguments: Mapping[str, Any], pieces: int = 3) -> Call:
        """Cut the arguments' JSON into about this many pieces."""
        text = json.dumps(arguments, ensure_ascii=False)
        size = -(-len(text) // pieces)
        return cls(id, name, tuple(text[at : at + size] for at in range(0, len(text), size)))

    @property
    def json(self) -> str:
        """The arguments as the wire carries them."""
        return "".join(self.fragments)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments themselves."""
        return json.loads(self.json)


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call that the provider itself makes at an MCP server, and what the server answers."""

    server: str
    call: Call
    answer: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """Usage; `input` is the whole prompt with its cached part, `output` includes the thinking."""

    input: int = 11
    output: int = 7
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that the provider reports."""

    kind: FailureKind
    retry_after: int | None = None
    """Seconds, in the header in which this provider says so."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that no protocol allows, `after` so many pieces of the stream."""

    kind: FaultKind
    after: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait after so many pieces until the test says `resume`; no clock is involved.

    A whole answer waits before its first byte.
    """

    after: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One answer of an upstream."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    mcp: tuple[ServerCall, ...] = ()
    """Made and answered after the thinking and before the text; not pieces of the stream."""
    refusal: str = ""
    """The model's own words for "no", in APIs that carry them beside the text."""
    stop: Stop = "end"
    tokens: Tokens | None = Tokens()
    """None where the provider does not count, or does not say."""
    response_id: str = "answer-1"
    failure: Failure | None = None
    """Instead of an answer; with the fault `error_event`, in the middle of it."""
    fault: Fault | None = None
    pause: Pause | None = None
    fragment: int = 0
    """Bytes in one network write; 0 writes event by event."""

    @property
    def whole_text(self) -> str:
        """All pieces of text, joined."""
        return "".join(self.text)

    def has(self, *kinds: FaultKind) -> bool:
        """Whether the fault is one of these."""
        return self.fault is not None and self.fault.kind in kinds


VECTOR_SIZE = 8
"""Dimensions of an embedding when the caller names none."""
MODEL_IDS = ("model-one", "model-two")
"""What every upstream's model list holds."""


def vector_of(text: str, size: int | None = None) -> tuple[float, ...]:
    """The embedding that upstreams give this text; its numbers survive any float format."""
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(digest[at % 32] / 256 for at in range(size or VECTOR_SIZE))
