"""Server-sent events: each rule by example, then against a line-by-line reading of the rules."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import SupportsIndex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from penstock.contract.errors import MalformedResponse
from penstock.streaming import sse
from penstock.streaming.sse import ServerSentEvent as Event
from penstock.streaming.sse import SSEDecoder

BOM = b"\xef\xbb\xbf"


def decode(*reads: bytes, limit: int = 1024) -> list[Event]:
    decoder = SSEDecoder(max_event_bytes=limit)
    events = [event for read in reads for event in decoder.feed(read)]
    return events + decoder.finish()


def byte_by_byte(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


def reference(body: bytes) -> list[Event]:
    """The standard's algorithm as written there; the end of the body counts as a blank line."""
    events: list[Event] = []
    data_buffer = event_type = last_event_id = b""
    retry: int | None = None
    for line in [*re.split(rb"\r\n|\r|\n", body.removeprefix(BOM)), b""]:
        if line == b"":
            if data_buffer != b"":
                name = event_type.decode(errors="replace") or "message"
                identifier = last_event_id.decode(errors="replace")
                events.append(Event(data_buffer[:-1], name, identifier, retry))
                retry = None
            data_buffer = event_type = b""
            continue
        if line.startswith(b":"):
            continue
        if b":" in line:
            field, value = line.split(b":", 1)
            value = value[1:] if value[:1] == b" " else value
        else:
            field, value = line, b""
        match field:
            case b"event":
                event_type = value
            case b"data":
                data_buffer += value + b"\n"
            case b"id" if b"\0" not in value:
                last_event_id = value
            case b"retry" if re.fullmatch(rb"[0-9]{1,18}", value):
                retry = int(value)
            case _:
                pass
    return events


