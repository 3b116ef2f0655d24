"""The one place that talks HTTP: a pooled client with a limit on every way to wait or be flooded.

TLS certificates are always verified. A proxy named in the environment is honoured. Errors of the
client library leave as errors of Penstock, so nothing above knows which library it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib import request as urllib_request
from urllib.parse import urlsplit

from penstock._version import __version__
from penstock.contract.errors import ConfigurationError, ProviderTimeout
from penstock.providers.dialect import WireCall
from penstock.providers.failures import misspoken, say, shown, unreachable
from penstock.providers.response import StreamingResponse

if TYPE_CHECKING:
    import aiohttp


_STALE_CONNECTIONS = 3
"""How many closed connections of the pool a request may run into."""
_DRAIN_S = 1.0
"""How long the end of a body may take after its last event before the connection is cut."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Limits in seconds and bytes."""

    connect_timeout_s: float = 10.0
    response_timeout_s: float = 60.0
    """From the request to the response's headers."""
    first_token_timeout_s: float = 30.0
    idle_timeout_s: float = 30.0
    max_response_bytes: int = 64 * 1024 * 1024
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A whole answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpTransport:
    """One pooled HTTP client, made when first needed."""

    def __init__(self, settings: TransportSettings | None = None) -> None:
        """Nothing is opened yet."""
        self.settings = settings or TransportSettings()
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}
        self._draining: set[asyncio.Task[None]] = set()

    async def request(self, url: str, call: WireCall, headers: Mapping[str, str]) -> WireResponse:
        """The whole answer, whatever its status."""
        async with self.open(url, call, headers) as response:
            body = await response.body(self.settings.idle_timeout_s)
            return WireResponse(response.status, response.headers, body)

    @contextlib.asynccontextmanager
    async def open(
        self, url: str, call: WireCall, headers: Mapping[str, str]
    ) -> AsyncGenerator[StreamingResponse, None]:
        """The answer once its headers are there; leaving the context stops the call."""
        response = StreamingResponse(
            await self._send(url, call, headers), shown(url), self.settings.max_response_bytes
        )
        try:
            yield response
        finally:
            if response.said_all and not response.ended:
                self._finish_later(response)
            else:
                response.close()

    def _finish_later(self, response: StreamingResponse) -> None:
        """The caller has its answer and need not wait for the last bytes of the protocol."""

        def close(task: asyncio.Task[None]) -> None:
            self._draining.discard(task)
            response.close()

        task = asyncio.create_task(response.drain(_DRAIN_S))
        self._draining.add(task)
        # In a callback, for a task that is cancelled before it runs would not get to its `finally`.
        task.add_done_callback(close)

    async def _send(
        self, url: str, call: WireCall, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        # Imported at the first call, because aiohttp takes longer than all the rest of the package.
        import aiohttp

        session = self._session or self._open_session()
        limit = self.settings.response_timeout_s
        proxy = self._proxy(url)
        try:
            async with asyncio.timeout(limit):
                return await _on_an_open_connection(
                    lambda: session.request(
                        call.method,
                        url,
                        data=call.body,
                        headers={**call.headers, **headers},
                        allow_redirects=False,
                        proxy=proxy,
                    )
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise ProviderTimeout(
                f"no connection to {shown(url)} within {self.settings.connect_timeout_s:g} s"
            ) from error
        except TimeoutError as error:
            raise ProviderTimeout(f"{shown(url)} sent no response within {limit:g} s") from error
        except aiohttp.ClientResponseError as error:
            # Not chained, because it holds the headers of the request and with them the key.
            raise misspoken(url, proxy, error) from None
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise ConfigurationError(f"{shown(url)!r} is not an http or https address") from None
        except aiohttp.ClientError as error:
            raise unreachable(url, proxy, error) from error
        except ValueError as error:
            # A host name or a header that cannot be written down.
            raise ConfigurationError(f"{shown(url)} cannot be called: {error}") from error

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        settings = self.settings
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=60,
            ssl=_tls_context(settings.ca_file) if settings.ca_file else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout_s),
            headers={"user-agent": f"penstock/{__version__}"},
            cookie_jar=aiohttp.DummyCookieJar(),
            requote_redirect_url=False,
        )
        return self._session

    def _proxy(self, url: str) -> str | None:
        origin = "/".join(url.split("/", 3)[:3])
        if origin not in self._proxies:
            self._proxies[origin] = proxy_for(url)
        return self._proxies[origin]

    async def aclose(self) -> None:
        """Close all connections."""
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def __aenter__(self) -> HttpTransport:
        """Use as a context manager in scripts and tests."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.aclose()


async def _on_an_open_connection(
    send: Callable[[], Awaitable[aiohttp.ClientResponse]],
) -> aiohttp.ClientResponse:
    """Send again when a pooled connection turns out to be closed before the request is written.

    Some servers close after a stream without saying so. The provider cannot have seen a request
    whose writing failed for that reason, so it is not asked twice; any later failure is not
    answered for here.
    """
    from aiohttp import ClientConnectionError, ClientConnectionResetError

    for _ in range(_STALE_CONNECTIONS):
        try:
            return await send()
        except ClientConnectionError as error:
            if not isinstance(error.__cause__ or error, ClientConnectionResetError):
                raise
    return await send()


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


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca_file {ca_file!r} cannot be used: {say(error)}") from error
