"""Answers in: the body of a reply, or the lines of a stream, become a `Reply`.

A whole answer is `{"say": "...", "why": "done", "read": 3, "wrote": 5}`. A stream has a line for
each piece of `say`; its last line has `why`, `read` and `wrote`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock import Chunk, Text, Usage
from penstock.plugins import (
    Finished,
    ModelInfo,
    ProviderEvent,
    Reply,
    StreamReader,
    check_ending,
    read_json,
    stop_detail,
    stop_reason,
)

REASONS = {"done": "stop", "limit": "length"}
"""Acme's own words for reasons that are in Penstock's table; all others are looked up there."""


class Answer(msgspec.Struct):
    """A whole answer, or a line of one."""

    say: str = ""
    why: str | None = None
    read: int | None = None
    wrote: int | None = None


class Engines(msgspec.Struct):
    """What `GET /engines` answers."""

    engines: list[str]


_answer = msgspec.json.Decoder(Answer).decode
_engines = msgspec.json.Decoder(Engines).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200."""
    answer = read_json(_answer, body, "the answer cannot be read")
    return _reply(answer.say, answer)


def decode_models(body: bytes) -> list[ModelInfo]:
    """The models on offer; asking for them is also the health check."""
    page = read_json(_engines, body, "the list of engines cannot be read")
    return [ModelInfo(name) for name in page.engines]


class AcmeStream(StreamReader[bytes]):
    """The lines of one answer. The base class decides what an end without `why` means."""

    end_mark = "`why`"
    content = "answer"

    def __init__(self) -> None:
        """Expect the first line."""
        super().__init__()
        self._said: list[str] = []

    def _read(self, frames: Sequence[bytes], events: list[ProviderEvent]) -> None:
        for frame in frames:
            # A line that cannot be read may hold words of the answer: it breaks the stream, and
            # Penstock continues it elsewhere.
            line = read_json(_answer, frame, "a line of the stream cannot be read")
            self._begun = True
            if line.say:
                self._said.append(line.say)
                events.append(Chunk(line.say))
            if line.why is not None:
                events.append(Finished(_reply(self._partial(), line)))
                self._ended = True
                return

    def _partial(self) -> str:
        return "".join(self._said)


def _reply(text: str, last: Answer) -> Reply:
    reason = REASONS.get(last.why or "", last.why)
    # A reason such as `error` raises: retry, failover or continuation follow.
    check_ending(reason, partial=text)
    content = (Text(text),)
    return Reply(
        content=content,
        model="",  # the wire does not say; Penstock uses the one that was asked
        stop_reason=stop_reason(reason, content),
        usage=Usage(last.read, last.wrote),
        stop_detail=stop_detail(reason),  # the name of a reason that the table does not have
    )
