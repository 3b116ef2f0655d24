"""Which web pages may call the gateway from a browser: none, unless `server.cors_origins` says so.

A browser asks first, with OPTIONS and without the caller's key; then it hides an answer from the
page unless that names the page's origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

ANYBODY = "*"
_REMEMBER_S = 600
_SHOWN = (
    b"x-request-id, request-id, retry-after, www-authenticate, idempotency-replayed, "
    b"mcp-session-id, mcp-protocol-version, "
    b"x-penstock-provider, x-penstock-model, x-penstock-cost-usd, x-penstock-attempts, "
    b"x-penstock-adapted, x-penstock-continued-by, x-penstock-stop-detail, x-penstock-estimated, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)


class Cors:
    """The origins that are let in."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`*` is any; a page needs a key all the same where keys are asked for."""
        self._any = ANYBODY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def allows(self, origin: bytes) -> bool:
        """Whether pages of this origin may call."""
        return self._any or origin in self._origins

    def headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """What the answer to a request with these headers says to a browser."""
        origin = headers.get(b"origin")
        if origin is None or not self.allows(origin):
            return ((b"vary", b"origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _SHOWN),
            (b"vary", b"origin"),
        )

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Headers | None:
        """The answer to a browser that asks whether it may; None: it does not ask that."""
        origin = headers.get(b"origin")
        wanted = headers.get(b"access-control-request-method")
        if method != "OPTIONS" or origin is None or wanted is None or not self.allows(origin):
            return None
        named = headers.get(b"access-control-request-headers", b"")
        return (
            (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
            *(((b"access-control-allow-headers", named),) if named else ()),
            (b"access-control-max-age", b"%d" % _REMEMBER_S),
        )
