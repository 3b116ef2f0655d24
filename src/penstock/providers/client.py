"""The HTTP client proper: a pool of aiohttp's connections, and its errors in Penstock's words.

Imported at the first call, because aiohttp takes longer to import than all the rest of the package.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from penstock._version import __version__
from penstock.contract.errors import ConfigurationError, ProviderTimeout
from penstock.providers.deadline import Deadline
from penstock.providers.dialect import WireCall
from penstock.providers.failures import misspoken, say, shown, unreachable
from penstock.providers.proxies import proxy_for
from penstock.providers.response import StreamingResponse

if TYPE_CHECKING:
    from penstock.providers.http import TransportSettings

_STALE_CONNECTIONS = 3
"""How many closed connections of the pool a request may run into."""
_ROUTES = 1024
"""How many addresses are remembered; callers make up the models that are part of some."""
_AS_WRITTEN = "!$%&'()*+,/:;=?@"
"""What stays as it is in a path or query besides letters and digits: all that may stand there."""


class Route(NamedTuple):
    """An address, made ready once for all calls to it."""

    url: URL
    proxy: str | None
    shown: str


class HttpClient:
    """One pool of connections."""

    def __init__(self, settings: TransportSettings) -> None:
        """Needs a running event loop."""
        self._settings = settings
        self._route = lru_cache(_ROUTES)(_route)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=60,
                ssl=_tls_context(settings.ca_file) if settings.ca_file else True,
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout_s),
            headers={"user-agent": f"penstock/{__version__}"},
            cookie_jar=aiohttp.DummyCookieJar(),
            requote_redirect_url=False,
        )

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
        settings = self._settings
        route = self._route(url)
        try:
            with Deadline(limit):
                response = await self._send(route, call, headers, sent)
        except aiohttp.ConnectionTimeoutError as error:
            raise ProviderTimeout(
                f"no connection to {route.shown} within {settings.connect_timeout_s:g} s"
            ) from error
        except TimeoutError as error:
            raise ProviderTimeout(f"{route.shown} sent no response within {limit:g} s") from error
        except aiohttp.ClientResponseError as error:
            # Not chained, because it holds the headers of the request and with them the key.
            raise misspoken(url, route.proxy, error) from None
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise _no_address(url) from None
        except aiohttp.ClientError as error:
            raise unreachable(url, route.proxy, error) from error
        except ValueError as error:
            # A host name or a header that cannot be written down.
            raise ConfigurationError(f"{route.shown} cannot be called: {error}") from error
        return StreamingResponse(response, route.shown, settings.max_response_bytes)

    async def _send(
        self,
        route: Route,
        call: WireCall,
        headers: Mapping[str, str],
        sent: Callable[[], object] | None,
    ) -> aiohttp.ClientResponse:
        """Send again when a pooled connection turns out to be closed before the request is written.

        Some servers close after a stream without saying so. The provider cannot have seen a request
        whose writing failed for that reason, so it is not asked twice; any later failure is not
        answered for here.
        """
        stale = 0
        body = call.body
        if body is not None and sent is not None:
            body = _Body(body, sent)
        while True:
            try:
                return await self._session.request(
                    call.method,
                    route.url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=route.proxy,
                )
            except aiohttp.ClientConnectionError as error:
                cause = error.__cause__ or error
                if (
                    not isinstance(cause, aiohttp.ClientConnectionResetError)
                    or stale == _STALE_CONNECTIONS
                ):
                    raise
                stale += 1

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Body(aiohttp.BytesPayload):
    """Tells when the last of it has been written."""

    def __init__(self, value: bytes, sent: Callable[[], object]) -> None:
        super().__init__(value)
        self._sent = sent

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        await super().write_with_length(writer, content_length)
        self._sent()


def _route(url: str) -> Route:
    """The path goes out as it is written, for a signature may cover it."""
    parts = urlsplit(url)
    try:
        authority = URL(url).raw_authority
    except ValueError:
        raise _no_address(url) from None
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    exact = f"{parts.scheme}://{authority}{quote(path, safe=_AS_WRITTEN)}"
    return Route(URL(exact, encoded=True), proxy_for(url), shown(url))


def _no_address(url: str) -> ConfigurationError:
    return ConfigurationError(f"{shown(url)!r} is not an http or https address")


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca_file {ca_file!r} cannot be used: {say(error)}") from error
