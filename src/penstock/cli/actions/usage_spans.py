"""Which time `penstock usage` is about, and how it is cut into bars; by this machine's clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from penstock.cli.errors import wrong
from penstock.cli.ui.money import local

WORDS = ("today", "week", "month", "all")
_HOUR_S = 3600.0
_HOURS, _DAYS, _WEEKS = timedelta(days=2), timedelta(days=62), timedelta(days=400)
"""Up to so long a time has a bar for each hour, day, week; beyond, for each month."""


class Slice(msgspec.Struct, frozen=True):
    """The time of one bar in Unix seconds, `end` excluded."""

    label: str
    start: float
    end: float


def now() -> datetime:
    """On this machine's clock."""
    return datetime.now(UTC).astimezone()


def beginning(text: str, present: datetime) -> datetime | None:
    """What `--since` means; None: everything. Raises InvalidRequest."""
    today = present.date()
    match text:
        case "all":
            return None
        case "today":
            return _midnight(today)
        case "week":
            return _midnight(today - timedelta(days=today.weekday()))
        case "month":
            return _midnight(today.replace(day=1))
        case _:
            return moment("--since", text, WORDS)


def moment(option: str, text: str, words: tuple[str, ...] = ()) -> datetime:
    """A date, or a date with a time; without a zone it is this machine's. Raises InvalidRequest."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError, OSError):
        known = "".join(f"{word}, " for word in words)
        raise wrong(
            option,
            f"{text!r} is not known: give {known}{'or ' if words else ''}a date such as "
            f"{now().date()} or {now():%Y-%m-%dT%H:00}",
        ) from None


def slices(start: datetime, end: datetime) -> Iterator[Slice]:
    """The time in hours, days, weeks or months, whichever fits the screen."""
    length = end - start
    if length <= _HOURS:
        yield from _hours(start.timestamp(), end.timestamp(), dated=length > timedelta(days=1))
        return
    step, form = _next_month, "%b %Y"
    if length <= _WEEKS:
        step, form = _next_week, "%d %b"
    if length <= _DAYS:
        step, form = _next_day, "%a %d %b"
    begin, day = start, start.date()
    while begin < end:
        day = step(day)
        until = min(_midnight(day), end)
        yield Slice(begin.strftime(form), begin.timestamp(), until.timestamp())
        begin = until


def unit(start: datetime, end: datetime) -> str:
    """What each bar stands for."""
    length = end - start
    limits = ((_HOURS, "hour"), (_DAYS, "day"), (_WEEKS, "week"))
    return next((name for limit, name in limits if length <= limit), "month")


def _hours(start: float, end: float, *, dated: bool) -> Iterator[Slice]:
    # An hour that passes: the clock may show one twice, or none.
    begin = start
    while begin < end:
        shown = local(begin)
        passed = shown.minute * 60 + shown.second + shown.microsecond / 1e6
        until = min(begin - passed + _HOUR_S, end)
        yield Slice(f"{shown:{'%a %H:00' if dated else '%H:00'}}", begin, until)
        begin = until


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time()).astimezone()


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _next_week(day: date) -> date:
    return day + timedelta(days=7 - day.weekday())


def _next_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
