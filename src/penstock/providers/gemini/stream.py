"""Streams in: the events of one stream become deltas and, at its end, the whole reply."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.contract.errors import PenstockError
from penstock.contract.events import ProviderEvent
from penstock.contract.exchange import Reply
from penstock.providers.gemini.decode import Collector, blocked, decode_answer
from penstock.providers.gemini.errors import map_inline_error
from penstock.providers.gemini.shapes import Answer
from penstock.providers.wire.error_text import listed_error
from penstock.providers.wire.stop_reasons import meaning_of
from penstock.providers.wire.stream_reader import StreamReader, may_hold_content
from penstock.streaming.sse import ServerSentEvent


class GeminiStreamDecoder(StreamReader[ServerSentEvent]):
    """The stream of generated content.

    The end is the event with a `finishReason`, or one that says that the prompt was blocked; the
    wire has no other mark.
    """

    __slots__ = ("_collected", "_reason")

    end_mark = "a finishReason"
    content = "candidates"

    def __init__(self) -> None:
        """Expect the first event."""
        super().__init__()
        self._collected = Collector()
        self._reason: str | None = None

    def _read(self, frames: Sequence[ServerSentEvent], events: list[ProviderEvent]) -> None:
        collected = self._collected
        for frame in frames:
            try:
                answer = decode_answer(frame.data)
            except (ValueError, RecursionError) as unread:
                if frame.event == "error" or listed_error(frame.data):
                    raise map_inline_error(frame.data) from unread
                if may_hold_content(frame):
                    raise self._unreadable(unread) from unread
                continue
            collected.learn(answer)
            if answer.candidates:
                self._begun = True
                for candidate in answer.candidates:
                    if not candidate.index:
                        collected.add(candidate, events)
                        if meaning_of(candidate.finish_reason) != "none":
                            self._reason = candidate.finish_reason
                if answer.error is None:
                    continue
            if (error := _inline_error(answer, frame)) is not None:
                raise error
        # The rest of a read belongs to the answer even when its reason came in the midst of it.
        if self._reason is not None:
            self._end(events)

    def _partial(self) -> str:
        return self._collected.partial

    def _reply(self) -> Reply | None:
        return None if self._reason is None else self._collected.reply(self._reason)


def _inline_error(answer: Answer, frame: ServerSentEvent) -> PenstockError | None:
    if answer.error:
        return map_inline_error(answer.error)
    if frame.event == "error":
        return map_inline_error(frame.data)
    return blocked(answer)
