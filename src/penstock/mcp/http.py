"""The HTTP client by which MCP servers are reached; it looks at where a name leads."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

from penstock.contract.checks.addresses import forbidden, is_public_address
from penstock.contract.options import MCPTool

CONNECT_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 300.0
"""How long a stream of a server may stay silent; a call has a limit of its own."""
MOST_BYTES = 32 * 2**20
"""The largest answer that is read; what of it the model is told has a limit of its own."""
_UNKNOWN_SESSION = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST})
_REFUSED = secrets.token_hex(16)
"""Marks an error as made here: no server can know it."""
_MOST_SAID = 500


@contextlib.asynccontextmanager
async def over_http(server: MCPTool) -> AsyncGenerator[tuple[Any, Any]]:
    """The way to a server that goes to no address where clouds keep their secrets, unless told.

    With `public_only` it goes to no address but those of the internet.
    """
    transport: httpx2.AsyncBaseTransport = _Answers(httpx2.AsyncHTTPTransport(verify=_tls()))
    if server.public_only or not server.allow_link_local:
        transport = _Vetted(transport, public_only=server.public_only)
    async with (
        httpx2.AsyncClient(
            # The limits are of what arrives: a compressed answer could be a thousand times as long.
            headers={"accept-encoding": "identity", **server.http_headers},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            transport=transport,
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One for all servers: to read the certificate authorities takes most of a connection's time.

    It also takes most of its memory.
    """
    return httpx2.create_ssl_context()


def is_refusal(error: MCPError) -> bool:
    """Whether a server was not there or did not know the session, and so has done nothing."""
    return error.data == _REFUSED


class _Answers(httpx2.AsyncBaseTransport):
    """Limits what is read, and marks the answer to a call that the server has done nothing of.

    For a session that the server does not know the specification says 404, and some say 400; the
    client would make an error of it that a tool can answer with as well. A request that fails on
    its way is answered here too, for the client would end with it, and all other calls as well.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            message = str(error) or type(error).__name__
            return _answer(HTTPStatus.BAD_GATEWAY, CONNECTION_CLOSED, message, refused=unsent)
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            await response.aclose()
            message = f"its answer is compressed ({coding[:_MOST_SAID]}), which was not asked for"
            return _answer(HTTPStatus.BAD_GATEWAY, CONNECTION_CLOSED, message, refused=False)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            # Events have a limit each, and their streams none.
            response.stream = _Limited(cast(httpx2.AsyncByteStream, response.stream))
        in_session = request.method == "POST" and MCP_SESSION_ID in request.headers
        if not in_session or response.status_code not in _UNKNOWN_SESSION:
            return response
        said = (await response.aread())[:_MOST_SAID].decode(errors="replace")
        await response.aclose()
        message = f"status {response.status_code}: {said}"
        return _answer(response.status_code, INVALID_REQUEST, message, refused=True)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _answer(status: int, code: int, message: str, *, refused: bool) -> httpx2.Response:
    error = {"code": code, "message": message, "data": _REFUSED if refused else None}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error})


class _Limited(httpx2.AsyncByteStream):
    """Breaks off an answer that would fill the memory."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer has more than {MOST_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Vetted(httpx2.AsyncBaseTransport):
    """Resolves each name itself and goes to the very address that it has looked at.

    Otherwise a name could lead to one address when it is checked, and to another when it is used.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, public_only: bool) -> None:
        self._inner = inner
        self._public_only = public_only

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        if self._public_only and request.url.scheme != "https":
            raise httpx2.ConnectError(f"{host} is not reached by https", request=request)
        address = await _vetted_address(request, host, public_only=self._public_only)
        vetted = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._inner.handle_async_request(vetted)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _vetted_address(request: httpx2.Request, host: str, *, public_only: bool) -> str:
    _refuse(request, host, host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, request.url.port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise httpx2.ConnectError(f"{host} has no address: {error}", request=request) from error
    addresses = [str(each[4][0]) for each in found]
    for address in addresses:
        _refuse(request, host, address)
        if public_only and not is_public_address(address):
            # The address itself is a fact about our network that a stranger need not hear.
            raise httpx2.ConnectError(f"{host} leads to no public address", request=request)
    return addresses[0]


def _refuse(request: httpx2.Request, host: str, address: str) -> None:
    if reason := forbidden(address):
        where = host if host == address else f"{host} leads to {address}, which"
        raise httpx2.ConnectError(f"{where} {reason}", request=request)
