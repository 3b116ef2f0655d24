"""Streams over real connections: many at once, and a reader who takes its time."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator

from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.errors import RequestCancelled
from penstock.contract.events import Chunk, Complete
from penstock.engine.engine import Engine
from penstock.streaming.callbacks import StreamCallbacks
from tests.support.raw import LAST_CHUNK, STREAM_HEAD, Handler, Peer, RawServer, chunk

STREAMS = 100
WORDS = 60
PIECE = "x" * 16_384
PIECES = 4_096
"""64 MB in all, many times what sockets and readers hold."""
SOCKET_BYTES = 65_536


def event(text: str | None = None, *, stop: bool = False) -> bytes:
    choice = {
        "index": 0,
        "delta": {} if text is None else {"content": text},
        "finish_reason": "stop" if stop else None,
    }
    body = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return chunk(b"data: " + json.dumps(body).encode() + b"\n\n")


END = event(stop=True) + chunk(b"data: [DONE]\n\n") + LAST_CHUNK


@contextlib.asynccontextmanager
async def engine_on(handler: Handler) -> AsyncGenerator[tuple[Engine, RawServer], None]:
    async with RawServer(handler) as server:
        config = Config(
            providers={"local": ProviderConfig(kind="vllm", url=f"{server.url}/v1")},
            models={"m": ModelConfig(targets=("local/m",))},
            pool=PoolConfig(max_response_bytes=2 * len(PIECE) * PIECES),
        )
        async with Engine(config) as engine:
            yield engine, server


async def test_a_hundred_streams_at_once_lose_nothing() -> None:
    everybody = asyncio.Barrier(STREAMS)

    async def answer(peer: Peer) -> None:
        request = await peer.request()
        if request is None:
            return
        question = json.loads(request.body)["messages"][0]["content"]
        await peer.send(STREAM_HEAD + event(f"{question}:"))
        # Nobody goes on before all have begun, so that they are all open at the same time.
        await everybody.wait()
        for number in range(WORDS):
            await peer.send(event(f" {number}"))
        await peer.send(END)

    class Collecting(StreamCallbacks):
        def __init__(self) -> None:
            self.text = ""
            self.ends = 0

        async def chunk(self, chunk: Chunk, /) -> None:
            self.text += chunk.text
            await asyncio.sleep(0)

        def complete(self, result: object, /) -> None:
            self.ends += 1

    async def ask(engine: Engine, number: int) -> Collecting:
        collecting = Collecting()
        stream = await engine.create_message_stream(f"q{number}", max_tokens=9)
        assert isinstance(await stream.drive(collecting), Complete)
        return collecting

    async with engine_on(answer) as (engine, server):
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*(ask(engine, number) for number in range(STREAMS)))
        stats = await engine.usage_stats()
    tail = "".join(f" {number}" for number in range(WORDS))
    assert [answer.text for answer in answers] == [f"q{n}:{tail}" for n in range(STREAMS)]
    assert [answer.ends for answer in answers] == [1] * STREAMS
    assert len(server.requests) == STREAMS
    assert (stats.total.requests, stats.total.failed) == (STREAMS, 0)


class Faucet:
    """Sends pieces for as long as they are taken, and knows how many bytes were."""

    def __init__(self) -> None:
        self.sent = 0
        self.gone = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        sock: socket.socket = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        peer.writer.transport.set_write_buffer_limits(high=SOCKET_BYTES)
        await peer.request()
        await peer.send(STREAM_HEAD)
        try:
            for _ in range(PIECES):
                await peer.send(event(PIECE))
                self.sent += len(PIECE)
            await peer.send(END)
            await peer.gone()
        finally:
            self.gone.set()

    async def blocked(self) -> int:
        """The bytes that were taken when no more are: both ends share this loop."""
        quiet, before = 0, -1
        while quiet < 200:
            await asyncio.sleep(0)
            quiet, before = (quiet + 1 if self.sent == before else 0), self.sent
        return self.sent


async def test_nobody_reads_and_so_the_upstream_stops_sending() -> None:
    faucet = Faucet()
    async with engine_on(faucet) as (engine, _):
        stream = await engine.create_message_stream("Hello", max_tokens=600_000)
        waiting = await faucet.blocked()
        # What is between the two: the sockets' buffers, which the kernel may let grow to 6 MB.
        assert waiting < len(PIECE) * PIECES / 4
        await anext(stream)
        assert await faucet.blocked() < len(PIECE) * PIECES / 4
        read = len(PIECE)
        async with asyncio.timeout(50):
            async for text in stream.texts():
                read += len(text)
        assert read == len(PIECE) * PIECES
        assert faucet.sent == read


async def test_a_slow_callback_slows_the_upstream_and_a_cancel_closes_it() -> None:
    faucet = Faucet()
    busy = asyncio.Event()

    class Busy(StreamCallbacks):
        stopped = 0

        async def chunk(self, chunk: Chunk, /) -> None:
            busy.set()
            await faucet.gone.wait()

        def cancelled(self) -> None:
            self.stopped += 1

    async with engine_on(faucet) as (engine, _):
        callbacks = Busy()
        stream = await engine.create_message_stream("Hello", max_tokens=9, request_id="mine")
        driving = asyncio.ensure_future(stream.drive(callbacks))
        await busy.wait()
        assert await faucet.blocked() < len(PIECE) * PIECES / 4
        assert await engine.cancel_request("mine")
        async with asyncio.timeout(30):
            await faucet.gone.wait()
            await driving
        assert callbacks.stopped == 1
        assert faucet.sent < len(PIECE) * PIECES


async def test_cancelling_a_whole_answer_closes_its_connection() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        gone.set()

    async with engine_on(silent) as (engine, _):
        call = asyncio.ensure_future(
            engine.create_message("Hello", max_tokens=9, request_id="mine")
        )
        await asked.wait()
        assert await engine.cancel_request("mine")
        async with asyncio.timeout(30):
            await gone.wait()
            outcome = (await asyncio.gather(call, return_exceptions=True))[0]
    assert isinstance(outcome, RequestCancelled)
