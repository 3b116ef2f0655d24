"""Periods follow each other without gap or overlap, whatever the clocks of a place do."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.budget.calendar import FOREVER, PERIODS, Calendar, Period, Span, span
from penstock.contract.errors import ConfigurationError

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # went to summer time at midnight
    "America/Havana",  # goes back at 01:00, so that midnight comes twice
    "America/Toronto",  # in 1919 at 23:30, and so over midnight
    "Australia/Lord_Howe",  # half an hour
    "Asia/Kathmandu",  # 5:45
    "Pacific/Apia",  # has left out a whole day
    "Africa/Cairo",
)


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def local(text: str, zone: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


CHANGES = [
    utc(f"{year}-{month:02}-{day:02}")
    for year, month, day in (
        (1919, 3, 31), (2011, 12, 30), (2018, 11, 4), (2024, 4, 26), (2026, 3, 29),
        (2026, 4, 4), (2026, 10, 3), (2026, 10, 25), (2026, 11, 1),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("period", "at", "start", "end"),
    [
        ("hour", "2026-03-04T05:06:07", "2026-03-04T05:00", "2026-03-04T06:00"),
        ("day", "2026-03-04T05:06:07", "2026-03-04", "2026-03-05"),
        ("week", "2026-03-04T05:06:07", "2026-03-02", "2026-03-09"),
        ("week", "2026-01-01T00:00:00", "2025-12-29", "2026-01-05"),
        ("month", "2026-03-04T05:06:07", "2026-03-01", "2026-04-01"),
        ("month", "2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("month", "2026-02-28T23:59:59", "2026-02-01", "2026-03-01"),
        ("month", "2028-02-29T12:00:00", "2028-02-01", "2028-03-01"),
        ("day", "2028-02-29T00:00:00", "2028-02-29", "2028-03-01"),
        ("month", "2100-02-28T23:59:59", "2100-02-01", "2100-03-01"),
        ("month", "2000-02-29T23:59:59", "2000-02-01", "2000-03-01"),
    ],
)
def test_periods_are_those_of_the_calendar(period: Period, at: str, start: str, end: str) -> None:
    assert span(period, ZoneInfo("UTC"), utc(at)) == Span(utc(start), utc(end))


def test_for_ever_has_no_end() -> None:
    for at in (-1e9, 0.0, 1.8e9, 1e11):
        assert span("forever", ZoneInfo("UTC"), at) is FOREVER


def test_the_end_belongs_to_the_next_period_and_the_moment_before_does_not() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    midnight = local("2026-05-01T00:00", "Europe/Berlin")
    assert span("month", berlin, midnight).start == midnight
    assert span("month", berlin, midnight - 0.001).end == midnight


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("America/New_York", "2026-11-01", 25),
        ("America/Sao_Paulo", "2018-11-04", 23),
        ("America/Havana", "2026-11-01", 25),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("America/Toronto", "1919-03-31", 23.5),
    ],
)
def test_a_day_with_a_change_of_the_clocks_has_as_many_hours_as_pass(
    zone: str, day: str, hours: float
) -> None:
    noon = local(f"{day}T12:00", zone)
    found = span("day", ZoneInfo(zone), noon)
    assert found.end is not None
    assert (found.end - found.start) / 3600 == hours


def test_the_day_that_apia_left_out_has_no_length() -> None:
    apia = ZoneInfo("Pacific/Apia")
    last = local("2011-12-29T12:00", "Pacific/Apia")
    assert span("day", apia, last).end == local("2011-12-31T00:00", "Pacific/Apia")


def test_the_hour_that_is_shown_twice_is_two_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = span("hour", berlin, local("2026-10-25T02:30", "Europe/Berlin", fold=0))
    second = span("hour", berlin, local("2026-10-25T02:30", "Europe/Berlin", fold=1))
    assert first.end == second.start
    assert second.start - first.start == 3600


def test_hours_begin_with_the_hour_that_the_clock_shows() -> None:
    at = local("2026-05-01T10:20", "Asia/Kathmandu")
    assert span("hour", ZoneInfo("Asia/Kathmandu"), at).start == at - 20 * 60


def test_the_hour_of_a_change_by_half_an_hour_is_cut_in_two() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    change = utc("2026-04-04T15:00")  # 02:00 becomes 01:30
    before, after = span("hour", zone, change - 1), span("hour", zone, change)
    assert before == Span(change - 3600, change)
    assert after == Span(change, change + 1800)


@given(
    period=st.sampled_from(PERIODS),
    zone=st.sampled_from(ZONES),
    at=st.one_of(
        st.integers(-(2**31), 2**32),
        # Near the changes of the clocks, where it matters.
        st.tuples(st.sampled_from(CHANGES), st.integers(-90_000, 90_000)).map(sum),
    ),
)
def test_every_moment_lies_in_one_period_that_its_neighbours_touch(
    period: Period, zone: str, at: int
) -> None:
    info = ZoneInfo(zone)
    found = span(period, info, at)
    if period == "forever":
        return
    assert found.end is not None
    assert at in found
    assert span(period, info, found.start) == found
    assert span(period, info, found.end - 1) == found
    assert span(period, info, found.end).start == found.end
    assert span(period, info, found.start - 1).end == found.start


@given(
    zone=st.sampled_from(ZONES),
    at=st.integers(utc("1990-01-01"), utc("2060-01-01")),
    period=st.sampled_from(["day", "week", "month"]),
)
def test_days_weeks_and_months_begin_at_the_first_moment_of_their_date(
    zone: str, at: int, period: Period
) -> None:
    info = ZoneInfo(zone)
    start = datetime.fromtimestamp(span(period, info, at).start, info)
    before = start.astimezone(UTC) - timedelta(seconds=1)
    assert before.astimezone(info).date() < start.date()
    if period == "week" and zone != "Pacific/Apia":
        assert start.weekday() == 0
    if period == "month":
        assert start.day == 1


def test_a_clock_that_steps_back_finds_the_earlier_period_again() -> None:
    calendar = Calendar("day", "Europe/Berlin")
    midnight = local("2026-05-02T00:00", "Europe/Berlin")
    before, after = calendar.span(midnight - 10), calendar.span(midnight + 10)
    assert before.end == after.start == midnight
    assert calendar.span(midnight - 5) == before
    assert calendar.span(midnight + 5) == after


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "Europe", "\0"]
)
def test_an_unknown_time_zone_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"timezone .* is not known") as caught:
        Calendar("day", name)
    assert repr(name) in str(caught.value)


def test_an_unknown_period_is_named_beside_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"'fortnight'.*hour, day, week, month, forever"):
        Calendar("fortnight")  # pyright: ignore[reportArgumentType]
