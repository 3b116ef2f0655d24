"""Amazon's event stream, written: prelude, headers, payload, and both checksums."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Mapping
from typing import Any

import msgspec


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message with text headers."""
    block = b"".join(_header(name, value) for name, value in headers.items())
    lengths = struct.pack(">II", 12 + len(block) + len(payload) + 4, len(block))
    whole = lengths + struct.pack(">I", crc32(lengths)) + block + payload
    return whole + struct.pack(">I", crc32(whole))


def event(kind: str, payload: Mapping[str, Any] | bytes) -> bytes:
    """A message of an answer, with the headers that Bedrock gives it."""
    return _typed(":event-type", kind, "event", payload)


def exception(kind: str, payload: Mapping[str, Any] | bytes) -> bytes:
    """A message that ends a stream with a modelled exception."""
    return _typed(":exception-type", kind, "exception", payload)


def _typed(name: str, kind: str, mode: str, payload: Mapping[str, Any] | bytes) -> bytes:
    headers = {name: kind, ":content-type": "application/json", ":message-type": mode}
    body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return message(headers, body)


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(text)) + text
