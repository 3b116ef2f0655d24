"""Streams in: the events of one stream become deltas and, at its end, the whole reply."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.providers.gemini.decode import Collector, blocked, decode_answer
from penstock.providers.gemini.errors import listed_error, map_inline_error
from penstock.providers.gemini.shapes import Answer
from penstock.streaming.sse import ServerSentEvent


class GeminiStreamDecoder:
    """Turns the events of one stream into deltas and, at its end, the whole reply.

    The end is the event with a `finishReason`, or one that says that the prompt was blocked; the
    wire has no other mark. A typed error that follows deltas in the same batch is raised by the
    next call, so that no text that has arrived is lost.
    """

    __slots__ = ("_begun", "_collected", "_empty", "_ended", "_error", "_reason", "malformed")

    def __init__(self) -> None:
        """Expect the first event."""
        self._collected = Collector()
        self._reason: str | None = None
        self._empty = True
        self._begun = False
        self._ended = False
        self._error: PenstockError | None = None
        self.malformed = 0
        """How many events were skipped because they could not be read."""

    def feed(self, frames: Sequence[ServerSentEvent]) -> list[ProviderEvent]:
        """The deltas that these events hold; `Finished` comes with the `finishReason`."""
        self._raise_held()
        events: list[ProviderEvent] = []
        if self._ended or not frames:
            return events
        self._empty = False
        collected = self._collected
        for frame in frames:
            try:
                answer = decode_answer(frame.data)
            except (ValueError, RecursionError):
                error = listed_error(frame.data)
                if error is None and frame.event == "error":
                    error = map_inline_error(frame.data)
                if error is None:
                    self.malformed += 1
                    continue
                self._fail(error)
                break
            collected.learn(answer)
            if answer.candidates:
                self._begun = True
                for candidate in answer.candidates:
                    if not candidate.index:
                        collected.add(candidate, events)
                        if candidate.finish_reason:
                            self._reason = candidate.finish_reason
                if answer.error is None:
                    continue
            if (error := _inline_error(answer, frame)) is not None:
                self._fail(error)
                break
        # The rest of a read belongs to the answer even when its reason came in the midst of it.
        if self._reason is not None and not self._ended:
            self._end(events)
        if not events:
            self._raise_held()
        return events

    def finish(self) -> list[ProviderEvent]:
        """The end of the body; without a `finishReason` by now it is an interruption."""
        events: list[ProviderEvent] = []
        if not self._ended:
            self._end(events)
        self._raise_held()
        return events

    def _end(self, events: list[ProviderEvent]) -> None:
        self._ended = True
        collected = self._collected
        try:
            if self._reason is not None:
                events.append(Finished(collected.reply(self._reason)))
            elif self._begun or self._empty:
                raise StreamInterrupted(
                    "the stream ended before a finishReason came", partial=collected.partial
                )
            else:
                raise MalformedResponse("the stream holds no candidates")
        except PenstockError as error:
            self._error = error

    def _fail(self, error: PenstockError) -> None:
        if isinstance(error, ContentRejected):
            error.partial = self._collected.partial
        self._ended = True
        self._error = error

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _inline_error(answer: Answer, frame: ServerSentEvent) -> PenstockError | None:
    if answer.error:
        return map_inline_error(answer.error)
    if frame.event == "error":
        return map_inline_error(frame.data)
    return blocked(answer)
