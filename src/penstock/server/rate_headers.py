"""What is left of a key's limits, in the headers that OpenAI's clients know."""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock.keys.windows import AnyWindow
from penstock.server.exchange import Header

REQUESTS = (
    b"x-ratelimit-limit-requests",
    b"x-ratelimit-remaining-requests",
    b"x-ratelimit-reset-requests",
)
TOKENS = (
    b"x-ratelimit-limit-tokens",
    b"x-ratelimit-remaining-tokens",
    b"x-ratelimit-reset-tokens",
)


def limit_headers(names: tuple[bytes, bytes, bytes], window: AnyWindow | None) -> Iterable[Header]:
    """The limit of this window, what is left of it, and when nothing of it is used any more."""
    if window is None:
        return ()
    remaining, reset_s = window.left()
    values = (b"%d" % window.limit, b"%d" % remaining, _duration(reset_s))
    return zip(names, values, strict=True)


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: `20ms`, `1.5s`, `1m0.5s`."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return b"%dms" % milliseconds if milliseconds else b"0s"
    minutes, rest = divmod(milliseconds / 1000, 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".")
    return (f"{minutes:.0f}m{text}s" if minutes else f"{text}s").encode()
