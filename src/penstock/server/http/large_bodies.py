"""Large bodies: how many JSON values they hold, and how they are read without holding the loop.

A decoder is one call that no other thread interrupts, so its time is limited by what it is given:
a body of 20 MB may hold seven million empty lists, which take seconds and half a gigabyte. Bodies
of that kind are refused before they are decoded. What remains is decoded in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.server.errors import Failure, HttpProblem

R = TypeVar("R")

LARGE = 131_072
"""Bytes above which a body is decoded in a thread; less takes a few milliseconds at most."""
_LEAST_BYTES = 2
"""No value takes less, with the comma or the bracket before it."""


async def check_values(data: bytes, most: int) -> None:
    """Raise HttpProblem when JSON holds more values than these."""
    if len(data) < _LEAST_BYTES * most or _marks(data) <= most:
        return
    # Commas and brackets inside texts are no values; telling them apart takes longer.
    if await asyncio.to_thread(_values, data, most) > most:
        raise HttpProblem(
            Failure(
                413,
                f"the request holds more than {most} JSON values; send less, or raise "
                "limits.max_json_values",
                code="request_too_large",
            )
        )


async def read_large(decode: Callable[..., R], data: Any, *asking: Callable[[Any], Any]) -> R:
    """What `decode` makes of the data and of the functions that it asks, if there are any.

    It runs in a thread where there is much data; the functions run on the loop in any case.
    """
    if len(data) < LARGE:
        return decode(data, *asking)
    return await asyncio.to_thread(decode, data, *map(_on_loop, asking))


def _on_loop(function: Callable[[Any], R]) -> Callable[[Any], R]:
    loop = asyncio.get_running_loop()

    def ask(argument: Any) -> R:
        async def asked() -> R:
            return function(argument)

        return asyncio.run_coroutine_threadsafe(asked(), loop).result()

    return ask


def _marks(data: bytes) -> int:
    """Each value has an opening bracket or a comma of its own, but for the outermost."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _values(data: bytes, most: int) -> int:
    """The number of values; it stops when there are surely too many."""
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = plain.count(b'"')
    if quotes > 4 * (most + 1):
        # A value has at most two texts of its own: itself, and its key.
        return most + 1
    return _marks(b"".join(plain.split(b'"')[::2]))
