"""From an address to a connection: names, the faster of several addresses, TLS and proxies."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import aiohappyeyeballs

from penstock.contract.errors import ConfigurationError, ProviderUnavailable
from penstock.providers.http.connection import Connection
from penstock.providers.http.error_words import say, shown
from penstock.providers.http.proxies import proxy_for

_PORTS = {"http": 80, "https": 443}
_AS_WRITTEN = "!$%&'()*+,/:;=?@"
"""What stays as it is in a path or query besides letters and digits: all that may stand there."""
_NEXT_ADDRESS_S = 0.25
"""How long one address of a name may stay silent before the next is tried beside it."""


class Place(NamedTuple):
    """A host and a port, and whether it is spoken to in secret."""

    host: str
    port: int
    secret: bool


class Proxy(NamedTuple):
    """What stands between, and what it is told to let us through."""

    place: Place
    shown: str
    headers: dict[str, str]


class Route(NamedTuple):
    """An address, made ready once for all calls to it."""

    place: Place
    proxy: Proxy | None
    target: str
    """What the first line of a request names."""
    headers: dict[str, str]
    """What every request to it has to say."""
    shown: str

    @property
    def end(self) -> tuple[Place, Place | None]:
        """What a connection leads to; requests with the same may share one."""
        if self.proxy is None:
            return self.place, None
        return (self.place, self.proxy.place) if self.place.secret else (self.proxy.place, None)


def read_route(url: str) -> Route:
    """The path goes out as it is written, for a signature may cover it."""
    place, host, headers = _read(url)
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    target = quote(path, safe=_AS_WRITTEN)
    headers["host"] = host
    found = proxy_for(url)
    if found is None:
        return Route(place, None, target, headers, shown(url))
    middle, _, login = _read(found)
    said = {f"proxy-{name}": value for name, value in login.items()}
    proxy = Proxy(middle, shown(found), said)
    if not place.secret:
        target = f"http://{host}{target}"
        headers |= said
    return Route(place, proxy, target, headers, shown(url))


def _read(url: str) -> tuple[Place, str, dict[str, str]]:
    """Where it is, how it calls itself, and the header for a name and password in it."""
    parts = urlsplit(url)
    try:
        host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode()
        port = parts.port
    except ValueError:
        raise no_address(url) from None
    if parts.scheme not in _PORTS or not host:
        raise no_address(url)
    name = f"[{host}]" if ":" in host else host
    usual = _PORTS[parts.scheme]
    said = name if port in (None, usual) else f"{name}:{port}"
    headers: dict[str, str] = {}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    return Place(host, port or usual, parts.scheme == "https"), said, headers


def no_address(url: str) -> ConfigurationError:
    """The error for what cannot be called at all."""
    return ConfigurationError(f"{shown(url)!r} is not an http or https address")


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """What certificates are checked with; raises ConfigurationError."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca_file {ca_file!r} cannot be used: {say(error)}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


async def dial(route: Route, tls: Callable[[], ssl.SSLContext], patience_s: float) -> Connection:
    """A new connection; raises ProviderUnavailable in words that tell what to do."""
    proxy = route.proxy
    if proxy is None:
        try:
            return await _connect(route.place, tls)
        except OSError as error:
            raise _unreachable(route.shown, error) from error
    try:
        connection = await _connect(proxy.place, tls)
    except OSError as error:
        raise ProviderUnavailable(
            f"cannot connect to the proxy {proxy.shown}: {say(error)}"
        ) from error
    if not route.place.secret:
        return connection
    try:
        return await _through(connection, route.place, proxy, tls(), patience_s)
    except OSError as error:
        connection.cut()
        raise _unreachable(route.shown, error) from error
    except BaseException:
        connection.cut()
        raise


async def _connect(place: Place, tls: Callable[[], ssl.SSLContext]) -> Connection:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    # Its types leave the parts of an address open.
    plug: socket.socket = await aiohappyeyeballs.start_connection(  # pyright: ignore[reportUnknownMemberType]
        found, happy_eyeballs_delay=_NEXT_ADDRESS_S
    )
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    try:
        _, connection = await loop.create_connection(
            Connection,
            sock=plug,
            ssl=tls() if place.secret else None,
            server_hostname=place.host if place.secret else None,
        )
    except BaseException:
        plug.close()
        raise
    return connection


async def _through(
    connection: Connection, place: Place, proxy: Proxy, tls: ssl.SSLContext, patience_s: float
) -> Connection:
    """A connection inside the one to the proxy, which sees nothing of what is said in it."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    end = f"{host}:{place.port}"
    said = {"host": end, **proxy.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    connection.ask(f"CONNECT {end} HTTP/1.1\r\n{lines}\r\n".encode(), None, None)
    await connection.answered(patience_s)
    if connection.status != HTTPStatus.OK:
        raise ProviderUnavailable(
            f"the proxy {proxy.shown} refused with {_named(connection.status)}"
        )
    inner = Connection()
    transport = await asyncio.get_running_loop().start_tls(
        connection.transport, inner, tls, server_hostname=place.host
    )
    if transport is None:
        raise ConnectionError("the proxy went away while TLS began")
    inner.connection_made(transport)
    return inner


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _unreachable(address: str, error: OSError) -> ProviderUnavailable:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProviderUnavailable(
            f"the TLS certificate of {address} cannot be verified: {say(error)}; "
            "give its authority in ca_file",
            retryable=False,
        )
    return ProviderUnavailable(
        f"cannot connect to {address}: {say(error)}; is the server running and the url right?"
    )
