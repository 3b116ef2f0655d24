"""What every stream decoder does the same: begin, hold an error back, come to an end.

A dialect reads frames and raises what is wrong with them wherever it notices. When that is, and
whether the stream was whole, is decided here.

A frame that cannot be read breaks the stream if it may hold a part of the answer. Comments, pings
and events of unknown types are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply
from penstock.streaming.sse import ServerSentEvent

Frame = TypeVar("Frame")

DONE = b"[DONE]"
"""The data of the last event of some streams, which is no JSON."""
NO_CONTENT = frozenset({b"", b"null", b"{}", b"[]", DONE})
"""Data of a frame that holds nothing, which some servers send to keep a connection alive."""
_KEEP_ALIVES = frozenset({"ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"})


class _Typed(msgspec.Struct, gc=False):
    type: str = ""


_decode_type = msgspec.json.Decoder(_Typed).decode


def may_hold_content(frame: ServerSentEvent, content_types: Collection[str] | None = None) -> bool:
    """Whether an event that cannot be read may hold a part of the answer.

    `content_types` are those of a wire whose events have types, in their JSON or as their names.
    An event whose type cannot be read either may hold anything.
    """
    if frame.data.strip() in NO_CONTENT or frame.event in _KEEP_ALIVES:
        return False
    if content_types is None:
        return True
    try:
        kind = _decode_type(frame.data).type
    except (ValueError, RecursionError):
        kind = ""
    kind = kind or frame.event
    return kind == "message" or kind in content_types


class StreamReader(ABC, Generic[Frame]):
    """Turns the frames of one stream into deltas and, at its end, the whole reply.

    A typed error that follows deltas in the same batch is raised by the next call, so that no text
    that has arrived is lost.
    """

    __slots__ = ("_begun", "_empty", "_ended", "_error")

    end_mark: ClassVar[str]
    """What a whole stream has at its end, as the message of an interruption names it."""
    content: ClassVar[str]
    """What every stream of this dialect holds, as the message for a foreign one names it."""

    def __init__(self) -> None:
        """Expect the first frame."""
        self._empty = True
        self._begun = False
        self._ended = False
        self._error: PenstockError | None = None

    def feed(self, frames: Sequence[Frame]) -> list[ProviderEvent]:
        """The events that these frames complete; `Finished` comes with the terminal one."""
        if self._error is not None:
            self._raise_held()
        events: list[ProviderEvent] = []
        if self._ended or not frames:
            return events
        self._empty = False
        try:
            self._read(frames, events)
        except PenstockError as error:
            self._ended = True
            if isinstance(error, ContentRejected):
                error.partial = self._partial()
            if not events:
                raise
            # Without its traceback, which would hold this reader in a cycle.
            self._error = error.with_traceback(None)
        return events

    def finish(self) -> list[ProviderEvent]:
        """The end of the body: `Finished`, unless a frame brought it already."""
        self._raise_held()
        events: list[ProviderEvent] = []
        if not self._ended:
            self._end(events)
        return events

    @abstractmethod
    def _read(self, frames: Sequence[Frame], events: list[ProviderEvent]) -> None:
        """Take the frames and append their events.

        `_begun` is set by the first frame of this dialect, and `_ended` by the terminal one, after
        which the rest is not read. Whatever PenstockError it raises ends the stream.
        """

    @abstractmethod
    def _partial(self) -> str:
        """All text so far."""

    def _reply(self) -> Reply | None:
        """The whole reply, where all that makes it has come without a terminal frame."""
        return None

    def _end(self, events: list[ProviderEvent]) -> None:
        """Nothing follows: finish with the reply, or raise what is missing."""
        self._ended = True
        reply = self._reply()
        if reply is not None:
            events.append(Finished(reply))
        elif self._begun or self._empty:
            raise StreamInterrupted(
                f"the stream ended before {self.end_mark} came", partial=self._partial()
            )
        else:
            raise MalformedResponse(f"the stream holds no {self.content}")

    def _unreadable(self, why: object) -> PenstockError:
        """The error for a frame that may hold a part of the answer and cannot be read."""
        text = f"an event of the stream cannot be read: {why}"
        if self._begun:
            return StreamInterrupted(text, partial=self._partial())
        return MalformedResponse(text)

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
