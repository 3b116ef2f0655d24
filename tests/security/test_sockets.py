"""WebSockets under attack: floods of connections, handshakes, messages, pings and fragments."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from tests.security.attack import Target, under_attack
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.gateway_support import until
from tests.unit.server.sampling_support import SOCKET, params, socket_of

pytestmark = pytest.mark.timeout(60)
MANY = 200


async def opened(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket of bare bytes."""
    reader, writer = await asyncio.open_connection(target.gateway.host, target.gateway.port)
    writer.write(
        target.head(
            f"GET {SOCKET} HTTP/1.1",
            *(b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13"),
            *(b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", b""),
        )
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_no_socket_without_a_key(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        url = f"ws://{target.gateway.host}:{target.gateway.port}"
        for headers, status in (
            ({}, 401),
            (bearer("wrong"), 401),
            (bearer(ADMIN), 403),
            ({"sec-websocket-protocol": target.texts["one"]}, 401),
        ):
            for path in (SOCKET, f"{SOCKET}/", f"/{SOCKET}", "/admin/ws"):
                with pytest.raises(InvalidStatus) as caught:
                    async with connect(f"{url}{path}", proxy=None, additional_headers=headers):
                        pass  # pragma: no cover
                assert caught.value.response.status_code in (status, 401, 403, 404)
                if path == SOCKET:
                    assert caught.value.response.status_code == status
        with pytest.raises(InvalidStatus):
            async with connect(f"{url}{SOCKET}?key={target.texts['one']}", proxy=None):
                pass  # pragma: no cover


async def test_many_connections_that_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        sockets = [await opened(target) for _ in range(MANY)]
        halves = [
            await asyncio.open_connection(target.gateway.host, target.gateway.port)
            for _ in range(MANY)
        ]
        for _, writer in halves:
            writer.write(f"GET {SOCKET} HTTP/1.1\r\nconnection: upgrade\r\nupgr".encode())
        async with socket_of(
            target.gateway, additional_headers=bearer(target.texts["two"])
        ) as socket:
            await socket.ask(1, "Hi", model="default")
            assert (await socket.end(1))["type"] == "complete"
        for _, writer in (*sockets, *halves):
            # Without a goodbye.
            writer.transport.abort()


async def test_floods_on_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    text = json.dumps({"type": "createMessage", "id": "x", "params": params(model="default")})
    floods = {
        "pings": Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 20_000,
        "pongs": Frame(Opcode.PONG, b"x" * 125).serialize(mask=True) * 20_000,
        "empty fragments": Frame(Opcode.TEXT, b"", False).serialize(mask=True)
        + Frame(Opcode.CONT, b"", False).serialize(mask=True) * 50_000,
        "nonsense": Frame(Opcode.TEXT, b"[" * 50).serialize(mask=True) * 5_000,
        "requests of one id": Frame(Opcode.TEXT, text.encode()).serialize(mask=True) * 2_000,
        "a message without end": b"\x01\xff" + (2**62).to_bytes(8) + b"\0" * 100_000,
        "a control frame that is too long": b"\x89\xfe\xff\xff" + b"\0" * 70_000,
        "a frame without a mask": b"\x81\x05hello",
        "reserved bits": b"\xf1\x80\0\0\0\0",
        "an unknown opcode": b"\x83\x80\0\0\0\0",
        "http": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 100,
    }
    async with under_attack(caplog) as target:
        for name, flood in floods.items():
            reader, writer = await opened(target)
            writer.write(flood)
            # Whoever floods does not read; somebody else is served meanwhile.
            answer = await target.gateway.client.get("/health")
            assert answer.status_code == 200, name
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await asyncio.wait_for(reader.readexactly(1), 30) if name not in (
                    "pongs",
                    "empty fragments",
                ) else None
            await closed(writer)
            await until(lambda: len(target.gateway.server.server_state.connections) <= 1)


async def test_a_key_that_is_revoked_while_its_socket_is_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_attack(caplog) as target:
        keys = target.gateway.gate.keys
        async with socket_of(
            target.gateway, additional_headers=bearer(target.texts["one"])
        ) as socket:
            await socket.ask(1, "Hi", model="default")
            assert (await socket.end(1))["type"] == "complete"
            found = keys.find(target.texts["two"].encode()).terms
            assert found is not None
            asked = len(target.fake.requests)
            keys.configure([found.key], {})
            await socket.ask(2, "Hi", model="default")
            assert (await socket.end(2))["type"] == "error"
            assert len(target.fake.requests) == asked
            with contextlib.suppress(ConnectionClosed):
                await socket.send(type="ping", id=3)
