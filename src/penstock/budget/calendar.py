"""Calendar periods: which one a moment lies in, and when that one began and ends.

Nothing rolls over by a timer. The period follows from the moment that is asked about, each time
anew, and so it is right after a pause, a restart, or a clock that was set back: then the earlier
period is found again, with all that was spent in it, and nothing is counted twice.

Periods follow each other without gap or overlap, whatever a time zone does:

- A day, week (from Monday) or month begins with the first moment of its first local date. Where
  summer time skips midnight, that is the moment of the change. A day may have 23 or 25 hours.
- An hour is an hour that passes. When clocks go back, the hour that they show twice is two hours.
  Where they change by half an hour, the hour of the change is cut in two.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args
from zoneinfo import ZoneInfo

import msgspec

from penstock.contract.errors import ConfigurationError

Period = Literal["hour", "day", "week", "month", "forever"]
PERIODS: tuple[Period, ...] = get_args(Period)
_HOUR = 3600


class Span(msgspec.Struct, frozen=True):
    """One period in Unix seconds, from `start` to just before `end`; without an end for ever."""

    start: int
    end: int | None

    def __contains__(self, at: float) -> bool:
        """Whether this moment lies in it."""
        return self.start <= at and (self.end is None or at < self.end)


FOREVER = Span(0, None)
"""The one period of a budget that is never reset; also moments before 1970 belong to it."""


def time_zone(name: str) -> ZoneInfo:
    """The time zone of this name; raises ConfigurationError when there is none."""
    try:
        return ZoneInfo(name)
    # Names that are no key at all come back as ValueError, folders of the database as OSError.
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"timezone {name!r} is not known: give a name of the IANA database such as "
            "'Europe/Berlin' or 'UTC' (on a system without that database, `pip install tzdata`)"
        ) from error


def span(period: Period, zone: ZoneInfo, at: float) -> Span:
    """The period that this moment lies in."""
    if period == "forever":
        return FOREVER
    if period == "hour":
        return _hour(zone, at)
    first = _first_date(period, datetime.fromtimestamp(at, zone).date())
    start = _beginning(first, zone)
    # The clock may show a date again that it had left: the moment then belongs to the later one.
    following = _following(period, first)
    while (end := _beginning(following, zone)) <= at:
        start, following = end, _following(period, following)
    return Span(start, end)


class Calendar:
    """The periods of one kind in one time zone; the last one is remembered."""

    def __init__(self, period: Period, timezone: str = "UTC") -> None:
        """Raises ConfigurationError for a period or time zone that does not exist."""
        if period not in PERIODS:
            raise ConfigurationError(f"period {period!r} is not known: give {', '.join(PERIODS)}")
        self._period: Period = period
        self._zone = time_zone(timezone)
        self._last = FOREVER if period == "forever" else Span(0, 0)

    def span(self, at: float) -> Span:
        """The period that this moment lies in."""
        last = self._last
        if last.end is None or last.start <= at < last.end:
            return last
        self._last = last = span(self._period, self._zone, at)
        return last


def _first_date(period: Period, day: date) -> date:
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def _following(period: Period, first: date) -> date:
    if period == "month":
        return (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return first + timedelta(days=7 if period == "week" else 1)


def _beginning(day: date, zone: ZoneInfo) -> int:
    """The first moment whose local date is this one, or a later one if it was skipped."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    moment = int(midnight.timestamp())
    if datetime.fromtimestamp(moment, zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return moment
    # Midnight was skipped; read with the later offset it comes out before the change.
    return _change(int(midnight.replace(fold=1).timestamp()), moment, zone)


def _hour(zone: ZoneInfo, at: float) -> Span:
    now = int(at // 1)
    start = now - (now + _offset(now, zone)) % _HOUR
    end = start + _HOUR
    # A shift by whole hours leaves the beginnings of hours where they are.
    if (_offset(start, zone) - _offset(now, zone)) % _HOUR:
        start = _change(start, now, zone)
    if (_offset(end, zone) - _offset(now, zone)) % _HOUR:
        end = _change(now, end, zone)
    return Span(start, end)


def _offset(moment: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(moment, zone).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def _change(before: int, after: int, zone: ZoneInfo) -> int:
    """The first second that has the offset of `after`."""
    offset = _offset(after, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(middle, zone) == offset:
            after = middle
        else:
            before = middle
    return after


def at_text(moment: float) -> str:
    """A moment for people, to the second, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
