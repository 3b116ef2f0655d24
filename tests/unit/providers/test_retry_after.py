"""Headers in, seconds out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.providers.wire.retry_after import retry_after

NOW = 1_763_200_000.0  # Sat, 15 Nov 2025 09:46:40 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "20.5"}, 0.0205),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "Sat, 15 Nov 2025 09:47:40 GMT"}, 60.0),
        ({"retry-after": "Sat, 15 Nov 2025 09:47:40 -0000"}, 60.0),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-reset-requests": "1h0m0.5s"}, 3600.5),
        ({"x-ratelimit-reset-requests": "250ms"}, 0.25),
        ({"x-ratelimit-reset-requests": "500µs"}, 0.0005),
    ],
)
def test_a_time_is_read_from_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "soon",
        "nan",
        "inf",
        "1_000",
        "1e3",
        "9" * 400,
        "٣",
        "Sat, 15 Nov 2025 09:45:40 GMT",
        "Sat, 99 Nov 2025 09:45:40 GMT",
        "Sat, 15 Nov 99999 09:45:40 GMT",
    ],
)
def test_a_negative_past_or_garbled_time_counts_as_absent(value: str) -> None:
    assert retry_after({"retry-after": value}, NOW) is None
    assert retry_after({"retry-after-ms": value}, NOW) is None
    assert retry_after({"x-ratelimit-reset-requests": value}, NOW) is None


def test_milliseconds_win_over_seconds_and_both_win_over_the_reset() -> None:
    headers = {"retry-after-ms": "1", "retry-after": "2", "x-ratelimit-reset-requests": "3s"}
    assert retry_after(headers, NOW) == 0.001
    del headers["retry-after-ms"]
    assert retry_after(headers, NOW) == 2.0
    del headers["retry-after"]
    assert retry_after(headers, NOW) == 3.0


def test_a_garbled_header_does_not_hide_a_good_one() -> None:
    assert retry_after({"retry-after-ms": "x", "retry-after": "2"}, NOW) == 2.0


@given(st.text(), st.text(), st.text())
def test_no_header_makes_it_raise(first: str, second: str, third: str) -> None:
    headers = {"retry-after-ms": first, "retry-after": second, "x-ratelimit-reset-requests": third}
    seconds = retry_after(headers, NOW)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)
