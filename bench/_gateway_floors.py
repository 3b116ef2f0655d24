"""The upstream of `gateway.py`, and the proxies that do nothing but pass bytes on.

    python bench/_gateway_floors.py upstream
    python bench/_gateway_floors.py aiohttp PORT UPSTREAM
    python bench/_gateway_floors.py tensorzero CONFIG PORT_FILE

Granian is started by its own command with `_gateway_floors:application`; the upstream's address is
in the environment. Apart from the upstream, nothing of Penstock is here: these run in throw-away
environments.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

UPSTREAM = "PENSTOCK_BENCH_UPSTREAM"
_PASSED_ON = {"content-type"}
session: Any = None


def serve_upstream() -> None:
    """The canned answers on uvloop, which writes what is written at once with one system call."""
    import _chat_server
    import uvloop

    uvloop.run(_chat_server.main())


async def client() -> Any:
    """A session of aiohttp without limits."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Raw ASGI in front of an HTTP client."""
    global session  # noqa: PLW0603 - one for the process, made on its event loop
    if scope["type"] == "lifespan":
        await receive()
        session = await client()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await session.close()
        return await send({"type": "lifespan.shutdown.complete"})
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message.get("more_body"):
            break
    url = os.environ[UPSTREAM] + scope["path"]
    headers = {"content-type": "application/json"}
    async with session.post(url, data=body, headers=headers) as response:
        kept = [(b"content-type", response.headers["content-type"].encode())]
        if (length := response.headers.get("content-length")) is not None:
            kept.append((b"content-length", length.encode()))
            whole = await response.read()
            await send({"type": "http.response.start", "status": response.status, "headers": kept})
            return await send({"type": "http.response.body", "body": whole})
        await send({"type": "http.response.start", "status": response.status, "headers": kept})
        async for data in response.content.iter_any():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        return await send({"type": "http.response.body", "body": b""})


def serve_aiohttp(port: int, upstream: str) -> None:
    """The smallest reverse proxy that can be written with aiohttp."""
    import uvloop
    from aiohttp import web

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {"content-type": "application/json"}
        async with session.post(upstream + request.path, data=body, headers=headers) as response:
            kept = {
                name: value
                for name, value in response.headers.items()
                if name.lower() in _PASSED_ON
            }
            if "content-length" in response.headers:
                whole = await response.read()
                return web.Response(status=response.status, body=whole, headers=kept)
            answer = web.StreamResponse(status=response.status, headers=kept)
            await answer.prepare(request)
            async for data in response.content.iter_any():
                await answer.write(data)
            await answer.write_eof()
            return answer

    async def main() -> None:
        global session  # noqa: PLW0603
        session = await client()
        runner = web.ServerRunner(web.Server(handle, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    uvloop.run(main())


def serve_tensorzero(config: str, port_file: str) -> None:
    """The Rust gateway inside the wheel; it takes a port of its own, which is written down."""
    # By name, because it is installed nowhere but in its throw-away environment.
    tensorzero = importlib.import_module("tensorzero")
    gateway = tensorzero._start_http_gateway(
        config_file=config,
        clickhouse_url=None,
        postgres_url=None,
        valkey_url=None,
        async_setup=False,
    )
    port = urlsplit(str(gateway.base_url)).port
    # Aside and renamed, so that nobody reads half of it.
    making = Path(f"{port_file}.new")
    making.write_text(str(port))
    making.rename(port_file)
    threading.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upstream"]:
            serve_upstream()
        case ["aiohttp", port, upstream]:
            serve_aiohttp(int(port), upstream)
        case ["tensorzero", config, port_file]:
            serve_tensorzero(config, port_file)
        case _:
            sys.exit(__doc__)
