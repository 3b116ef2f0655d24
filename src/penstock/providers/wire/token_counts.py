"""Token counts in answers: read apart from the answer, so that a wrong count does not lose it.

Wires declare their counts as `msgspec.Raw`. A count of another type or size than a count has marks
the usage as implausible, and the pool bills its own estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.contract.exchange import Usage

T = TypeVar("T")

UNREADABLE = Usage(implausible=True)
_ABSENT = (0, len(b"null"))
_decode_count = msgspec.json.Decoder(int).decode


def has_counts(raw: msgspec.Raw) -> bool:
    """Whether there is more than nothing or `null`; no usage is as short."""
    return len(raw) not in _ABSENT


def read_counts(
    raw: msgspec.Raw, decode: Callable[[msgspec.Raw], T], convert: Callable[[T], Usage]
) -> Usage:
    """The usage in `raw`: `UNREADABLE` where `decode` fails, and empty where there is none."""
    if not has_counts(raw):
        return Usage()
    try:
        return convert(decode(raw))
    except (ValueError, RecursionError):
        return UNREADABLE


def count_of(raw: msgspec.Raw) -> int | None:
    """A count that stands alone; -1, which is implausible, for anything but a whole number."""
    if bytes(raw) in (b"", b"null"):
        return None
    try:
        return _decode_count(raw)
    except (ValueError, RecursionError):
        return -1
