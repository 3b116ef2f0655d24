"""Amazon's binary event stream, with messages made by an encoder of the tests' own."""

from __future__ import annotations

import struct
import sys
from binascii import crc32
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import MalformedResponse
from penstock.streaming.eventstream import AWSEventStreamDecoder, EventStreamMessage

pytest.importorskip("botocore")


def header(name: str, kind: int, value: bytes) -> bytes:
    raw = name.encode()
    return bytes([len(raw)]) + raw + bytes([kind]) + value


def text_header(name: str, value: str) -> bytes:
    raw = value.encode()
    return header(name, 7, struct.pack(">H", len(raw)) + raw)


def encode(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack(">II", 12 + len(headers) + len(payload) + 4, len(headers))
    message = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return message + struct.pack(">I", crc32(message))


def encoded(message: EventStreamMessage) -> bytes:
    headers = b"".join(text_header(name, value) for name, value in message.headers.items())
    return encode(headers, message.payload)


def decode(*reads: bytes, limit: int = 1024) -> list[EventStreamMessage]:
    decoder = AWSEventStreamDecoder(max_message_bytes=limit)
    messages = [message for read in reads for message in decoder.feed(read)]
    return messages + decoder.finish()


CHUNK = EventStreamMessage(
    {":event-type": "contentBlockDelta", ":message-type": "event"}, b'{"delta":{"text":"hi"}}'
)


def test_messages_come_with_their_headers_and_payload() -> None:
    empty = EventStreamMessage({}, b"")
    assert decode(encoded(CHUNK) + encoded(empty) + encoded(CHUNK)) == [CHUNK, empty, CHUNK]


def test_a_message_is_returned_by_the_read_that_completes_it() -> None:
    body = encoded(CHUNK)
    decoder = AWSEventStreamDecoder()
    assert decoder.feed(body[:5]) == []
    assert decoder.feed(body[5:-1]) == []
    assert decoder.feed(body[-1:] + body[:20]) == [CHUNK]
    assert decoder.feed(body[20:]) == [CHUNK]
    assert decoder.finish() == []


def test_header_values_of_every_kind_become_text() -> None:
    headers = b"".join(
        [
            header("yes", 0, b""),
            header("no", 1, b""),
            header("byte", 2, struct.pack(">b", -1)),
            header("short", 3, struct.pack(">h", -2)),
            header("integer", 4, struct.pack(">i", -3)),
            header("long", 5, struct.pack(">q", -4)),
            header("bytes", 6, b"\0\2\xab\xcd"),
            text_header("text", "é"),
            header("time", 8, struct.pack(">q", 1_700_000_000_000)),
            header("uuid", 9, bytes(range(16))),
        ]
    )
    [message] = decode(encode(headers, b""))
    assert message.headers == {
        "yes": "true",
        "no": "false",
        "byte": "-1",
        "short": "-2",
        "integer": "-3",
        "long": "-4",
        "bytes": "abcd",
        "text": "é",
        "time": "1700000000000",
        "uuid": "000102030405060708090a0b0c0d0e0f",
    }


messages = st.builds(
    EventStreamMessage,
    st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=3),
    st.binary(max_size=40),
)


@st.composite
def messages_in_reads(draw: st.DrawFn) -> tuple[list[EventStreamMessage], list[bytes]]:
    expected = draw(st.lists(messages, max_size=4))
    body = b"".join(map(encoded, expected))
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(body)), max_size=12))), len(body)]
    return expected, [body[start:end] for start, end in pairwise(cuts)]


@given(messages_in_reads())
def test_any_split_into_reads_gives_the_same_messages(
    case: tuple[list[EventStreamMessage], list[bytes]],
) -> None:
    expected, reads = case
    assert decode(*reads) == expected


@pytest.mark.parametrize("at", range(len(encoded(CHUNK))))
def test_a_changed_byte_anywhere_is_noticed(at: int) -> None:
    body = bytearray(encoded(CHUNK))
    body[at] ^= 0x01
    with pytest.raises(MalformedResponse):
        decode(bytes(body))


@pytest.mark.parametrize("size", range(1, len(encoded(CHUNK))))
def test_a_body_that_ends_within_a_message_is_malformed(size: int) -> None:
    body = encoded(CHUNK)
    with pytest.raises(MalformedResponse, match=f"after {size} of its bytes"):
        decode(body + body[:size])


