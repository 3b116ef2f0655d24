"""How long a provider asks to be left alone, read from the headers of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_LONGEST_S = 366 * 86_400.0
_LONGEST_VALUE = 64
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_GO_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|μs|ms|h|m|s))+")
_GO_STEP = re.compile(r"([0-9.]+)([a-zµμ]+)")
_GO_UNITS: Mapping[str, float] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds to wait, or None when the provider named no time that makes sense.

    `retry-after-ms` is the most exact and wins; then `retry-after`, in seconds or as an HTTP date,
    which is compared with `now` (seconds since the epoch); then `x-ratelimit-reset-requests`, a Go
    duration such as `1m30s`. Header names are lower-case. A value that is negative, past, garbage
    or more than a year counts as absent.
    """
    for name, read in _SOURCES:
        value = headers.get(name)
        if value is not None and len(value) <= _LONGEST_VALUE:
            seconds = read(value.strip(), now)
            if seconds is not None and 0 <= seconds <= _LONGEST_S:
                return seconds
    return None


def _milliseconds(value: str, now: float) -> float | None:
    return float(value) / 1000 if _NUMBER.fullmatch(value) else None


def _seconds_or_date(value: str, now: float) -> float | None:
    if _NUMBER.fullmatch(value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
        # A date without a zone is meant in UTC, as HTTP dates are; Python would take local time.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _go_duration(value: str, now: float) -> float | None:
    if not _GO_DURATION.fullmatch(value):
        return None
    return sum(float(number) * _GO_UNITS[unit] for number, unit in _GO_STEP.findall(value))


_SOURCES: tuple[tuple[str, Callable[[str, float], float | None]], ...] = (
    ("retry-after-ms", _milliseconds),
    ("retry-after", _seconds_or_date),
    ("x-ratelimit-reset-requests", _go_duration),
)
