"""The application, the servers and the load of `asgi_servers.py`, each in a process of its own.

    python bench/_asgi_peers.py floor|granian-embed PORT
    python bench/_asgi_peers.py load PORT PATH CONNECTIONS SECONDS

Uvicorn and granian are started by their own commands with `_asgi_peers:application`. This file runs
in the throw-away environment, which has neither Penstock nor `_support`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = 0.005
CHUNKS = 100
CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1790000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}\n\n'
)
BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"hello " * 20 + b'"}]}'
EVENTS = "PENSTOCK_BENCH_EVENTS"
"""The file into which the application writes what it notices."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return await send({"type": "lifespan.shutdown.complete"})
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message.get("more_body"):
            break
    return await ROUTES[scope["path"]](body, receive, send)


async def echo(body: bytes, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def wait(body: bytes, receive: Any, send: Any) -> None:
    """Answer after a while, as a gateway does."""
    await asyncio.sleep(WAIT_S)
    await echo(body, receive, send)


async def begin_stream(send: Any) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def stream(body: bytes, receive: Any, send: Any) -> None:
    await begin_stream(send)
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def silent(body: bytes, receive: Any, send: Any) -> None:
    """One chunk, then nothing, until the client goes."""
    await begin_stream(send)
    await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
    note("disconnect", time.time())


async def endless(body: bytes, receive: Any, send: Any) -> None:
    """Write as much as the server takes."""
    await begin_stream(send)
    written = 0
    with contextlib.suppress(TimeoutError):
        while written < 256 * 2**20:
            async with asyncio.timeout(1):
                await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
            written += 2**16
    note("accepted", written)


async def slow(body: bytes, receive: Any, send: Any) -> None:
    """Ten chunks in two seconds."""
    await begin_stream(send)
    for _ in range(10):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await asyncio.sleep(0.2)
    await send({"type": "http.response.body", "body": b""})


ROUTES = {
    f"/{handler.__name__}": handler for handler in (echo, wait, stream, silent, endless, slow)
}


def note(name: str, value: float) -> None:
    with Path(os.environ[EVENTS]).open("a") as file:
        file.write(f"{json.dumps([name, value])}\n")


def serve_floor(port: int) -> None:
    """A parser and a transport: what no server can be below."""
    import httptools
    import uvloop

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.parser = httptools.HttpRequestParser(self)
            self.url = self.body = b""

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_url(self, url: bytes) -> None:
            self.url = url

        def on_body(self, body: bytes) -> None:
            self.body += body

        def on_message_complete(self) -> None:
            task = asyncio.get_running_loop().create_task(self.answer(self.body))
            running.add(task)
            task.add_done_callback(running.discard)
            self.body = b""

        async def answer(self, body: bytes) -> None:
            write = self.transport.write
            if self.url == b"/wait":
                await asyncio.sleep(WAIT_S)
            if self.url != b"/stream":
                return write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(CHUNKS):
                write(b"%x\r\n" % len(CHUNK) + CHUNK + b"\r\n")
            return write(b"0\r\n\r\n")

    running: set[Any] = set()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", port)
        await server.serve_forever()

    uvloop.run(main())


def serve_embedded_granian(port: int) -> None:
    import uvloop

    # By name, because granian is installed nowhere but in the throw-away environment.
    granian = importlib.import_module("granian.server.embed")

    async def main() -> None:
        server = granian.Server(application, port=port, interface="asgi", log_enabled=False)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.serve()

    uvloop.run(main())


def generate_load(port: int, path: str, connections: int, seconds: float) -> None:
    """Keep every connection busy, and print how many answers came back."""
    import uvloop

    request = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (
        path.encode(),
        len(BODY),
    )
    answers = 0
    stop = time.perf_counter() + seconds

    class Client(asyncio.Protocol):
        def __init__(self, done: asyncio.Future[None]) -> None:
            self.done = done
            self.seen = b""

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            transport.write(request + BODY)

        def data_received(self, data: bytes) -> None:
            nonlocal answers
            self.seen = (self.seen + data)[-len(BODY) - 4 :]
            if not self.seen.endswith(b"0\r\n\r\n" if path == "/stream" else b"\r\n\r\n" + BODY):
                return
            answers += 1
            self.seen = b""
            if time.perf_counter() < stop:
                self.transport.write(request + BODY)
            else:
                self.transport.close()
                self.done.set_result(None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []
        for _ in range(connections):
            waiting.append(done := loop.create_future())
            await loop.create_connection(lambda done=done: Client(done), "127.0.0.1", port)
        await asyncio.gather(*waiting)

    started = time.perf_counter()
    uvloop.run(main())
    print(json.dumps([answers, time.perf_counter() - started]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["floor", port]:
            serve_floor(int(port))
        case ["granian-embed", port]:
            serve_embedded_granian(int(port))
        case ["load", port, path, width, seconds]:
            generate_load(int(port), path, int(width), float(seconds))
        case _:
            sys.exit(__doc__)
