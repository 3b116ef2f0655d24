"""Where Ollama listens, from the variables that its own programs read."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

DEFAULT = "http://localhost:11434"
_PORT = 11434
_PORTS = {"http": 80, "https": 443}
# What a server listens on is no address that a client can call.
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


def from_environment() -> str:
    """`OLLAMA_BASE_URL`, else `OLLAMA_HOST`, else this machine."""
    value = os.environ.get("OLLAMA_BASE_URL") or os.environ.get("OLLAMA_HOST") or ""
    return parse(value) if value.strip() else DEFAULT


def parse(value: str) -> str:
    """The base address in `host`, `host:port`, `:port`, `[v6]:port` or a URL, each with a path.

    Without a port it is 11434, or the scheme's own where a scheme is given. What cannot be read is
    returned as it is, for the registry to refuse.
    """
    value = value.strip().strip("'\"").strip()
    scheme, separator, rest = value.partition("://")
    if not separator:
        # The cloud's name alone means the cloud, as for the `ollama` command.
        scheme, rest = ("https" if value == "ollama.com" else "http"), value
        if value != "ollama.com" and _is_ipv6(value):
            rest = f"[{value}]"
    scheme = scheme.lower()
    default = _PORTS.get(scheme, _PORT) if separator or scheme == "https" else _PORT
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or default
    except ValueError:
        return value
    if scheme not in _PORTS or "@" in parts.netloc or parts.query or parts.fragment:
        return value
    host = parts.hostname or "127.0.0.1"
    host = f"[{host}]" if _is_ipv6(host) else host
    return f"{scheme}://{_ANYWHERE.get(host, host)}:{port}{parts.path.rstrip('/')}"


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
