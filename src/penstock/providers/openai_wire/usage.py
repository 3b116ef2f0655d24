"""Tokens as these wires count them: the totals have other names on each, the details do not."""

from __future__ import annotations

import math

import msgspec

from penstock.contract.exchange import Usage


class InputDetails(msgspec.Struct, gc=False):
    """The prompt's tokens by kind."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """The answer's tokens by kind."""

    reasoning_tokens: int | None = None


def counted(
    read: int | None,
    written: int | None,
    read_details: InputDetails | None,
    written_details: OutputDetails | None,
    heard_s: object = None,
) -> Usage:
    """The usage that these numbers are."""
    reading = read_details or InputDetails()
    return Usage(
        read,
        written,
        reading.cached_tokens,
        reading.cache_write_tokens,
        written_details.reasoning_tokens if written_details else None,
        input_audio_tokens=reading.audio_tokens or None,
        audio_seconds=seconds(heard_s),
    )


def seconds(value: object) -> float | None:
    """A length of sound; what is no number is none, for who has heard nothing may send anything."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return math.inf
