"""Pictures and sounds from files, bytes and URLs, recognised by their first bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from penstock.contract.checks.spelling import suggests_names
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import Audio, Image

_IMAGE_SIGNATURES: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("image/png", lambda data: data.startswith(b"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", lambda data: data.startswith(b"\xff\xd8\xff")),
    ("image/gif", lambda data: data.startswith((b"GIF87a", b"GIF89a"))),
    ("image/webp", lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP"),
)
_AUDIO_SIGNATURES: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("audio/wav", lambda data: data[:4] == b"RIFF" and data[8:12] == b"WAVE"),
    ("audio/mpeg", lambda data: data.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"))),
    ("audio/flac", lambda data: data.startswith(b"fLaC")),
    ("audio/ogg", lambda data: data.startswith(b"OggS")),
    ("audio/mp4", lambda data: data[4:8] == b"ftyp"),
    ("audio/webm", lambda data: data.startswith(b"\x1a\x45\xdf\xa3")),
)
AUDIO_EXTENSIONS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
    "audio/aac": "aac",
    "audio/aiff": "aiff",
    "audio/x-aiff": "aiff",
}
"""The sound types that some provider takes, each with the ending of its files' names."""

_SAME = {
    "image/jpg": "image/jpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-flac": "audio/flac",
    "audio/opus": "audio/ogg",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
}
"""Other names of the types that have signatures."""
_FIRM = frozenset(name for name, _ in (*_IMAGE_SIGNATURES, *_AUDIO_SIGNATURES)) - {"audio/mpeg"}
"""Types whose data always begins with their signature; MP3 may begin in many ways."""
_PIECE = 1 << 18
_HEAD = 64

AudioSource: TypeAlias = Audio | str | Path | bytes
"""A recording as people have it: a part, a file's path, or the bytes of a file."""


def decoded_size(data: str) -> int:
    """How many bytes this base64 stands for."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def image_type(data: bytes) -> str | None:
    """The MIME type of picture bytes, or None when they are no picture that models take."""
    return _recognise(data, _IMAGE_SIGNATURES)


def audio_type(data: bytes) -> str | None:
    """The MIME type of sound bytes, or None when they are no sound that models take."""
    return _recognise(data, _AUDIO_SIGNATURES)


@suggests_names
def image(source: str | Path | bytes, *, mime_type: str | None = None) -> Image:
    """A picture part from a file's path, its bytes, or an http(s) address.

    Raises InvalidRequest when the file is missing or is not a PNG, JPEG, GIF or WebP picture;
    giving `mime_type` skips that check.
    """
    if isinstance(source, str) and source.lower().startswith(("http://", "https://")):
        return Image(url=source, mime_type=mime_type or "")
    data, name = _read(source)
    found = mime_type or image_type(data)
    if found is None:
        raise InvalidRequest.of(
            [Problem("image", f"{name} is not a picture; give a PNG, JPEG, GIF or WebP file")]
        )
    return Image(data=base64.b64encode(data).decode(), mime_type=found)


@suggests_names
def audio(source: str | Path | bytes, *, mime_type: str | None = None) -> Audio:
    """A sound part from a file's path or its bytes.

    Raises InvalidRequest when the file is missing or is not a WAV, MP3, FLAC, OGG, M4A or WebM
    sound; giving `mime_type` skips that check.
    """
    data, name = _read(source)
    found = mime_type or audio_type(data)
    if found is None:
        raise InvalidRequest.of(
            [
                Problem(
                    "audio", f"{name} is not a sound; give a WAV, MP3, FLAC, OGG, M4A or WebM file"
                )
            ]
        )
    return Audio(data=base64.b64encode(data).decode(), mime_type=found)


def data_problem(part: Image | Audio) -> tuple[str, str] | None:
    """What is wrong with the data of a part: the field and the reason; None if nothing is.

    Data must be base64 of the type that it names. A type without a known signature is taken as it
    is, unless the data has the signature of another type. Long data takes a while: about 10 ms for
    a megabyte.
    """
    kind, signatures = ("image", _IMAGE_SIGNATURES)
    if isinstance(part, Audio):
        kind, signatures = ("audio", _AUDIO_SIGNATURES)
    named = essence(part.mime_type)
    if not named.startswith(f"{kind}/"):
        return "mimeType", f"{part.mime_type!r} is no type of {kind}; give one such as {kind}/..."
    try:
        head = _decoded_head(part.data)
    except ValueError as error:
        return "data", f"is not base64: {error}"
    if not head:
        return "data", "is empty"
    found = _recognise(head, signatures)
    wanted = _SAME.get(named, named)
    if found == wanted or (found is None and wanted not in _FIRM):
        return None
    if found == "audio/mpeg" and wanted not in _FIRM - {"audio/flac"}:
        # An ID3 tag may stand before sound of several types.
        return None
    known = f"it is {found}" if found else "it is of another type, or broken"
    return "data", f"is not {named}: {known}; give the type and the data of the same file"


def _decoded_head(data: str) -> bytes:
    """The first bytes of base64 data; raises ValueError if any of it is not base64.

    In pieces, so that other threads run in between.
    """
    head = b""
    for at in range(0, len(data), _PIECE):
        piece = binascii.a2b_base64(data[at : at + _PIECE], strict_mode=True)
        if len(piece) * 4 != _PIECE * 3 and at + _PIECE < len(data):
            raise ValueError("padding before the end")
        head = head or piece[:_HEAD]
    return head


def essence(mime_type: str) -> str:
    """A MIME type without its parameters: `audio/ogg` for `Audio/OGG; codecs=opus`."""
    return mime_type.partition(";")[0].strip().lower()


def _recognise(
    data: bytes, signatures: tuple[tuple[str, Callable[[bytes], bool]], ...]
) -> str | None:
    return next((mime for mime, matches in signatures if matches(data)), None)


def _read(source: str | Path | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, f"the given {len(source)} bytes"
    name = str(source)
    try:
        return Path(source).read_bytes(), name
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        # Somebody may have given a whole picture as text.
        shown = name if len(name) <= 200 else f"{name[:200]}..."
        raise InvalidRequest.of(
            [Problem("", f"cannot read {shown}: {reason}; check the path")]
        ) from error