@pytest.mark.parametrize(
    ("total", "headers"), [(0, 0), (15, 0), (16, 1), (100, 85), (1, 2**32 - 1)]
)
def test_lengths_that_make_no_sense_are_malformed(total: int, headers: int) -> None:
    lengths = struct.pack(">II", total, headers)
    with pytest.raises(MalformedResponse, match="bytes of headers"):
        decode(lengths + struct.pack(">I", crc32(lengths)) + bytes(200))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(header("kind", 10, b""), id="unknown kind"),
        pytest.param(header("cut", 4, b"\0"), id="cut number"),
        pytest.param(b"\3cut", id="no kind"),
        pytest.param(header("bad", 7, b"\0\1\xff"), id="not UTF-8"),
        pytest.param(text_header("twice", "a") * 2, id="twice"),
    ],
)
def test_broken_headers_are_malformed(headers: bytes) -> None:
    with pytest.raises(MalformedResponse, match="broken event stream message"):
        decode(encode(headers, b""))


def test_a_page_of_html_is_malformed_at_once() -> None:
    with pytest.raises(MalformedResponse):
        AWSEventStreamDecoder().feed(b"<html>502 Bad Gateway</html>")


def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    body = encoded(CHUNK)
    assert decode(body * 2, limit=len(body)) == [CHUNK, CHUNK]
    with pytest.raises(MalformedResponse, match=f"larger than the limit of {len(body) - 1} bytes"):
        decode(body[:12], limit=len(body) - 1)


# botocore reads the same


class Buffer(Protocol):
    def add_data(self, data: bytes) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


def by_botocore(*reads: bytes) -> list[EventStreamMessage]:
    buffer: Buffer = import_module("botocore.eventstream").EventStreamBuffer()
    found: list[EventStreamMessage] = []
    for read in reads:
        buffer.add_data(read)
        for message in buffer:
            headers = {name: as_text(value) for name, value in message.headers.items()}
            found.append(EventStreamMessage(headers, message.payload))
    return found


def as_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def sized(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


values = st.one_of(
    st.tuples(st.sampled_from([0, 1]), st.just(b"")),
    *(
        st.tuples(st.just(kind), st.binary(min_size=size, max_size=size))
        for kind, size in ((2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16))
    ),
    st.tuples(st.just(6), st.binary(max_size=300).map(sized)),
    st.tuples(st.just(7), st.text(max_size=300).map(lambda text: sized(text.encode()))),
)
header_blocks = st.dictionaries(st.text(max_size=40), values, max_size=5).map(
    lambda fields: b"".join(header(name, kind, raw) for name, (kind, raw) in fields.items())
)
bodies = st.lists(st.builds(encode, header_blocks, st.binary(max_size=200)), max_size=5).map(
    b"".join
)


@given(bodies, st.data())
def test_any_stream_in_any_reads_is_read_as_botocore_reads_it(
    body: bytes, data: st.DataObject
) -> None:
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12))), len(body)]
    reads = [body[start:end] for start, end in pairwise(cuts)]
    assert decode(*reads, limit=2**20) == by_botocore(*reads)


@given(st.one_of(st.binary(max_size=60), header_blocks), st.binary(max_size=60), st.data())
def test_nothing_is_taken_that_botocore_refuses(
    headers: bytes, payload: bytes, data: st.DataObject
) -> None:
    """With right checksums, so that only the headers themselves may be wrong."""
    if headers:
        changed = bytearray(headers)
        changed[data.draw(st.integers(0, len(headers) - 1))] ^= data.draw(st.integers(0, 255))
        headers = bytes(changed)
    body = encode(headers, payload)
    try:
        ours = decode(body, limit=2**20)
    except MalformedResponse:
        return
    assert ours == by_botocore(body)


@given(bodies, st.data())
def test_a_changed_byte_is_never_taken(body: bytes, data: st.DataObject) -> None:
    changed = bytearray(body or encoded(CHUNK))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedResponse):
        decode(bytes(changed), limit=2**20)


def test_a_value_that_the_end_of_the_headers_cuts_off_is_malformed() -> None:
    """botocore takes what is left of it."""
    cut = text_header("cut", "value")[:-1]
    assert by_botocore(encode(cut, b""))[0].headers == {"cut": "valu"}
    with pytest.raises(MalformedResponse, match="end within a value"):
        decode(encode(cut, b""))


def test_a_body_is_read_without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bearer token needs no signature, so it needs nothing of botocore."""
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.eventstream", None)
    assert decode(encoded(CHUNK)) == [CHUNK]
