"""The connection itself: what servers do at its edges, and what it holds in the meantime."""

import asyncio
import socket
import zlib

import pytest

from penstock.contract.errors import MalformedResponse, ProviderUnavailable
from penstock.providers.http.connection import Connection
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.wire.dialect import WireCall
from tests.support.raw import (
    CHUNKED_HEAD,
    HOST,
    OK_HEAD,
    Peer,
    RawServer,
    answering,
    chunk,
    tunnel,
    whole,
)
from tests.support.tls import make_authority

CALL = WireCall("/", b"{}")
NOTICE = b"HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\n"


async def test_a_notice_before_the_answer_is_not_the_answer() -> None:
    async with RawServer(answering(NOTICE + whole(b"[1]"))) as server, HttpTransport() as transport:
        for _ in range(2):
            response = await transport.request(server.url, CALL, {})
            assert (response.status, response.body) == (200, b"[1]")
            assert "x-early" not in response.headers
    assert server.connections == 1


async def test_an_answer_to_nothing_is_not_taken_for_the_next() -> None:
    two = whole(b"mine") + whole(b"somebody else's")
    async with RawServer(answering(two)) as server, HttpTransport() as transport:
        for _ in range(2):
            assert (await transport.request(server.url, CALL, {})).body == b"mine"
    assert server.connections == 2


async def test_what_comes_on_a_connection_that_waits_ends_it() -> None:
    answered, spoken = asyncio.Event(), asyncio.Event()

    async def speak_later(peer: Peer) -> None:
        await peer.request()
        await peer.send(whole(b"mine"))
        await answered.wait()
        await peer.send(whole(b"somebody else's"))
        spoken.set()
        await peer.gone()

    async with RawServer(speak_later) as server, HttpTransport() as transport:
        assert (await transport.request(server.url, CALL, {})).body == b"mine"
        answered.set()
        await spoken.wait()
        assert (await transport.request(server.url, CALL, {})).body == b"mine"
    assert server.connections == 2


async def test_a_read_may_follow_one_that_ended_in_its_last_moment() -> None:
    async def begin(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await peer.gone()

    async with RawServer(begin) as server:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(Connection, HOST, server.port)
        connection.ask(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", None, None)
        await connection.answered(5)

        async def both() -> bytes:
            # Of less than half a millisecond uvloop makes no timer, but a call in its next pass.
            return await connection.read(0.0004) + await connection.read(5)

        for _ in range(20):
            waiting = asyncio.ensure_future(both())
            await asyncio.sleep(0)
            connection.data_received(chunk(b"x"))
            loop.call_later(0.01, connection.data_received, chunk(b"y"))
            assert await waiting == b"xy"
        transport.abort()


async def test_another_protocol_is_not_spoken() -> None:
    change = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    async with RawServer(answering(change)) as server, HttpTransport() as transport:
        with pytest.raises(ProviderUnavailable, match="changed to another protocol"):
            await transport.request(server.url, CALL, {})


async def test_lines_may_end_without_a_carriage_return() -> None:
    answer = b"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi"
    async with RawServer(answering(answer)) as server, HttpTransport() as transport:
        assert (await transport.request(server.url, CALL, {})).body == b"hi"


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS, 31], ids=["deflate", "gzip"])
async def test_packed_answers_are_unpacked_piece_by_piece(wbits: int) -> None:
    said = b"0123456789" * 300_000
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(said) + packer.flush()
    name = "gzip" if wbits == 31 else "deflate"
    answer = whole(packed, headers=f"content-encoding: {name}\r\n")
    async with RawServer(answering(answer)) as server, HttpTransport() as transport:
        async with transport.open(server.url, CALL, {}) as response:
            pieces: list[bytes] = []
            while piece := await response.read(5):
                pieces.append(piece)
        assert b"".join(pieces) == said
        assert max(map(len, pieces)) < 1_000_000
        assert (await transport.request(server.url, CALL, {})).body == said


async def test_nothing_need_not_be_packed() -> None:
    answer = whole(b"", status="500 Oops", headers="content-encoding: gzip\r\n")
    async with RawServer(answering(answer)) as server, HttpTransport() as transport:
        assert (await transport.request(server.url, CALL, {})).body == b""


