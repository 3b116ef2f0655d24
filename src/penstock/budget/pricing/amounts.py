"""Money: integer nano-dollars, and how they are shown to people."""

from __future__ import annotations

from decimal import Decimal

NANOS = 1_000_000_000
"""Nano-dollars in a dollar."""
MOST = 10**18
"""A billion dollars; the sum of any nine of them fits the integers of every store."""


def dollars(nanos: int) -> str:
    """`$12.50`: at least the cents, and no more digits than it has; exact, for no float is used."""
    whole, fraction = divmod(abs(nanos), NANOS)
    digits = f"{fraction:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanos < 0 else ''}${whole}.{digits}"


def nanos_of(usd: float | Decimal) -> int:
    """Dollars as they were written, in whole nano-dollars; raises ValueError for less."""
    # The number that was written, and not the nearest one that a float can be.
    nanos = Decimal(repr(usd) if isinstance(usd, float) else usd) * NANOS
    if not nanos.is_finite() or nanos != nanos.to_integral_value():
        raise ValueError(f"{usd} USD: give an amount of at most nine decimals")
    return int(nanos)
