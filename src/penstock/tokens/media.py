"""What pictures and sounds cost, by the makers' published rules of thumb.

The likeliest number is read from the first bytes: a picture's size in pixels, and the byte rate of
a WAV file. An upper bound believes no header: `pictures` and `sounds` go through the whole file.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Set
from typing import TypeAlias

from penstock.contract.messages import Audio, Image
from penstock.tokens.pictures import Size, sizes
from penstock.tokens.sounds import most_seconds as measured

ImageRule: TypeAlias = Callable[[int, int], int]
"""`rule(width, height)`: the tokens of a picture of so many pixels."""

_UNKNOWN_SIDE = 1024
"""A picture behind a link, or of an unknown format, counts as a square of this side."""
_LARGEST_SIDE = 8000
"""A reservation takes it for the largest that the makers accept."""
_BYTES_A_SECOND = 16_000
"""Compressed sound at 128 kbit/s; a reservation assumes speech at 32 kbit/s."""
_FEWEST_BYTES_A_SECOND = 4_000
_THRIFTY = ("aac", "amr", "mp4", "m4a", "ogg", "opus", "webm", "3gpp")
"""Formats in which speech is sent with even less."""
_FEWEST_BYTES_OF_THE_THRIFTY = 1_500
_HEAD = 256 * 1024
"""Characters of base64 that are looked at: a photograph's thumbnail may stand before its size."""
_WITHOUT_LENGTH = {0x01, 0xFF, *range(0xD0, 0xD9)}
_START_OF_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def patches(width: int, height: int) -> int:
    """OpenAI's newer models: a token for each square of 32 pixels, at most 1536."""
    return min(1536, math.ceil(width / 32) * math.ceil(height / 32))


def pixels(width: int, height: int) -> int:
    """Claude: a token for 750 pixels, shrunk to sides of at most 2576 and to 4784 tokens."""
    scale = min(1.0, 2576 / max(width, height, 1))
    return min(4784, math.ceil(width * scale * height * scale / 750))


def dear_tiles(width: int, height: int) -> int:
    """gpt-4o-mini: 5667 for each tile of 512 pixels, after shrinking to 2048 by 768, and 2833."""
    scale = min(1.0, 2048 / max(width, height, 1))
    scale = min(scale, 768 / max(min(width, height), 1))
    across, down = math.ceil(width * scale / 512), math.ceil(height * scale / 512)
    return 2833 + 5667 * across * down


def tiles(width: int, height: int) -> int:
    """Gemini: 258 for a small picture, and for each tile of 768 pixels of a larger one."""
    if max(width, height) <= 384:
        return 258
    return 258 * math.ceil(width / 768) * math.ceil(height / 768)


def image_tokens(image: Image, rule: ImageRule) -> int:
    """The likeliest number of tokens of a picture."""
    return rule(*(_size(image) or (_UNKNOWN_SIDE, _UNKNOWN_SIDE)))


def all_sizes(image: Image) -> Set[Size]:
    """Each size that a picture may have; one that cannot be read counts as a large one."""
    found = sizes(_head(image.data, len(image.data))) if image.data else None
    return found or {(_LARGEST_SIDE, _LARGEST_SIDE)}


def most_image_tokens(image: Image, rule: ImageRule) -> int:
    """The most tokens of a picture."""
    return max(rule(*size) for size in all_sizes(image))


def seconds(audio: Audio, bytes_a_second: int = _BYTES_A_SECOND) -> int:
    """How long a sound is: by its header for WAV, and by a usual bit rate for all others."""
    head = _head(audio.data, 64)
    if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt ":
        bytes_a_second = int.from_bytes(head[28:32], "little") or bytes_a_second
    return math.ceil(len(audio.data) * 3 / 4 / bytes_a_second)


def most_seconds(audio: Audio) -> int:
    """How long a sound is at the lowest bit rate that speech is sent with."""
    return seconds(audio, _FEWEST_BYTES_A_SECOND)


def longest(audio: Audio) -> int:
    """How long a sound can be: as measured, else at the lowest bit rate of its format."""
    found = measured(_head(audio.data, len(audio.data)))
    if found is not None:
        return math.ceil(found)
    thrifty = any(name in audio.mime_type.lower() for name in _THRIFTY)
    fewest = _FEWEST_BYTES_OF_THE_THRIFTY if thrifty else _FEWEST_BYTES_A_SECOND
    return math.ceil(len(audio.data) * 3 / 4 / fewest)


def _head(data: str, characters: int) -> bytes:
    try:
        return binascii.a2b_base64(data[:characters])
    except (ValueError, binascii.Error):
        return b""


def _size(image: Image) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, WebP or JPEG picture; None when they cannot be read."""
    head = _head(image.data, 64)
    if head.startswith(b"\x89PNG"):
        return _checked(_big(head, 16, 4), _big(head, 20, 4))
    if head.startswith(b"GIF8"):
        return _checked(_little(head, 6, 2), _little(head, 8, 2))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(_head(image.data, _HEAD))
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 ":
            return _checked(_little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF)
        case b"VP8L":
            bits = _little(head, 21, 4)
            return _checked((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X":
            return _checked(_little(head, 24, 3) + 1, _little(head, 27, 3) + 1)
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """The first frame header among the segments, each of which says its length."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _START_OF_FRAME:
            return _checked(_big(data, at + 7, 2), _big(data, at + 5, 2))
        # A marker may be padded with 0xFF bytes, each of which is stepped over alone.
        at += 1 if marker == 0xFF else 2
        if marker not in _WITHOUT_LENGTH:
            at += _big(data, at, 2)
    return None


def _checked(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width and height else None


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