async def test_a_packed_answer_without_its_end_is_broken() -> None:
    packed = zlib.compress(b"much to say" * 1000)[:-8]
    answer = whole(packed, headers="content-encoding: deflate\r\n")
    async with RawServer(answering(answer)) as server, HttpTransport() as transport:
        with pytest.raises(MalformedResponse, match="sent a compressed body without its end"):
            await transport.request(server.url, CALL, {})


async def test_a_reader_that_rests_stops_the_server_from_sending() -> None:
    size = 64 * 1024 * 1024
    sent = 0
    stalled = asyncio.Event()

    async def pour(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(OK_HEAD + b"content-length: %d\r\n\r\n" % size)
        asyncio.get_running_loop().call_later(0.5, stalled.set)
        while sent < size:
            await peer.send(b"x" * 65536)
            sent += 65536

    async with (
        RawServer(pour) as server,
        HttpTransport() as transport,
        transport.open(server.url, CALL, {}) as response,
    ):
        await stalled.wait()
        assert sent < size / 2
        read = 0
        while piece := await response.read(5):
            read += len(piece)
        assert read == size


async def test_a_request_is_sent_when_the_server_has_taken_it() -> None:
    body = b"x" * 32 * 1024 * 1024
    reading = asyncio.Event()
    moments: list[bool] = []

    async def read_late(peer: Peer) -> None:
        await reading.wait()
        await peer.request()
        await peer.send(whole(b"all of it"))

    async with RawServer(read_late) as server, HttpTransport() as transport:
        asking = asyncio.create_task(
            transport.request(
                server.url, WireCall("/", body), {}, sent=lambda: moments.append(reading.is_set())
            )
        )
        await asyncio.sleep(0.2)
        assert moments == []
        reading.set()
        assert (await asking).body == b"all of it"
    assert moments == [True]
    assert server.requests[0].body == body


async def test_a_refusal_in_the_middle_of_a_request_is_its_answer() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(whole(b"too large", status="413 Content Too Large"))
        await peer.gone()

    async with RawServer(refuse) as server, HttpTransport() as transport:
        for _ in range(2):
            call = WireCall("/", b"x" * 32 * 1024 * 1024)
            response = await transport.request(server.url, call, {})
            assert (response.status, response.body) == (413, b"too large")
    # What of the request was not read would be taken for the next one.
    assert server.connections == 2


async def test_a_name_and_password_in_an_address_are_sent() -> None:
    async with RawServer(answering(whole())) as server, HttpTransport() as transport:
        await transport.request(f"http://me:p%40ss@{HOST}:{server.port}/", CALL, {})
    assert server.requests[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert server.requests[0].headers["host"] == f"{HOST}:{server.port}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
async def test_an_address_may_be_of_the_new_kind() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(whole(b"six"))
        await writer.drain()
        writer.close()

    heads: list[bytes] = []
    server = await asyncio.start_server(answer, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HttpTransport() as transport:
        assert (await transport.request(f"http://[::1]:{port}/", CALL, {})).body == b"six"
    assert f"host: [::1]:{port}".encode() in heads[0]


async def test_a_connection_that_nobody_uses_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.providers.http.client._KEPT_S", 0.0)
    async with RawServer(answering(whole())) as server, HttpTransport() as transport:
        for _ in range(2):
            await transport.request(server.url, CALL, {})
    assert server.connections == 2


async def test_a_proxy_may_be_spoken_to_in_secret_too(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_authority(tmp_path_factory.mktemp("tls"))

    context = authority.server_context()
    settings = TransportSettings(ca_file=str(authority.file))
    async with (
        RawServer(answering(whole(b"hello")), context) as server,
        RawServer(tunnel, context) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"https://{HOST}:{proxy.port}")
        async with HttpTransport(settings) as transport:
            for _ in range(2):
                assert (await transport.request(server.url, CALL, {})).body == b"hello"
    assert [one.line for one in proxy.requests] == [f"CONNECT {HOST}:{server.port} HTTP/1.1"]


async def test_blanks_around_a_header_value_are_trimmed() -> None:
    headers = "Content-Type:  text/event-stream \t\r\nretry-after: 5 \r\nx-empty: \t \r\n"
    async with (
        RawServer(answering(whole(b"[1]", headers=headers))) as server,
        HttpTransport() as transport,
    ):
        response = await transport.request(server.url, CALL, {})
    read = [response.headers[name] for name in ("content-type", "retry-after", "x-empty")]
    assert read == ["text/event-stream", "5", ""]
