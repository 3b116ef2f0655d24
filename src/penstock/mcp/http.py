"""The HTTP client by which MCP servers are reached; it looks at where a name leads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from penstock.contract.addresses import forbidden
from penstock.contract.options import MCPTool

CONNECT_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 300.0
"""How long a stream of a server may stay silent; a call has a limit of its own."""


@contextlib.asynccontextmanager
async def over_http(server: MCPTool) -> AsyncGenerator[tuple[Any, Any]]:
    """The way to a server that goes to no address where clouds keep their secrets, unless told."""
    transport: httpx2.AsyncBaseTransport = httpx2.AsyncHTTPTransport()
    async with (
        httpx2.AsyncClient(
            headers=dict(server.http_headers),
            timeout=httpx2.Timeout(CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            transport=transport if server.allow_link_local else _Vetted(transport),
        ) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


class _Vetted(httpx2.AsyncBaseTransport):
    """Resolves each name itself and goes to the very address that it has looked at.

    Otherwise a name could lead to one address when it is checked, and to another when it is used.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        address = await _vetted_address(request, host)
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


async def _vetted_address(request: httpx2.Request, host: str) -> str:
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
    return addresses[0]


def _refuse(request: httpx2.Request, host: str, address: str) -> None:
    if reason := forbidden(address):
        where = host if host == address else f"{host} leads to {address}, which"
        raise httpx2.ConnectError(f"{where} {reason}", request=request)
