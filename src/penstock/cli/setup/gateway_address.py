"""Where the gateway of a configuration is reached from its own machine."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
from urllib.parse import urlsplit

from penstock.config.server import ServerConfig

_PORTS = {"http": 80, "https": 443}


def url_of(server: ServerConfig, port: int | None = None) -> str:
    """The address; `port` instead of that of the configuration."""
    scheme = "http" if server.tls_certificate is None else "https"
    return f"{scheme}://{_reached(server.host)}:{server.port if port is None else port}"


def connection_to(url: str, server: ServerConfig, timeout: float) -> http.client.HTTPConnection:
    """A connection to this address; the configured certificate is accepted as it is."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout)
    if server.tls_certificate is None or host != _reached(server.host).strip("[]"):
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    # Exactly the configured certificate: its name need not be that of this machine.
    context = ssl.create_default_context(cafile=server.tls_certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _reached(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{address}]" if address.version == 6 else str(address)
