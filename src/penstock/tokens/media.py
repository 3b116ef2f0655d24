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
from penstock.tokens.pictures import Size, first_size, sizes
from penstock.tokens.sounds import most_seconds as measured
from penstock.tokens.steps import Steps

ImageRule: TypeAlias = Callable[[int, int], int]
"""`rule(width, height)`: the tokens of a picture of so many pixels."""

_UNKNOWN_SIDE = 1024
"""A picture behind a link, or of an unknown format, counts as a square of this side."""
_LARGEST_SIDE = 8000
"""A reservation takes it for the largest that the makers accept."""
_BYTES_A_SECOND = 16_000
"""Compressed sound at 128 kbit/s; a reservation assumes speech at 32 kbit/s."""
_FEWEST_BYTES_A_SECOND = 4_000
_FEWEST_BYTES_UNMEASURED = 1_000
"""Speech at 8 kbit/s, in a file whose frames are not measured."""
_HEAD = 256 * 1024
"""Characters of base64 that are looked at: a photograph's thumbnail may stand before its size."""


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


RULES: tuple[ImageRule, ...] = (patches, pixels, dear_tiles, tiles)


def likely_size(image: Image, steps: Steps) -> Size:
    """The size in the first header of a picture; a usual one where there is none."""
    return first_size(_head(image.data, _HEAD), steps) or (_UNKNOWN_SIDE, _UNKNOWN_SIDE)


def all_sizes(image: Image, steps: Steps | None = None) -> Set[Size]:
    """Each size that a picture may have; one that cannot be read counts as a large one."""
    found = sizes(_head(image.data, len(image.data)), steps) if image.data else None
    return found or {(_LARGEST_SIDE, _LARGEST_SIDE)}


def most_image_tokens(image: Image, rule: ImageRule, steps: Steps | None = None) -> int:
    """The most tokens of a picture."""
    return max(rule(*size) for size in all_sizes(image, steps))


def seconds(audio: Audio, bytes_a_second: int = _BYTES_A_SECOND) -> int:
    """How long a sound is: by its header for WAV, and by a usual bit rate for all others."""
    head = _head(audio.data, 64)
    if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt ":
        bytes_a_second = int.from_bytes(head[28:32], "little") or bytes_a_second
    return math.ceil(len(audio.data) * 3 / 4 / bytes_a_second)


def most_seconds(audio: Audio) -> int:
    """How long a sound is at the lowest bit rate that speech is sent with."""
    return seconds(audio, _FEWEST_BYTES_A_SECOND)


def longest(audio: Audio, steps: Steps | None = None) -> int:
    """How long a sound can be: as measured, else at the lowest bit rate of speech."""
    found = measured(_head(audio.data, len(audio.data)), steps)
    if found is not None:
        return math.ceil(found)
    # The name of its format is the caller's, and says nothing of the bytes.
    return math.ceil(len(audio.data) * 3 / 4 / _FEWEST_BYTES_UNMEASURED)


def _head(data: str, characters: int) -> bytes:
    try:
        return binascii.a2b_base64(data[:characters])
    except (ValueError, binascii.Error):
        return b""
