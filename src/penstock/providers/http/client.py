"""The HTTP client proper: a pool of connections, and its errors in Penstock's words.

Imported at the first call, because a command that calls nobody need not wait for it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock._version import __version__
from penstock.contract.errors import (
    ConfigurationError,
    MalformedResponse,
    ProviderTimeout,
    ProviderUnavailable,
)
from penstock.providers.http.connect import Place, Route, dial, read_route, tls_context
from penstock.providers.http.connection import Connection, HungUp, NotHttp
from penstock.providers.http.error_words import say
from penstock.providers.http.response import StreamingResponse
from penstock.providers.wire.dialect import WireCall

if TYPE_CHECKING:
    from penstock.providers.http.transport import TransportSettings

_ROUTES = 1024
"""How many addresses are remembered; callers make up the models that are part of some."""
_KEPT_S = 60.0
"""How long a connection is kept that nobody uses."""
_DEFAULTS = {
    "user-agent": f"penstock/{__version__}",
    "accept": "*/*",
    "accept-encoding": "gzip, deflate",
}
_BODILESS = ("GET", "HEAD")


class HttpClient:
    """One pool of connections."""

    def __init__(self, settings: TransportSettings) -> None:
        """Needs a running event loop."""
        self._settings = settings
        self._route = lru_cache(_ROUTES)(read_route)
        self._clock = asyncio.get_running_loop().time
        self._tls_context = tls_context(settings.ca_file) if settings.ca_file else None
        self._idle: dict[tuple[Place, Place | None], list[Connection]] = {}
        self._open: set[Connection] = set()

    async def send(
        self,
        url: str,
        call: WireCall,
        headers: Mapping[str, str],
        limit: float,
        sent: Callable[[], object] | None,
    ) -> StreamingResponse:
        """The response once its headers are there, within so many seconds.

        `sent` is called when all of the request is on its way.
        """
        route = self._route(url)
        head = _head(route, call, headers)
        connection = self._waiting(route) or await self._dialled(route)
        try:
            connection.ask(head, call.body, sent)
            await connection.answered(limit)
        except BaseException as error:
            self._open.discard(connection)
            connection.cut()
            if isinstance(error, Exception):
                raise _failed(route.shown, limit, error) from error
            raise
        return StreamingResponse(connection, self._give_back, route)

    def _waiting(self, route: Route) -> Connection | None:
        """A connection that stands; some servers close theirs without saying so."""
        idle = self._idle.get(route.end)
        while idle:
            connection = idle.pop()
            if self._clock() - connection.idle_since < _KEPT_S and connection.stands():
                return connection
            connection.cut()
        return None

    async def _dialled(self, route: Route) -> Connection:
        limit = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                connection = await self._in_own_context(route, limit)
        except TimeoutError as error:
            raise ProviderTimeout(f"no connection to {route.shown} within {limit:g} s") from error
        except NotHttp as error:
            proxy = "" if route.proxy is None else route.proxy.shown
            raise MalformedResponse(f"the proxy {proxy} does not speak HTTP: {error}") from error
        self._open.add(connection)
        # In a context of its own, as in `_in_own_context`.
        connection.lost.add_done_callback(
            lambda _: self._open.discard(connection), context=Context()
        )
        return connection

    async def _in_own_context(self, route: Route, limit: float) -> Connection:
        # The event loop keeps the context in which a socket is opened as long as the socket. That
        # of the request would keep its prompt and its answer as long as the connection is pooled.
        loop = asyncio.get_running_loop()
        opening = loop.create_task(dial(route, self._tls, limit), context=Context())
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().cut()
            raise

    def _tls(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = tls_context(None)
        return self._tls_context

    def _give_back(self, connection: Connection, route: Route) -> None:
        """For the next request to the same end, unless something of this one is left."""
        if connection in self._open and connection.reusable():
            self._idle.setdefault(route.end, []).append(connection)
        else:
            connection.cut()

    async def aclose(self) -> None:
        """Close all connections."""
        closing = list(self._open)
        self._open.clear()
        self._idle.clear()
        for connection in closing:
            connection.cut()
        await asyncio.gather(*(connection.lost for connection in closing))


def _head(route: Route, call: WireCall, headers: Mapping[str, str]) -> bytes:
    """The request up to its body; raises ConfigurationError for what cannot be written."""
    said = {**_DEFAULTS, **route.headers, **headers}
    if call.body is not None or call.method not in _BODILESS:
        said["content-length"] = str(len(call.body or b""))
    lines = "".join([f"{name}: {value}\r\n" for name, value in said.items()])
    count = len(said)
    if not (lines.count("\n") == lines.count("\r") == count and "\0" not in lines):
        raise ConfigurationError(
            f"{route.shown} cannot be called: a header has a line end or a null in it"
        )
    try:
        return f"{call.method} {route.target} HTTP/1.1\r\n{lines}\r\n".encode()
    except UnicodeEncodeError:
        # Not chained, because it holds the headers and with them the key.
        raise ConfigurationError(
            f"{route.shown} cannot be called: a header has half a character in it"
        ) from None


def _failed(address: str, limit: float, error: Exception) -> ProviderUnavailable | Exception:
    match error:
        case TimeoutError():
            return ProviderTimeout(f"{address} sent no response within {limit:g} s")
        case NotHttp():
            return MalformedResponse(f"{address} does not speak HTTP: {error}")
        case HungUp():
            return ProviderUnavailable(f"{address} closed the connection instead of answering")
        case OSError():
            return ProviderUnavailable(f"the connection to {address} failed: {say(error)}")
        case _:
            return error
