"""Amounts and moments, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from penstock.budget.pricing.amounts import NANOS

_MICRO = NANOS // 1_000_000


def money(nanos: int) -> str:
    """`$12.50`, and below a dollar as many digits as say something, up to a millionth."""
    sign, nanos = ("-" if nanos < 0 else ""), abs(nanos)
    if nanos >= NANOS:
        cents = (nanos + NANOS // 200) // (NANOS // 100)
        return f"{sign}${cents // 100:,}.{cents % 100:02d}"
    micros = (nanos + _MICRO // 2) // _MICRO
    if nanos and not micros:
        return f"{sign}<$0.000001"
    whole, rest = divmod(micros, 1_000_000)
    return f"{sign}${whole}." + f"{rest:06d}".rstrip("0").ljust(2, "0")


def local(moment: float) -> datetime:
    """The moment on the clock of this machine."""
    return datetime.fromtimestamp(moment, UTC).astimezone()


def in_zone(moment: float, timezone: str) -> str:
    """`2026-06-01 00:00 Europe/Berlin`."""
    return f"{datetime.fromtimestamp(moment, ZoneInfo(timezone)):%Y-%m-%d %H:%M} {timezone}"
