"""What every stream decoder does the same: begin, hold an error back, come to an end.

A dialect reads frames and raises what is wrong with them wherever it notices. When that is, and
whether the stream was whole, is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply

Frame = TypeVar("Frame")


class StreamReader(ABC, Generic[Frame]):
    """Turns the frames of one stream into deltas and, at its end, the whole reply.

    A typed error that follows deltas in the same batch is raised by the next call, so that no text
    that has arrived is lost.
    """

    __slots__ = ("_begun", "_empty", "_ended", "_error", "malformed")

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
        self.malformed = 0
        """How many frames were skipped because they could not be read."""

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

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
