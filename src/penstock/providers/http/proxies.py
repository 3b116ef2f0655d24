"""The proxy that the environment names."""

from __future__ import annotations

from typing import Any
from urllib import request as urllib_request
from urllib.parse import urlsplit

from penstock.contract.errors import ConfigurationError
from penstock.providers.http.error_words import shown


def proxy_for(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for this address."""
    scheme, host = urlsplit(url)[:2]
    # Not in the type stubs, though the standard library's own clients rely on both.
    environment: Any = urllib_request
    proxies: dict[str, str] = environment.getproxies_environment()
    found = proxies.get(scheme) or proxies.get("all")
    if not found or environment.proxy_bypass_environment(host.rpartition("@")[2], proxies):
        return None
    proxy = found if "://" in found else f"http://{found}"
    if not proxy.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"the proxy for {shown(url)} is of the kind {proxy.partition(':')[0]!r}; "
            "only http and https proxies are supported"
        )
    return proxy
