"""The sizes that a picture's file gives, all of them: a header alone may say anything.

A walk ends when the steps of its request are used up; each step takes the same time, whatever the
file is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from penstock.tokens.steps import Steps

Size: TypeAlias = tuple[int, int]

_STEPS_A_SIZE = 3
"""What the tokens of each size take, which all makers' rules are asked for."""
_BYTES_A_PIXEL = 8
"""Four channels of two bytes, as they are: a file of so many bytes has no fewer pixels."""
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset((0x01, 0xFF, *range(0xD0, 0xD9)))
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""The next marker after a scan: within one, 0xFF is followed by zero or a restart."""


class TooManyStepsError(Exception):
    """The request has no steps left."""


def sizes(data: bytes, steps: Steps | None = None) -> set[Size] | None:
    """Every width and height that a decoder may take from this file; None where there is none.

    `steps` are those of the whole request.
    """
    steps = steps or Steps()
    found: set[Size] = set()
    try:
        for size in _walk(data, steps):
            if size not in found:
                found.add(size)
                steps.take(_STEPS_A_SIZE)
    except TooManyStepsError:
        return None
    if not found or not all(width and height for width, height in found):
        return None
    side = int((len(data) / _BYTES_A_PIXEL) ** 0.5)
    return found | {(side, side)} if side else found


def first_size(data: bytes, steps: Steps) -> Size | None:
    """The width and height in the first header of this file; None where there is none."""
    try:
        found = next(_walk(data, steps), None)
    except TooManyStepsError:
        return None
    return found if found and all(found) else None


def _walk(data: bytes, steps: Steps) -> Iterator[Size]:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png(data, steps)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _gif(data, steps)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data, steps)
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data, steps)
    return iter(())


def _each(steps: Steps) -> Iterator[None]:
    yield from steps
    raise TooManyStepsError


def _png(data: bytes, steps: Steps) -> Iterator[Size]:
    """The header, any further one, and the frames of an animation."""
    at = 8
    for _ in _each(steps):
        kind = data[at + 4 : at + 8]
        if len(kind) < 4:
            return
        if kind == b"IHDR":
            yield _big(data, at + 8, 4), _big(data, at + 12, 4)
        elif kind == b"fcTL":
            yield _big(data, at + 12, 4), _big(data, at + 16, 4)
        at += 12 + _big(data, at, 4)


def _gif(data: bytes, steps: Steps) -> Iterator[Size]:
    """The screen, and each frame with its place on it."""
    yield _little(data, 6, 2), _little(data, 8, 2)
    at, rounds = 13 + _table(data, 10), _each(steps)
    for _ in rounds:
        kind = data[at : at + 1]
        if kind == b"\x2c":
            left, top, width, height = (_little(data, at + n, 2) for n in (1, 3, 5, 7))
            if width and height:
                yield left + width, top + height
            at += 11 + _table(data, at + 9)
        elif kind == b"\x21":
            at += 2
        else:
            return
        # Blocks of data follow, each of which says its length, to an empty one.
        for _ in rounds:
            length = data[at] if at < len(data) else 0
            at += 1 + length
            if not length:
                break


def _table(data: bytes, at: int) -> int:
    """The bytes of a table of colours."""
    flags = data[at] if at < len(data) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _webp(data: bytes, steps: Steps) -> Iterator[Size]:
    """The canvas, and each frame."""
    at = 12
    for _ in _each(steps):
        kind = data[at : at + 4]
        if len(kind) < 4:
            return
        if kind == b"VP8 ":
            yield _little(data, at + 14, 2) & 0x3FFF, _little(data, at + 16, 2) & 0x3FFF
        elif kind == b"VP8L":
            bits = _little(data, at + 9, 4)
            yield (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif kind == b"VP8X":
            yield _little(data, at + 12, 3) + 1, _little(data, at + 15, 3) + 1
        elif kind == b"ANMF":
            yield _little(data, at + 14, 3) + 1, _little(data, at + 17, 3) + 1
        length = _little(data, at + 4, 4)
        at += 8 + length + length % 2


def _jpeg(data: bytes, steps: Steps) -> Iterator[Size]:
    """Every frame header between the segments, also behind the first scan."""
    at = 2
    for _ in _each(steps):
        if at + 4 > len(data):
            return
        if data[at] != 0xFF or data[at + 1] == 0xFF:
            found = _MARKER.search(data, at)
            if found is None:
                return
            at = found.start()
        marker = data[at + 1]
        if marker in _START_OF_FRAME:
            yield _big(data, at + 7, 2), _big(data, at + 5, 2)
        at += 2
        if marker not in _WITHOUT_LENGTH and marker != 0xD9:
            at += max(2, _big(data, at, 2))


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
