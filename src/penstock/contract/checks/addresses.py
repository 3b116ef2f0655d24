"""Hosts that no caller may send anybody to: what a machine answers only to itself.

Cloud machines hand out their own credentials to whoever asks a link-local address or a name that
stands for one. A caller who chooses an address (of an MCP server, say) must not reach them through
us, nor through a provider that connects for us. Ask `forbidden` about the host of an address, and
again about each address that its name has turned out to stand for. Where callers are strangers, ask
`is_public` and `is_public_address` in the same way.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.contract.checks.lengths import URL

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NAMES = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
    }
)
_METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"),
    )
)
"""Those of Alibaba, Oracle, AWS, Google and Scaleway that are not link-local."""
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".invalid")
_LINK_LOCAL = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_OURS = ipaddress.ip_network("64:ff9b:1::/48")
"""Which network translates these, and where to, is its own matter."""
# What the C library reads as an address: one to four numbers, each decimal, octal or hexadecimal.
_NUMBERS = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}")


def forbidden(host: str) -> str | None:
    """Why nobody may be sent to this host, in words that follow its name; None if one may be."""
    # Clients fold the forms of a name before they look it up, and so the check must.
    name = _folded(host)
    if name in _METADATA_NAMES:
        return "is the metadata service of a cloud"
    address = _address(name)
    for each in () if address is None else (address, *_inside(address)):
        if each in _METADATA_ADDRESSES:
            return "is the metadata service of a cloud"
        if any(each in network for network in _LINK_LOCAL):
            return "is a link-local address, where clouds keep their metadata services"
    return None


def is_public(url: str) -> bool:
    """Whether others can be sent there: by TLS, and not to a machine of our own network."""
    scheme, host = _parts(url)
    return scheme == "https" and bool(host) and not _is_ours(host)


def is_public_address(address: str) -> bool:
    """Whether this, to which a name has led, is an address of the internet."""
    found = _address(_folded(address))
    return found is not None and not _is_our_address(found)


def is_private(url: str) -> bool:
    """Whether that is this machine, or one of our own network, as far as the address tells."""
    _, host = _parts(url)
    return bool(host) and _is_ours(host)


def is_loopback_host(host: str) -> bool:
    """Whether this host, a name or an address, is always this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """The host that this address names; empty when it names none, or is longer than `URL`."""
    return _parts(url)[1]


def _parts(url: str) -> tuple[str, str]:
    if len(url) > URL:
        return "", ""
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").rstrip(".")
    except ValueError:
        return "", ""


def _folded(host: str) -> str:
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower()
    return name.strip("[]").partition("%")[0].rstrip(".")


def _is_ours(host: str) -> bool:
    name = _folded(host)
    address = _address(name)
    if address is not None:
        return _is_our_address(address)
    return "." not in name or name.endswith(_PRIVATE_ENDINGS)


def _is_our_address(address: _Address) -> bool:
    if address in _NAT64_OURS or (address.version == 6 and address.is_site_local):
        return True
    return any(not each.is_global or each.is_multicast for each in (address, *_inside(address)))


def _address(name: str) -> _Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        pass
    if _NUMBERS.fullmatch(name):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(name))
        except OSError:
            pass
    return None


def _inside(address: _Address) -> list[_Address]:
    """The IPv4 addresses that an IPv6 address only wraps."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    wrapped = [address.ipv4_mapped, address.sixtofour]
    if address in _NAT64 or int(address) >> 32 == 0:
        wrapped.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in wrapped if each is not None]
