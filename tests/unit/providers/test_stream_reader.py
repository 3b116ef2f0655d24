"""How a stream begins, breaks and ends, whatever its dialect."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import (
    ContentRejected,
    MalformedResponse,
    PenstockError,
    RateLimited,
    StreamInterrupted,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import Text
from penstock.providers.wire.stream_reader import StreamReader

FOREIGN, STOP, END, LIMIT, FILTER = "<foreign>", "<stop>", "<end>", "<limit>", "<filter>"


class WordReader(StreamReader[str]):
    """A wire of bare words: `<stop>` is a reason, and `<end>` says that nothing follows."""

    __slots__ = ("_stopped", "_words")

    end_mark = "<stop>"
    content = "words"

    def __init__(self) -> None:
        super().__init__()
        self._words: list[str] = []
        self._stopped = False

    def _read(self, frames: Sequence[str], events: list[ProviderEvent]) -> None:
        for frame in frames:
            if frame == FOREIGN:
                raise self._unreadable("no word")
            if frame == STOP:
                self._stopped = True
            elif frame == END:
                self._end(events)
                break
            elif frame == LIMIT:
                raise RateLimited("too many")
            elif frame == FILTER:
                raise ContentRejected("no", partial="what the wire said")
            else:
                self._begun = True
                self._words.append(frame)
                events.append(Chunk(frame))

    def _partial(self) -> str:
        return "".join(self._words)

    def _reply(self) -> Reply | None:
        if not self._stopped:
            return None
        return Reply((Text(self._partial()),), "m", "endTurn", Usage())


def finished(text: str) -> Finished:
    return Finished(Reply((Text(text),), "m", "endTurn", Usage()))


def test_the_terminal_frame_brings_the_reply_and_what_follows_it_is_not_read() -> None:
    reader = WordReader()
    assert reader.feed(["a", "b", STOP, END, "c"]) == [Chunk("a"), Chunk("b"), finished("ab")]
    assert reader.feed(["d"]) == reader.finish() == []


def test_without_a_terminal_frame_the_end_of_the_body_brings_the_reply() -> None:
    reader = WordReader()
    assert reader.feed(["a", STOP]) == [Chunk("a")]
    assert reader.finish() == [finished("a")]
    assert reader.finish() == []


@pytest.mark.parametrize("frames", [[], ["a", "b"]])
def test_an_end_that_comes_too_early_is_an_interruption_with_the_text(frames: list[str]) -> None:
    reader = WordReader()
    reader.feed(frames)
    with pytest.raises(StreamInterrupted, match="ended before <stop> came") as caught:
        reader.finish()
    assert caught.value.partial == "".join(frames)


def test_a_stream_of_foreign_frames_is_not_this_protocol() -> None:
    reader = WordReader()
    with pytest.raises(MalformedResponse, match="cannot be read: no word"):
        reader.feed([FOREIGN, FOREIGN])
    assert reader.finish() == []


def test_a_foreign_frame_among_words_is_an_interruption_with_the_text() -> None:
    reader = WordReader()
    assert reader.feed(["a", FOREIGN, "b", STOP, END]) == [Chunk("a")]
    with pytest.raises(StreamInterrupted, match="cannot be read: no word") as caught:
        reader.feed([])
    assert caught.value.partial == "a"
    assert reader.finish() == []


def read_on(reader: WordReader) -> object:
    return reader.feed(["c"])


@pytest.mark.parametrize("next_call", [read_on, WordReader.finish])
def test_an_error_behind_text_waits_for_the_next_call(
    next_call: Callable[[WordReader], object],
) -> None:
    reader = WordReader()
    assert reader.feed(["a", LIMIT, "b"]) == [Chunk("a")]
    with pytest.raises(RateLimited):
        next_call(reader)
    assert reader.feed(["c"]) == reader.finish() == []


def test_an_error_without_text_before_it_is_raised_at_once() -> None:
    reader = WordReader()
    reader.feed(["a"])
    with pytest.raises(RateLimited):
        reader.feed([LIMIT])
    assert reader.feed(["b"]) == reader.finish() == []


def test_a_rejection_carries_the_text_that_came_before_it() -> None:
    reader = WordReader()
    assert reader.feed(["a"]) == [Chunk("a")]
    assert reader.feed(["b", FILTER]) == [Chunk("b")]
    with pytest.raises(ContentRejected) as caught:
        reader.finish()
    assert caught.value.partial == "ab"


def test_an_end_that_is_announced_too_early_waits_behind_the_text_as_well() -> None:
    reader = WordReader()
    assert reader.feed(["a", END]) == [Chunk("a")]
    with pytest.raises(StreamInterrupted) as caught:
        reader.finish()
    assert caught.value.partial == "a"


@given(
    st.lists(st.sampled_from(["a", "b", FOREIGN, STOP, END, LIMIT, FILTER]), max_size=12),
    st.sets(st.integers(0, 12)),
)
def test_wherever_the_reads_are_cut_the_stream_says_the_same(
    frames: list[str], cuts: set[int]
) -> None:
    places = sorted({0, len(frames), *(cut for cut in cuts if cut < len(frames))})
    reads = [frames[start:end] for start, end in pairwise(places)]
    assert said(reads) == said([[frame] for frame in frames])


def said(reads: list[list[str]]) -> tuple[list[ProviderEvent], str]:
    reader, events = WordReader(), list[ProviderEvent]()
    try:
        for read in reads:
            events += reader.feed(read)
        return events + reader.finish(), ""
    except PenstockError as error:
        return events, f"{error!r} {getattr(error, 'partial', '')}"
