"""Keeps web pages away from a gateway that asks for no key.

A page of any site can make a browser send requests to this machine's loopback address: straight
away, or under a name of its own that it lets point there (DNS rebinding). The second kind carries a
`Host` that is not of this machine. The first carries an `Origin` that is not, or none where the
browser sends a link, an image or a script: then `Sec-Fetch-Site` says `cross-site`. Programs send
none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.contract.checks.addresses import is_loopback_host
from penstock.contract.checks.lengths import NAME, URL
from penstock.server.auth.cors import Cors
from penstock.server.errors import Failure, HttpProblem

_REMEMBERED = 256
_OTHER_SITES = (
    "this gateway takes no requests from web pages of other sites: add the origin of the page to "
    "server.cors_origins, or have the gateway ask for keys"
)


class LocalGuard:
    """Admits requests of programs and pages of this machine."""

    def __init__(self, cors: Cors | None = None) -> None:
        """Remembers what it has seen, as it is asked for every request."""
        self._known_hosts: set[bytes] = set()
        self._cors = cors

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpProblem, a 403, when a browser may have been talked into this request."""
        host = headers.get(b"host", b"")
        if host not in self._known_hosts:
            if host and not is_loopback(_host_name(b"//" + host)):
                raise _refused("this gateway answers only to localhost, not to the name in `Host`")
            if len(self._known_hosts) < _REMEMBERED and len(host) <= NAME:
                self._known_hosts.add(host)
        origin = headers.get(b"origin", b"")
        if origin:
            local = is_local_origin(origin)
        else:
            # `same-site` is another port or a subdomain of this machine, whose pages are local.
            local = headers.get(b"sec-fetch-site", b"").strip().lower() != b"cross-site"
        if not local and not (self._cors and self._cors.allows(origin)):
            raise _refused(_OTHER_SITES)


def is_local_origin(origin: bytes) -> bool:
    """Whether a page of this origin was served by this machine."""
    return is_loopback(_host_name(origin))


def is_loopback(host: str) -> bool:
    """Whether the name or address can only mean this machine."""
    return host.endswith(".localhost") or is_loopback_host(host)


def _host_name(url: bytes) -> str:
    if len(url) > URL:
        return ""
    try:
        return urlsplit(url.decode("latin-1")).hostname or ""
    except ValueError:
        return ""


def _refused(message: str) -> HttpProblem:
    return HttpProblem(Failure(403, message, "permission_error", "not_local"))
