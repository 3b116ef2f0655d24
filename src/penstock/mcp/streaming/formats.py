"""Any value as JSON: bytes that are no UTF-8 as base64, and what has no JSON as its text."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, TypedDict, cast

import pydantic_core

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
UNREADABLE = (pydantic_core.PydanticSerializationError, UnicodeDecodeError)
"""What pydantic raises for bytes that are no UTF-8, by where they are."""
_UNKNOWN = "application/octet-stream"


class Blob(TypedDict):
    """Bytes as JSON has them."""

    base64: str
    mediaType: str


def blob(value: bytes) -> Blob:
    """Bytes that are no text, with the media type that their first bytes name."""
    return {"base64": base64.b64encode(value).decode(), "mediaType": _media_type(value)}


def jsonable(value: object) -> Any:
    """The value as JSON has it; raises ValueError or RecursionError for one that holds itself."""
    try:
        return pydantic_core.to_jsonable_python(value, by_alias=True, fallback=str)
    except UNREADABLE:
        # Bytes that are no UTF-8, somewhere inside. In fields of classes they become base64 alone.
        return pydantic_core.to_jsonable_python(
            _with_blobs(value), by_alias=True, bytes_mode="base64", fallback=str
        )


def dumped(data: Any) -> tuple[Any, str]:
    """Data of `jsonable`, and its JSON; NaN and infinity, which JSON lacks, become their names."""
    try:
        return data, _encode(data)
    except ValueError:
        finite = json.loads(pydantic_core.to_json(data, inf_nan_mode="strings"))
        return finite, _encode(finite)


def _with_blobs(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        plain = bytes(cast(bytes, value))
        try:
            return plain.decode()
        except UnicodeDecodeError:
            return blob(plain)
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _with_blobs(each) for key, each in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_with_blobs(each) for each in cast("list[object]", value)]
    return value


def _media_type(value: bytes) -> str:
    if value.startswith(b"RIFF"):
        return _RIFF.get(value[8:12], _UNKNOWN)
    return next((name for magic, name in _MAGIC if value.startswith(magic)), _UNKNOWN)
