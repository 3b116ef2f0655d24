"""A client that does not read costs a bounded amount: of memory, of time, and of its provider."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncGenerator
from typing import Any

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply
from tests.support.raw import STREAM_HEAD, Peer, RawServer, chunk
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until

MEMORY_BYTES = 12_000_000
"""What docs/deploying.md names, and the test's own upstream."""
TAKEN_BYTES = 40_000_000
"""With what the sockets of both sides hold."""
EVENT = chunk(
    b"data: " + json.dumps({"choices": [{"delta": {"content": "word " * 800}}]}).encode() + b"\n\n"
)


class Endless:
    """An upstream that goes on for as long as it is read."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        try:
            assert await peer.request()
            await peer.send(STREAM_HEAD)
            while True:
                await peer.send(EVENT)
                self.sent += len(EVENT)
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def site(url: str, **limits: Any) -> AsyncGenerator[Gateway]:
    config = Config.model_validate(
        {
            "providers": {
                "fake": {},
                "up": {"kind": "openai-chat", "url": url, "auth_token": "secret"},
            },
            "models": {"default": {"targets": ["up/m"]}, "fake": {"targets": ["fake/echo"]}},
            "limits": limits,
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        yield gateway


def connected(gateway: Gateway, body: dict[str, Any]) -> socket.socket:
    """A client that has sent this request, and reads nothing by itself."""
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((gateway.host, gateway.port))
    client.sendall(head.encode() + data)
    client.setblocking(False)
    return client


async def test_a_stream_that_is_not_read_ends_and_costs_a_bounded_amount() -> None:
    body = {"model": "default", "stream": True, **chat_body(max_tokens=10**6)}
    upstream = Endless()
    async with RawServer(upstream) as server, site(server.url, write_timeout_s=0.5) as gateway:
        gc.collect()
        tracemalloc.start()
        try:
            with contextlib.closing(connected(gateway, body)):
                await asyncio.wait_for(upstream.ended.wait(), 60)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_BYTES
        assert upstream.sent < TAKEN_BYTES
        await until(lambda: gateway.server.running_requests == 0)


async def test_a_slow_reader_of_a_long_answer_gets_all_of_it() -> None:
    async with site("http://127.0.0.1:1", write_timeout_s=0.2) as gateway:
        words = "word " * 60_000
        gateway.engine.use(FakeProvider([FakeReply(text=words)]))
        loop = asyncio.get_running_loop()
        body = {"model": "fake", **chat_body(max_tokens=10**6)}
        with contextlib.closing(connected(gateway, body)) as client:
            received = b""
            while not received.endswith(b"}"):
                data = await loop.sock_recv(client, 20_000)
                assert data, "the answer was cut off"
                received += data
                # Far slower than it is written, and faster than the slowest allowed.
                await asyncio.sleep(0.01)
        assert received.count(b"word") == 60_000
