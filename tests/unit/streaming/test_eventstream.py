"""Amazon's binary event stream, with messages made by an encoder of the tests' own."""

from __future__ import annotations

import struct
import sys
from binascii import crc32
from importlib import import_module
from itertools import pairwise
from typing import Protocol, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import ConfigurationError, MalformedResponse
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


class Buffer(Protocol):
    def add_data(self, data: bytes) -> None: ...


def test_botocore_holds_one_message_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    # It copies all that it holds for every read and message, which would make large bodies slow.
    buffer = cast("type[Buffer]", import_module("botocore.eventstream").EventStreamBuffer)
    added: list[int] = []
    add_data = buffer.add_data

    def counted(self: Buffer, data: bytes) -> None:
        added.append(len(data))
        add_data(self, data)

    monkeypatch.setattr(buffer, "add_data", counted)
    body = encoded(CHUNK)
    decode(body * 3)
    decode(*(body[at : at + 1] for at in range(len(body))))
    assert added == [12, len(body) - 12] * 4


def test_without_botocore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.eventstream", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[bedrock\]'"):
        AWSEventStreamDecoder()
