"""Amazon's binary event stream: the bytes of a Bedrock body in, checked messages out.

A message is a prelude (total length, length of the headers, checksum of both), the headers, the
payload and a checksum over everything. The checksums and the headers are read by botocore, which
the extra `bedrock` installs; the bytes are cut into messages here, because botocore copies all that
it holds on every read and on every message.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

import msgspec

from penstock.contract.errors import ConfigurationError, MalformedResponse

_PRELUDE = struct.Struct(">III")
_MESSAGE_CHECKSUM_BYTES = 4


class EventStreamMessage(msgspec.Struct, frozen=True):
    """One message with a right checksum.

    Header values that are not text on the wire are shown as text: numbers and timestamps in
    decimal, `true` and `false`, bytes and UUIDs in hexadecimal.
    """

    headers: dict[str, str]
    payload: bytes


class _Message(Protocol):
    headers: Mapping[str, object]
    payload: bytes


class _Buffer(Protocol):
    def add_data(self, data: bytes) -> None: ...
    def next(self) -> _Message: ...


class AWSEventStreamDecoder:
    """Turns the reads of one response body into messages; make one decoder per stream.

    Reads may be cut at any byte. A wrong checksum, lengths or headers that make no sense, and a
    message of more than `max_message_bytes` raise `MalformedResponse`; the decoder is of no use
    afterwards. Without botocore, making a decoder raises `ConfigurationError`.
    """

    __slots__ = ("_buffer", "_errors", "_held", "_max_message_bytes", "_message_bytes")

    def __init__(self, max_message_bytes: int = 16 * 1024 * 1024) -> None:
        """Expect the first byte of a body."""
        try:
            botocore = import_module("botocore.eventstream")
        except ImportError as error:
            raise ConfigurationError(
                "Bedrock's streams need botocore, which is not installed: "
                "pip install 'penstock[bedrock]'"
            ) from error
        self._buffer = cast("_Buffer", botocore.EventStreamBuffer())
        # Besides its own errors, botocore lets through what its parsing of broken headers raises.
        self._errors = cast(
            "tuple[type[Exception], ...]",
            (botocore.ParserError, LookupError, ValueError, struct.error),
        )
        self._max_message_bytes = max_message_bytes
        # From the first byte of the first message that has not been returned.
        self._held = bytearray()
        # The length of that message, once its prelude has been read.
        self._message_bytes: int | None = None

    def feed(self, data: bytes) -> list[EventStreamMessage]:
        """Take the next read and return the messages that it completes, in order."""
        held = self._held
        held += data
        messages: list[EventStreamMessage] = []
        start = 0
        while True:
            available = len(held) - start
            if self._message_bytes is None:
                if available < _PRELUDE.size:
                    break
                prelude = bytes(held[start : start + _PRELUDE.size])
                self._message_bytes = self._read_prelude(prelude)
            if available < self._message_bytes:
                break
            end = start + self._message_bytes
            messages.append(self._read_message(bytes(held[start + _PRELUDE.size : end])))
            self._message_bytes = None
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

    def _read_prelude(self, prelude: bytes) -> int:
        total, headers, _ = _PRELUDE.unpack(prelude)
        if headers > total - _PRELUDE.size - _MESSAGE_CHECKSUM_BYTES:
            raise MalformedResponse(
                f"an event stream message of {total} bytes cannot have {headers} bytes of headers"
            )
        self._buffer.add_data(prelude)
        try:
            self._buffer.next()
        except StopIteration:
            # The prelude is right and the rest of the message is missing, as it should be.
            pass
        except self._errors as error:
            raise MalformedResponse(f"broken event stream message: {error}") from error
        if total > self._max_message_bytes:
            raise MalformedResponse(
                f"an event stream message of {total} bytes is larger than the limit of "
                f"{self._max_message_bytes} bytes"
            )
        return total

    def _read_message(self, rest: bytes) -> EventStreamMessage:
        self._buffer.add_data(rest)
        try:
            message = self._buffer.next()
        except self._errors as error:
            raise MalformedResponse(f"broken event stream message: {error}") from error
        headers = {name: _as_text(value) for name, value in message.headers.items()}
        return EventStreamMessage(headers, message.payload)


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
