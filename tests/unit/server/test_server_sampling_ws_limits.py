"""The WebSocket against clients that are slow, hostile, or gone."""

import asyncio
import base64
import contextlib
import json
import os
import socket as sockets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from penstock.config.settings import Config
from penstock.contract.events import Chunk
from penstock.contract.exchange import SamplingRequest
from penstock.engine.engine import Engine
from penstock.server.doors.sampling.websocket import MISTAKES
from penstock.server.http.websocket_protocol import SocketProtocol
from penstock.testing import FakeProvider, engine_with
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, running_gateway, settled, until
from tests.unit.server.sampling_support import SOCKET, params, socket_of, wire_engine

PROMPT_S = 20.0


class RawSocket:
    """A WebSocket of bare bytes, that reads only when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def frame(self, opcode: Opcode, data: bytes, *, fin: bool = True) -> None:
        self.writer.write(Frame(opcode, data, fin).serialize(mask=True))

    def send(self, **message: Any) -> None:
        self.frame(Opcode.TEXT, json.dumps(message).encode())

    async def read_frame(self) -> tuple[int, bytes]:
        head = await self.reader.readexactly(2)
        size = head[1] & 127
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8))
        return head[0] & 15, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        """The code with which the server closes; whatever comes before is thrown away."""
        while True:
            opcode, data = await self.read_frame()
            if opcode == Opcode.CLOSE:
                return int.from_bytes(data[:2])


def handshake(path: str = SOCKET, **headers: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    fields = {
        "host": "localhost",
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": key,
        "sec-websocket-version": "13",
        **headers,
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


@contextlib.asynccontextmanager
async def raw_socket(gateway: Gateway, *, buffer: int | None = None) -> AsyncGenerator[RawSocket]:
    connection = sockets.socket()
    if buffer is not None:
        connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (gateway.host, gateway.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**14)
    try:
        writer.write(handshake())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        if buffer is not None:
            narrow(gateway, connection.getsockname(), buffer)
        yield RawSocket(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def narrow(gateway: Gateway, client: object, buffer: int) -> None:
    """Let the server's end of this client's connection hold no more than a little."""
    for each in gateway.server.server_state.connections:
        if each.transport.get_extra_info("peername") == client:
            end = each.transport.get_extra_info("socket")
            end.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, buffer)


class Talkative(FakeProvider):
    """Never ends by itself, and counts what it has said, by the prompt."""

    def __init__(self, pause_s: float = 0) -> None:
        super().__init__()
        self.pause_s = pause_s
        self.said: dict[str, int] = {}
        self.stopped: list[str] = []

    async def stream(self, model: str, request: SamplingRequest):
        name = request.messages[-1].text
        try:
            while True:
                await asyncio.sleep(self.pause_s)
                self.said[name] = self.said.get(name, 0) + 1
                yield [Chunk("word " * 2000)]
        finally:
            self.stopped.append(name)


async def test_a_slow_reader_holds_its_own_streams_back_and_nobody_elses() -> None:
    fake, quick_one = Talkative(), FakeProvider(name="quick")
    async with running_gateway(engine_with(fake, quick_one)) as gateway:
        async with raw_socket(gateway, buffer=2**16) as slow:
            for name in ("a", "b", "c"):
                slow.send(
                    type="createMessage",
                    id=name,
                    stream=True,
                    params=params(name, maxTokens=10_000),
                )
            await slow.read_frame()
            await until(lambda: len(fake.said) == 3)
            await settled(lambda: sum(fake.said.values()))
            held = sum(fake.said.values())
            # Nothing but the buffers of the connection is filled, and by each in its turn.
            assert held < 100
            assert min(fake.said.values()) > 1
            async with socket_of(gateway) as quick:
                await quick.ask(1, "one two three", model="quick/echo")
                assert (await quick.end(1))["type"] == "complete"
            # It can still be heard, though it does not listen.
            slow.send(type="cancel", id="a")
            await until(lambda: "a" in fake.stopped)
            received = [await slow.read_frame() for _ in range(held + 20)]
            assert all(opcode == Opcode.TEXT for opcode, _ in received)
            (told,) = [data for _, data in received if b"cancelled" in data[:20]]
            assert json.loads(told)["id"] == "a"
            assert sum(fake.said.values()) > held
        await until(lambda: {"a", "b", "c"} <= set(fake.stopped))


async def close_frame(client: RawSocket) -> None:
    client.frame(Opcode.CLOSE, (1000).to_bytes(2))


async def close_connection(client: RawSocket) -> None:
    client.writer.close()


async def abort_connection(client: RawSocket) -> None:
    client.writer.transport.abort()


async def half_close(client: RawSocket) -> None:
    client.writer.write_eof()


@pytest.mark.parametrize("leave", [close_frame, close_connection, abort_connection, half_close])
@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_goes_stops_all_its_upstream_calls(
    leave: Callable[[RawSocket], Awaitable[None]], reads: bool
) -> None:
    fake = Talkative(0.05 if reads else 0)
    async with (
        running_gateway(engine_with(fake)) as gateway,
        raw_socket(gateway, buffer=2**16) as client,
    ):
        for name in ("a", "b", "c"):
            client.send(
                type="createMessage", id=name, stream=True, params=params(name, maxTokens=10_000)
            )
        await until(lambda: len(fake.said) == 3)
        if not reads:
            await settled(lambda: sum(fake.said.values()))
        await leave(client)
        async with asyncio.timeout(PROMPT_S):
            await until(lambda: sorted(fake.stopped) == ["a", "b", "c"])
        async with asyncio.timeout(30):
            await until(lambda: gateway.server.running_requests == 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_going_away_closes_the_connection_to_a_real_provider(stream: bool) -> None:
    pauses = [Pause() for _ in range(5)]
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(*(Scenario(text=("a", "b"), pause=pause) for pause in pauses))
        async with running_gateway(wire_engine(upstream.url)) as gateway:
            async with socket_of(gateway) as socket:
                for number, pause in enumerate(pauses):
                    await socket.ask(number, stream=stream)
                    await pause.reached.wait()
            async with asyncio.timeout(PROMPT_S):
                for each in upstream.exchanges:
                    await each.gone.wait()


async def test_a_flood_of_nonsense_is_answered_and_then_closed(gateway: Gateway) -> None:
    nonsense = ["{", "[]", '{"type": "dance"}', '{"type": "createMessage"}', "7"]
    async with socket_of(gateway) as socket:
        for number in range(MISTAKES):
            await socket.connection.send(nonsense[number % len(nonsense)])
            told = await socket.next()
            assert (told["type"], told["id"]) == ("error", None)
            assert told["error"]["code"] in (-32700, -32600)
        with pytest.raises(ConnectionClosed):
            await socket.next()
    assert socket.connection.close_code == 1008


async def test_a_good_message_forgives_the_bad_ones(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        for _ in range(3):
            for _ in range(MISTAKES - 1):
                await socket.connection.send("nonsense")
                await socket.next()
            await socket.send(type="ping")
            assert await socket.next() == {"type": "pong"}


async def test_a_flood_that_is_not_read_is_not_kept(gateway: Gateway) -> None:
    async with raw_socket(gateway, buffer=2**16) as client:
        with contextlib.suppress(ConnectionError):
            for _ in range(100_000):
                client.frame(Opcode.TEXT, b"nonsense")
            await client.writer.drain()
            assert await client.close_code() == 1008


@pytest.mark.parametrize("identifier", [None, "", "x" * 129, 1.5, True, [], {}, 2**60, -(2**60)])
async def test_ids_that_are_none(gateway: Gateway, identifier: Any) -> None:
    async with socket_of(gateway) as socket:
        await socket.ask(identifier)
        told = await socket.next()
    assert (told["type"], told["id"], told["error"]["code"]) == ("error", None, -32600)


async def test_binary_messages_are_refused_and_the_connection_goes_on(gateway: Gateway) -> None:
    async with socket_of(gateway) as socket:
        await socket.connection.send(b'{"type": "ping"}')
        assert (await socket.next())["error"]["code"] == -32600
        await socket.ask(1, "one")
        assert (await socket.end(1))["type"] == "complete"


async def test_text_that_is_not_utf8_closes_the_connection(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_socket(gateway) as client:
        client.frame(Opcode.TEXT, b'{"type": "\xff"}')
        assert await client.close_code() == 1007
    assert not caplog.records


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x80\x80\x00\x00\x00\x00", 1002),  # goes on with what never began
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # an opcode that is none
        (b"\x81\x00", 1002),  # not masked
    ],
)
async def test_frames_that_break_the_protocol(gateway: Gateway, data: bytes, code: int) -> None:
    async with raw_socket(gateway) as client:
        client.writer.write(data)
        assert await client.close_code() == code


async def test_a_message_may_be_as_large_as_a_body_and_no_larger() -> None:
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/echo"]}},
            "limits": {"max_request_bytes": 5000},
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        async with socket_of(gateway) as socket:
            await socket.ask(1, "x" * 4000)
            assert (await socket.end(1))["type"] == "complete"
            await socket.ask(2, "x" * 5000)
            with pytest.raises(ConnectionClosed):
                await socket.end(2)
            assert socket.connection.close_code == 1009
        async with raw_socket(gateway) as client:
            client.frame(Opcode.TEXT, b"x" * 3000, fin=False)
            client.frame(Opcode.CONT, b"x" * 3000, fin=False)
            assert await client.close_code() == 1009


async def test_a_message_in_very_small_pieces(gateway: Gateway) -> None:
    message = json.dumps({"type": "createMessage", "id": 1, "params": params("é" * 400)}).encode()
    async with raw_socket(gateway) as client:
        client.frame(Opcode.TEXT, message[:1], fin=False)
        for at in range(1, len(message)):
            client.frame(Opcode.CONT, b"", fin=False)
            client.frame(Opcode.CONT, message[at : at + 1], fin=at == len(message) - 1)
        _, data = await client.read_frame()
    assert json.loads(data)["type"] == "complete"


async def test_more_requests_than_a_connection_may_have() -> None:
    pauses = [Pause(), Pause()]
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(*(Scenario(text=("a",), pause=pause) for pause in pauses))
        engine = wire_engine(upstream.url, max_socket_requests=2)
        async with running_gateway(engine) as gateway, socket_of(gateway) as socket:
            for number, pause in enumerate(pauses):
                await socket.ask(number)
                await pause.reached.wait()
            for number in range(10, 10 + 2 * MISTAKES):
                await socket.ask(number)
                told = await socket.end(number)
                assert told["error"]["data"]["reason"] == "too_many_requests"
                assert told["error"]["data"]["retryable"]
            for number, pause in enumerate(pauses):
                pause.resume.set()
                assert (await socket.end(number))["type"] == "complete"
            upstream.play(Scenario(text=("a",)))
            await socket.ask("free again")
            assert (await socket.end("free again"))["type"] == "complete"


async def test_large_requests_at_once_are_limited_together() -> None:
    pause = Pause()
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(*(Scenario(text=("a",), pause=pause) for _ in range(4)))
        engine = wire_engine(upstream.url, max_request_bytes=2000)
        async with running_gateway(engine) as gateway, socket_of(gateway) as socket:
            for number in range(5):
                await socket.ask(number, "x" * 1700)
            told = await socket.end(4)
            assert told["error"]["data"]["reason"] == "too_many_requests"
            await until(lambda: upstream.received == 4)
            pause.resume.set()
            for number in range(4):
                assert (await socket.end(number))["type"] == "complete"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 101),
        ({"host": "127.0.0.1:80"}, 101),
    ],
)
async def test_pages_of_other_sites_are_kept_out(
    gateway: Gateway, headers: dict[str, str], status: int
) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(handshake(**headers))
    head = await reader.readuntil(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert b"x-request-id: req_" in head
    if status == 403:
        assert json.loads(await reader.read())["error"]["code"] == -32600
    writer.close()


async def test_a_path_without_a_socket(gateway: Gateway) -> None:
    async with contextlib.AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        stack.callback(writer.close)
        writer.write(handshake("/v1/chat/completions"))
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"there is no WebSocket at /v1/chat/completions" in answer


@pytest.mark.parametrize(
    "request_head",
    [
        handshake().replace(b"GET", b"POST"),
        handshake(**{"transfer-encoding": "chunked"}),
        handshake(**{"content-length": "5"}),
        handshake(**{"sec-websocket-version": "99"}),
        handshake(**{"sec-websocket-key": "short"}),
        handshake(**{"x-long": "x" * 9000}),
    ],
)
async def test_handshakes_that_are_none_are_answered(gateway: Gateway, request_head: bytes) -> None:
    async with asyncio.timeout(30):
        answer = await gateway.raw(request_head)
    assert answer.startswith(b"HTTP/1.1 4"), answer


async def test_pings_are_answered_also_when_nobody_reads_the_pongs(gateway: Gateway) -> None:
    async with raw_socket(gateway) as client:
        client.frame(Opcode.PING, b"hi")
        assert await client.read_frame() == (Opcode.PONG, b"hi")


async def test_a_flood_of_pings_does_not_fill_the_memory() -> None:
    fake = Talkative()
    async with (
        running_gateway(engine_with(fake)) as gateway,
        raw_socket(gateway, buffer=2**15) as client,
    ):
        client.send(type="createMessage", id=1, stream=True, params=params("a", maxTokens=10_000))
        await until(lambda: fake.said)
        await settled(lambda: fake.said["a"])
        (connection,) = [
            each for each in gateway.server.server_state.connections if hasattr(each, "writable")
        ]
        before: int = connection.transport.get_write_buffer_size()
        for _ in range(20_000):
            client.frame(Opcode.PING, b"p" * 100)
        await client.writer.drain()
        client.send(type="cancel", id=1)
        await until(lambda: fake.stopped)
        assert connection.transport.get_write_buffer_size() <= before + 200
        seen: list[tuple[int, bytes]] = []
        while not seen or b"cancelled" not in seen[-1][1][:40]:
            seen.append(await client.read_frame())
    assert sum(opcode == Opcode.PONG for opcode, _ in seen) <= 2


async def test_a_client_that_answers_no_ping_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.http.server.PING_EVERY_S", 0.1)
    monkeypatch.setattr("penstock.server.http.server.PONG_WITHIN_S", 0.2)
    fake = Talkative()
    async with (
        running_gateway(engine_with(fake)) as gateway,
        raw_socket(gateway, buffer=2**15) as client,
    ):
        client.send(type="createMessage", id=1, stream=True, params=params("a", maxTokens=10_000))
        await until(lambda: fake.stopped)
        await until(lambda: gateway.server.running_requests == 0)
        async with socket_of(gateway) as polite:
            await asyncio.sleep(0.6)
            await polite.send(type="ping")
            assert await polite.next() == {"type": "pong"}


async def test_the_upgrade_is_asked_for_by_the_library_too(gateway: Gateway) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with socket_of(gateway, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403


async def test_a_goodbye_that_nobody_takes_is_not_waited_for() -> None:
    fake = Talkative()
    async with (
        running_gateway(engine_with(fake)) as gateway,
        raw_socket(gateway, buffer=2**15) as client,
    ):
        (connection,) = gateway.server.server_state.connections
        assert isinstance(connection, SocketProtocol)
        connection.close_timeout = 0.2
        client.send(type="createMessage", id=1, stream=True, params=params("a", maxTokens=10_000))
        await until(lambda: fake.said)
        await settled(lambda: fake.said["a"])
        await close_frame(client)
        async with asyncio.timeout(30):
            await until(lambda: not gateway.server.server_state.connections)
