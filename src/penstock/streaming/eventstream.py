"""Amazon's binary event stream: the bytes of a Bedrock body in, checked messages out.

A message is a prelude (total length, length of the headers, checksum of both), the headers, the
payload and a checksum over everything. A header is the length of its name in a byte, the name, the
kind of its value in a byte, and the value; texts and bytes begin with their length in two bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from zlib import crc32

import msgspec

from penstock.contract.errors import MalformedResponse

_PRELUDE = struct.Struct(">III")
_LENGTHS_BYTES = 8
_CHECKSUM_BYTES = 4
_SHORT_BYTES = 512
_BYTES, _TEXT = 6, 7


class EventStreamMessage(msgspec.Struct, frozen=True):
    """One message with a right checksum.

    Header values that are not text on the wire are shown as text: numbers and timestamps in
    decimal, `true` and `false`, bytes and UUIDs in hexadecimal.
    """

    headers: Mapping[str, str]
    payload: bytes


class AWSEventStreamDecoder:
    """Turns the reads of one response body into messages; make one decoder per stream.

    Reads may be cut at any byte. A wrong checksum, lengths or headers that make no sense, and a
    message of more than `max_message_bytes` raise `MalformedResponse`; the decoder is of no use
    afterwards.
    """

    __slots__ = ("_headers_bytes", "_held", "_max_message_bytes", "_message_bytes")

    def __init__(self, max_message_bytes: int = 16 * 1024 * 1024) -> None:
        """Expect the first byte of a body."""
        self._max_message_bytes = max_message_bytes
        # From the first byte of the first message that has not been returned.
        self._held = bytearray()
        # The lengths of that message and of its headers, once its prelude has been read.
        self._message_bytes = 0
        self._headers_bytes = 0

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """Take the next read and return the messages that it completes, in order."""
        held = self._held
        held += data
        messages: list[EventStreamMessage] = []
        start = 0
        while True:
            if not self._message_bytes:
                if len(held) - start < _PRELUDE.size:
                    break
                self._read_prelude(held[start : start + _PRELUDE.size])
            end = start + self._message_bytes
            if len(held) < end:
                break
            messages.append(_read_message(bytes(held[start:end]), self._headers_bytes))
            self._message_bytes = 0
            start = end
        del held[:start]
        return messages

    def finish(self) -> list[EventStreamMessage]:
        """Say that the body has ended: nothing is left, or the last message was cut off.

        Always returns an empty list, as every message has been returned by the `feed` that
        completed it; raises `MalformedResponse` when the body ends within a message.
        """
        if self._held:
            raise MalformedResponse(
                f"the event stream ends within a message, after {len(self._held)} of its bytes"
            )
        return []

    def _read_prelude(self, prelude: bytearray) -> None:
        total, headers, checksum = _PRELUDE.unpack(prelude)
        if headers > total - _PRELUDE.size - _CHECKSUM_BYTES:
            raise MalformedResponse(
                f"an event stream message of {total} bytes cannot have {headers} bytes of headers"
            )
        _check(prelude[:_LENGTHS_BYTES], checksum)
        if total > self._max_message_bytes:
            raise MalformedResponse(
                f"an event stream message of {total} bytes is larger than the limit of "
                f"{self._max_message_bytes} bytes",
                retryable=False,
            )
        self._message_bytes = total
        self._headers_bytes = headers


def _read_message(message: bytes, headers_bytes: int) -> EventStreamMessage:
    end = len(message) - _CHECKSUM_BYTES
    _check(message[:end], int.from_bytes(message[end:], "big"))
    start = _PRELUDE.size + headers_bytes
    read = _read_short_headers if headers_bytes <= _SHORT_BYTES else _read_headers
    try:
        headers = read(message[_PRELUDE.size : start])
    except (LookupError, ValueError) as error:
        raise MalformedResponse(f"broken event stream message: {error!r}") from error
    return EventStreamMessage(headers, message[start:end])


def _check(data: bytes | bytearray, checksum: int) -> None:
    found = crc32(data)
    if found != checksum:
        raise MalformedResponse(
            f"broken event stream message: its checksum is {found:08x} and not {checksum:08x}"
        )


def _read_headers(data: bytes) -> Mapping[str, str]:
    """Raises LookupError or ValueError when they make no sense."""
    headers: dict[str, str] = {}
    at = 0
    while at < len(data):
        kind_at = at + 1 + data[at]
        name = data[at + 1 : kind_at].decode()
        kind = data[kind_at]
        at = kind_at + 1
        if kind in (_TEXT, _BYTES):
            start = at + 2
            at = start + (data[start - 2] << 8) + data[start - 1]
            value = data[start:at].decode() if kind == _TEXT else data[start:at].hex()
        else:
            size, show = _OF_FIXED_SIZE[kind]
            value = show(data[at : at + size])
            at += size
        if name in headers:
            raise ValueError(f"the header {name!r} is there twice")
        headers[name] = value
    if at != len(data):
        raise ValueError("the headers end within a value")
    return headers


# The messages of a stream differ in their payloads; their headers are a few, again and again.
_read_short_headers = lru_cache(256)(_read_headers)


def _number(value: bytes) -> str:
    return str(int.from_bytes(value, "big", signed=True))


_OF_FIXED_SIZE: Mapping[int, tuple[int, Callable[[bytes], str]]] = {
    0: (0, lambda value: "true"),
    1: (0, lambda value: "false"),
    2: (1, _number),
    3: (2, _number),
    4: (4, _number),
    5: (8, _number),
    8: (8, _number),
    9: (16, bytes.hex),
}
"""Kinds of values: how many bytes they have, and how they are shown."""