EXAMPLES: dict[str, tuple[bytes, list[Event]]] = {
    "LF": (b"data: a\n\ndata: b\n\n", [Event(b"a"), Event(b"b")]),
    "CR LF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
    "CR": (b"data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
    "mixed line ends": (b"data: a\n\rdata: b\r\n\n", [Event(b"a"), Event(b"b")]),
    "mixed blank lines": (b"data: a\r\n\rdata: b\n\r\n", [Event(b"a"), Event(b"b")]),
    "a name": (b"event: e\ndata: a\n\n", [Event(b"a", "e")]),
    "a name after the data": (b"data: a\nevent: e\n\n", [Event(b"a", "e")]),
    "the last name counts": (b"event: e\nevent: f\ndata: a\n\n", [Event(b"a", "f")]),
    "an empty name": (b"event: \ndata: a\n\n", [Event(b"a", "message")]),
    "a name that is not UTF-8": (b"event: \xff\ndata: a\n\n", [Event(b"a", "\ufffd")]),
    "a name is for one event": (b"event: e\n\ndata: a\n\n", [Event(b"a")]),
    "two lines of data": (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
    "fields without a colon": (b"data\n\ndata\ndata\n\n", [Event(b""), Event(b"\n")]),
    "empty data": (b"data:\n\ndata: \n\n", [Event(b""), Event(b"")]),
    "one space is dropped": (b"data:a\n\ndata:  b\n\n", [Event(b"a"), Event(b" b")]),
    "the first colon counts": (b"data: a: b\n\n", [Event(b"a: b")]),
    "comments": (b": ping\n\n: ping\ndata: a\n: ping\n\n", [Event(b"a")]),
    "unknown fields": (b"Data: a\n data: b\ndata : c\n\n", []),
    "no data, no event": (b"event: e\nid: 1\n\n", []),
    "data in one of a run": (b"event: e\n\nevent: f\ndata: a\ndata: b\n\n", [Event(b"a\nb", "f")]),
    "blank lines": (b"\n\n\n\ndata: a\n\n\n\n\n", [Event(b"a")]),
    "a byte order mark": (BOM + b"data: a\n\n", [Event(b"a")]),
    "one byte order mark": (BOM + BOM + b"data: a\n\ndata: b\n\n", [Event(b"b")]),
    "no mark after the start": (b"data: a\n\n" + BOM + b"data: b\n\n", [Event(b"a")]),
    "an id stays": (b"id: 1\ndata: a\n\ndata: b\n\n", [Event(b"a", id="1"), Event(b"b", id="1")]),
    "an id without data": (b"id: 1\n\ndata: b\n\n", [Event(b"b", id="1")]),
    "an empty id": (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [Event(b"a", id="1"), Event(b"b")]),
    "an id with NUL": (b"id: 1\nid: \0\ndata: a\n\n", [Event(b"a", id="1")]),
    "a retry": (b"retry: 10\ndata: a\n\ndata: b\n\n", [Event(b"a", retry=10), Event(b"b")]),
    "a retry without data": (b"retry: 10\n\ndata: a\n\n", [Event(b"a", retry=10)]),
    "a retry of other than digits": (b"retry: 1.5\nretry: -1\nretry:\ndata: a\n\n", [Event(b"a")]),
    "a retry of Arabic digits": ("retry: ٣\ndata: a\n\n".encode(), [Event(b"a")]),
    "an endless retry": (b"retry: " + b"9" * 900 + b"\ndata: a\n\n", [Event(b"a")]),
    "data that is not UTF-8": (b"data: \xff\n\n", [Event(b"\xff")]),
    "an end without a blank line": (b"data: a\n\ndata: b\n", [Event(b"a"), Event(b"b")]),
    "an end without a line end": (b"event: e\ndata: a", [Event(b"a", "e")]),
    "an end after a name": (b"data: a\n\nevent: e\n", [Event(b"a")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("body", "events"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_body_gives_its_events_in_one_read_and_byte_by_byte(
    body: bytes, events: list[Event]
) -> None:
    assert decode(body) == events
    assert decode(*byte_by_byte(body)) == events


DAMAGED_LINES = {
    "a cut field": b'ata: {"a": 1}',
    "a field in capitals": b'DATA: {"a": 1}',
    "a blank in front": b' data: {"a": 1}',
    "no field": b'{"a": 1}',
    "a mark of the beginning": BOM + b'data: {"a": 1}',
}


def decode_damaged(*reads: bytes) -> list[Event]:
    """The events before a damaged line, which has to be reported."""
    decoder = SSEDecoder()
    events: list[Event] = []
    with pytest.raises(MalformedResponse, match="a line of the stream is damaged"):  # noqa: PT012
        for read in reads:
            events += decoder.feed(read)
        decoder.finish()
    return events


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("line", DAMAGED_LINES.values(), ids=DAMAGED_LINES)
def test_a_damaged_line_is_reported_after_the_events_before_it(
    line: bytes, line_end: bytes
) -> None:
    for pattern, events in (
        (b"data: a\n\n%b\n\ndata: b\n\n", [Event(b"a")]),
        (b"data: a\n\nevent: e\n%b\n\ndata: b\n\n", [Event(b"a")]),
        (b"data: a\n\ndata: b\n%b\n\n", [Event(b"a")]),
        (b"data: a\n\n%b", [Event(b"a")]),
        (b"data: a\n\n%b\n\n: ping\n\n", [Event(b"a")]),
        (b": hi\n\n%b\n\n: hi\n\ndata: b\n\n", []),
        (b": hi\n\n%b\n\ndata: b\n\ndata: c\n\n", []),
    ):
        body = (pattern % line).replace(b"\n", line_end)
        assert decode_damaged(body, b"") == events
        assert decode_damaged(*byte_by_byte(body)) == events


@pytest.mark.parametrize(
    "body",
    [
        # No stream at all: its reader sees the body itself.
        b'{"error": {"message": "no"}}\n\n',
        b'{\n\n"error": {}}',
        b"data: a\n\n: {}\n\nmeta: 1\n\n",
        b"data: a\n\nid: {}\nretry: {}\n\n",
    ],
)
def test_other_lines_without_data_are_no_events(body: bytes) -> None:
    assert [event.data for event in decode(body)] == [b"a"] * body.count(b"data")


def test_an_event_is_returned_by_the_read_that_completes_it() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\ndata: b") == [Event(b"a")]
    assert decoder.feed(b"\r") == []
    assert decoder.feed(b"\n\r") == [Event(b"b")]
    assert decoder.feed(b"\n") == []
    assert decoder.finish() == []


def test_a_cr_completes_an_event_without_waiting_for_an_lf() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\ndata: b\r\n\r\n") == [Event(b"b")]


def test_a_cr_lf_split_between_reads_is_one_line_end() -> None:
    body = b"event: e\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\n"
    assert decode(*byte_by_byte(body)) == [Event(b"a\nb", "e", "1")]


def test_a_character_may_be_split_between_reads() -> None:
    body = "event: é\nid: é\ndata: é\n\n".encode()
    for at in range(len(body)):
        assert decode(body[:at], body[at:]) == [Event("é".encode(), "é", "é")]


def test_finish_returns_the_last_event_once() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a") == []
    assert decoder.finish() == [Event(b"a")]
    assert decoder.finish() == []


def test_a_stream_of_more_names_than_are_remembered_keeps_them_all() -> None:
    names = [f"name-{number}" for number in range(200)] + ["long" * 50]
    body = "".join(f"event: {name}\ndata: a\n\n" for name in names * 2).encode()
    assert [event.event for event in decode(body)] == names * 2


@pytest.mark.parametrize(
    "body",
    [
        b"data: a\n\n" * 3,
        b"data: a\r\n\r\n" * 3,
        b"event: e\ndata: a\n\n",
        b"event: e\ndata: a\n\nevent: f\ndata: b\n\n",
    ],
)
def test_plain_runs_never_reach_the_line_parser(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reference(body)
    monkeypatch.delattr(SSEDecoder, "_event")
    assert decode(body) == expected


# What can go wrong in a stream, in pieces small enough for two of them to make a surprise.
BYTES = [b"\n", b"\r", b"\r\n", b"\n\n", b":", b" ", b"\0", b"7", b"x", b"\xc3\xa9", BOM, BOM[:2]]
FIELDS = [b"data", b"event", b"id", b"retry", b"data: ", b"event: ", b"id: 1", b"retry: 5"]
EVENTS = [b"data: a\n\n", b"data: a\ndata: b\n\n", b"event: e\ndata: a\n\n", b"event: f\n\n"]
PIECES = [*BYTES, *FIELDS, *EVENTS]
bodies = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


@st.composite
def bodies_in_reads(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    body = draw(bodies)
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(body)), max_size=12))), len(body)]
    return body, [body[start:end] for start, end in pairwise(cuts)]


@settings(max_examples=400)
@given(bodies)
@example(b"event: a\n\nevent: b\ndata: c\ndata: d\n\n")
@example(b"data: a\ndata: b\n\nevent: c\n\n")
def test_the_decoder_agrees_with_the_standard(body: bytes) -> None:
    assert decode(body) == reference(body)


@settings(max_examples=400)
@given(bodies_in_reads())
def test_any_split_into_reads_gives_the_same_events(case: tuple[bytes, list[bytes]]) -> None:
    body, reads = case
    assert decode(*reads) == decode(body)


# Up to two bytes may be the start of a byte order mark, which belongs to no event.
@given(bodies_in_reads(), st.integers(2, 12))
def test_any_split_into_reads_meets_the_same_limit(
    case: tuple[bytes, list[bytes]], limit: int
) -> None:
    def outcome(*reads: bytes) -> list[Event] | None:
        try:
            return decode(*reads, limit=limit)
        except MalformedResponse:
            return None

    body, reads = case
    assert outcome(*reads) == outcome(body)


@given(st.lists(st.sampled_from([piece for piece in PIECES if b"\r" not in piece])).map(b"".join))
def test_all_line_ends_are_equal(body: bytes) -> None:
    events = decode(body)
    for line_end in (b"\r\n", b"\r"):
        other = body.replace(b"\n", line_end)
        assert decode(other) == decode(*byte_by_byte(other)) == events


texts = st.binary(max_size=8).map(lambda text: text.translate(None, b"\r\n"))


@given(
    st.lists(texts.map(lambda data: b"data: %b\n\n" % data))
    | st.lists(st.tuples(texts, texts).map(lambda pair: b"event: %b\ndata: %b\n\n" % pair))
)
def test_the_fast_paths_agree_with_the_line_parser(events: list[bytes]) -> None:
    # A comment in every event changes nothing, but takes all of them off the fast paths.
    assert decode(b"".join(events)) == decode(b"".join(b":\n" + event for event in events))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_an_event_of_just_the_limit_passes(line_end: bytes) -> None:
    body = (b"data: 12" + line_end + b"id: 3" + line_end * 2) * 2
    assert len(decode(body, limit=14)) == 2
    assert len(decode(*byte_by_byte(body), limit=14)) == 2
    with pytest.raises(MalformedResponse, match="larger than the limit of 13 bytes"):
        decode(body, limit=13)


def test_blank_lines_are_no_part_of_an_event() -> None:
    body = b"\ndata: a\n\n\ndata: b\n\n\n\ndata: c\n\n\n"
    for at in range(len(body)):
        assert len(decode(body[:at], body[at:], limit=7)) == 3
    assert len(decode(*byte_by_byte(body), limit=7)) == 3


@pytest.mark.parametrize("endless", [b"data: x", b": comment\n", b"x"])
def test_an_endless_event_is_refused_as_soon_as_it_passes_the_limit(endless: bytes) -> None:
    decoder = SSEDecoder(max_event_bytes=100)
    fed = 0
    with pytest.raises(MalformedResponse):  # noqa: PT012 - the loop is the endless stream
        while True:
            decoder.feed(endless)
            fed += len(endless)
            assert fed <= 101


def test_many_events_in_a_read_may_exceed_the_limit_together() -> None:
    assert len(decode(b"data: a\n\n" * 100, limit=7)) == 100


class Work:
    """Bytes that were scanned or copied."""

    done = 0


class CountedRead(bytes):
    """A read that counts each pass over it."""

    def __contains__(self, key: SupportsIndex | Buffer, /) -> bool:
        Work.done += len(self)
        return super().__contains__(key)

    def rfind(
        self,
        sub: Buffer | SupportsIndex,
        start: SupportsIndex | None = None,
        end: SupportsIndex | None = None,
        /,
    ) -> int:
        Work.done += len(self)
        return super().rfind(sub, start, end)


class CountedArray(bytearray):
    """What a decoder holds back; whatever needs a pass over all of it counts as all of it."""

    def __getattribute__(self, name: str) -> object:
        if name not in {"endswith", "clear"}:
            Work.done += len(self)
        return super().__getattribute__(name)

    def __bytes__(self) -> bytes:
        Work.done += len(self)
        return bytes(memoryview(self))

    def __iadd__(self, value: Buffer, /) -> CountedArray:
        Work.done += len(memoryview(value))
        super().__iadd__(value)
        return self

    def __add__(self, value: Buffer, /) -> bytearray:
        Work.done += len(self)
        return super().__add__(value)


def test_the_work_for_an_event_in_many_small_reads_grows_with_its_size_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "bytearray", CountedArray, raising=False)

    def work(size: int) -> int:
        Work.done = 0
        decoder = SSEDecoder()
        body = b"data: " + b"x" * size + b"\ndata: y\n\n"
        reads = [CountedRead(body[at : at + 16]) for at in range(0, len(body), 16)]
        assert [len(event.data) for read in reads for event in decoder.feed(read)] == [size + 2]
        return Work.done

    small, large = work(16 * 1024), work(256 * 1024)
    assert 0 < large < 17 * small
