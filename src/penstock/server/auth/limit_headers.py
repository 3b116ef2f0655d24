"""What is left of a key's limits, as headers in OpenAI's form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from penstock.keys.policy import KeyTerms
from penstock.keys.rate_limit import AnyWindow
from penstock.server.exchange import Header

_REQUESTS = (
    b"x-ratelimit-limit-requests",
    b"x-ratelimit-remaining-requests",
    b"x-ratelimit-reset-requests",
)
_TOKENS = (
    b"x-ratelimit-limit-tokens",
    b"x-ratelimit-remaining-tokens",
    b"x-ratelimit-reset-tokens",
)


def limit_headers(terms: KeyTerms) -> Iterator[Header]:
    """Three headers for each limit that the key has."""
    yield from _headers(_REQUESTS, terms.requests)
    yield from _headers(_TOKENS, terms.tokens)


def _headers(names: tuple[bytes, bytes, bytes], window: AnyWindow | None) -> Iterable[Header]:
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
