"""Clients that take too long, say too much, or do not read."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.server.http.limits import Patience
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.unit.server.gateway_support import Gateway, running_gateway, until

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
BODY = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}).encode()


@contextlib.asynccontextmanager
async def limited(**limits: Any) -> AsyncGenerator[Gateway]:
    config = Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/echo"]}},
            "limits": limits,
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        yield gateway


def told(answer: bytes, status: int) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status), answer
    assert b"connection: close" in head.lower()
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"x-large: " + b"a" * 2000 + b"\r\n\r\n",
        GET + b"".join(b"x-%d: b\r\n" % number for number in range(300)) + b"\r\n",
        b"GET /" + b"p" * 2000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        GET + b"x-never-ends: " + b"a" * 5000,
        POST + b"content-length: %d\r\nx-large: %b\r\n\r\n" % (len(BODY), b"a" * 2000) + BODY,
    ],
    ids=["one", "many", "address", "endless", "with a body"],
)
async def test_a_head_that_is_too_large(sent: bytes) -> None:
    async with limited(max_head_bytes=1024) as gateway:
        assert told(await gateway.raw(sent), 431)["code"] == "head_too_large"
        assert (await gateway.chat("Hi")).status_code == 200


async def test_a_head_in_many_pieces_that_is_too_large() -> None:
    async with limited(max_head_bytes=1024) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(GET)
        for _ in range(1000):
            writer.write(b"x-piece: 12345678\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        assert told(await reader.read(), 431)["code"] == "head_too_large"
        writer.close()


@pytest.mark.parametrize(
    ("limits", "sent", "status"),
    [
        ({"max_head_bytes": 1024}, GET + b"x-large: ", 431),
        ({"max_request_bytes": 1024}, POST + b"content-length: 100000000\r\n\r\n", 413),
        ({}, b"this is not HTTP\r\n", 400),
    ],
    ids=["head", "body", "noise"],
)
async def test_who_still_sends_can_read_why_it_was_refused(
    limits: dict[str, Any], sent: bytes, status: int
) -> None:
    async with limited(**limits) as gateway:
        answer = await gateway.raw(sent + b"a" * 5_000_000)
        assert told(answer, status)["message"]


async def test_who_does_not_stop_sending_is_cut_off() -> None:
    async with limited(max_head_bytes=1024) as gateway:
        gateway.app.patience = msgspec.structs.replace(gateway.app.patience, linger_s=0.05)
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(GET + b"x-large: " + b"a" * 1000)
        assert b"431" in await reader.readline()

        async def go_on() -> None:
            while True:
                writer.write(b"a" * 1000)
                await writer.drain()
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await go_on()
        writer.close()
        await until(lambda: not gateway.server.server_state.connections)


@pytest.mark.parametrize("sent", [b"G", GET, GET + b"x-slow: "])
async def test_a_head_that_never_ends(sent: bytes) -> None:
    async with limited(head_timeout_s=0.05) as gateway:
        assert told(await gateway.raw(sent), 408)["code"] == "request_timeout"


async def test_a_trickling_head_is_not_saved_by_its_trickle() -> None:
    async with limited(head_timeout_s=0.1) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(GET)

        async def trickle() -> None:
            while not reader.at_eof():
                writer.write(b"x-a: b\r\n")
                await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        assert told(await reader.read(), 408)["code"] == "request_timeout"
        trickling.cancel()
        writer.close()


@pytest.mark.parametrize("sent", [b"", b'{"messages"'])
async def test_a_body_that_never_ends(sent: bytes) -> None:
    async with limited(body_timeout_s=0.05) as gateway:
        head = POST + b"content-length: %d\r\n\r\n" % len(BODY)
        assert told(await gateway.raw(head + sent), 408)["code"] == "request_timeout"
        await until(lambda: gateway.server.running_requests == 0)
        gateway.app.patience = Patience()
        assert (await gateway.chat("Hi")).status_code == 200


async def test_a_body_in_pieces_within_its_time() -> None:
    async with limited(body_timeout_s=20.0, head_timeout_s=20.0) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        for part in (POST[:20], POST[20:], b"content-length: %d\r\n" % len(BODY), b"\r\n"):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        for index in range(len(BODY)):
            writer.write(BODY[index : index + 1])
            await asyncio.sleep(0)
        assert b"200 OK" in await reader.readline()
        writer.close()


async def test_an_answer_that_takes_long_is_no_fault_of_its_client() -> None:
    async with limited(body_timeout_s=0.05, head_timeout_s=0.05) as gateway:
        gateway.engine.use(FakeProvider([FakeReply(text="done", delay_s=0.3)]))
        assert (await gateway.chat("Hi")).status_code == 200


async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with limited(write_timeout_s=0.1) as gateway:
        gateway.engine.use(FakeProvider([FakeReply(text="word " * 100_000)]))
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((gateway.host, gateway.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
        recorder = Recorder()
        gateway.engine.hooks.subscribe(recorder)
        body = json.dumps({**json.loads(BODY), "max_tokens": 500_000, "stream": True}).encode()
        writer.write(POST + b"content-length: %d\r\n\r\n" % len(body) + body)
        await until(lambda: recorder.requests)
        assert recorder.requests[0].outcome == "cancelled"
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        writer.close()
        assert (await gateway.client.get("/health")).status_code == 200


async def test_a_connection_on_which_nothing_is_said() -> None:
    async with limited() as gateway:
        gateway.app.patience = Patience(idle_s=0.05)
        assert await gateway.raw(b"") == b""


async def test_requests_one_after_the_other_on_one_connection() -> None:
    async with limited(head_timeout_s=0.2, body_timeout_s=0.2) as gateway:
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        for _ in range(3):
            writer.write(GET + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            # Longer than a head may take: between requests nobody is in a hurry.
            await asyncio.sleep(0.3)
        writer.close()


async def test_pipelined_requests_are_all_answered() -> None:
    async with limited() as gateway:
        answer = await gateway.raw((GET + b"\r\n") * 3 + GET + b"connection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200 OK") == 4
