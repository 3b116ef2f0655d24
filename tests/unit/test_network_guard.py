"""No test leaves this machine, whichever way it tries."""

import asyncio
import os
import socket
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop

from tests.conftest import PRIVATE_VARIABLE
from tests.support.network import NetworkAccessRefusedError, is_local

DISTANT = "192.0.2.1"  # TEST-NET-1: documentation only, never routed


async def fetch_name() -> None:
    async with aiohttp.ClientSession() as session:
        await session.get("http://example.com/")


async def fetch_address() -> None:
    async with aiohttp.ClientSession() as session:
        await session.get(f"http://{DISTANT}/")


async def open_by_name() -> None:
    await asyncio.open_connection("example.com", 80)


async def open_by_address() -> None:
    await asyncio.open_connection(DISTANT, 80)


async def look_up() -> None:
    await asyncio.get_running_loop().getaddrinfo("example.com", 80)


async def connect_socket() -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (DISTANT, 80))


async def send_datagrams() -> None:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(DISTANT, 53))


WAYS_OUT: list[Callable[[], Awaitable[None]]] = [
    fetch_name,
    fetch_address,
    open_by_name,
    open_by_address,
    look_up,
    connect_socket,
    send_datagrams,
]


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
@pytest.mark.parametrize("way_out", WAYS_OUT)
def test_an_event_loop_cannot_leave(
    way_out: Callable[[], Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def attempt() -> None:
        await way_out()

    with (
        asyncio.Runner(loop_factory=new_loop) as runner,
        pytest.raises(NetworkAccessRefusedError, match=rf"example\.com|{DISTANT}"),
    ):
        runner.run(attempt())


@pytest.mark.parametrize("address", [(DISTANT, 80), ("example.com", 80)])
def test_a_plain_socket_cannot_leave(address: tuple[str, int]) -> None:
    with socket.socket() as sock, pytest.raises(NetworkAccessRefusedError, match=address[0]):
        sock.connect(address)
    with socket.socket() as sock, pytest.raises(NetworkAccessRefusedError, match=address[0]):
        sock.connect_ex(address)


def test_ipv6_and_datagrams_cannot_leave() -> None:
    with (
        socket.socket(socket.AF_INET6) as sock,
        pytest.raises(NetworkAccessRefusedError, match="2001:db8::1"),
    ):
        sock.connect(("2001:db8::1", 80))
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        pytest.raises(NetworkAccessRefusedError, match=DISTANT),
    ):
        sock.sendto(b"?", (DISTANT, 53))


def test_names_are_not_looked_up() -> None:
    with pytest.raises(NetworkAccessRefusedError, match=r"look up 'example\.com'"):
        socket.getaddrinfo("example.com", 443)
    with pytest.raises(NetworkAccessRefusedError, match=r"look up 'example\.com'"):
        socket.gethostbyname("example.com")
    with pytest.raises(NetworkAccessRefusedError, match=r"example\.com"):
        urllib.request.urlopen("http://example.com/")


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_open(host: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    async def talk() -> bytes:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(talk()) == b"hello\n"


def test_unix_sockets_are_open(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as caller,
    ):
        listener.bind(path)
        listener.listen()
        caller.connect(path)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", True),
        ("LOCALHOST", True),
        (b"localhost", True),
        (None, True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("localhost.example.com", False),
        (b"example.com", False),
    ],
)
def test_what_counts_as_local(host: object, expected: bool) -> None:
    assert is_local(host) is expected


def test_tests_have_a_home_of_their_own_and_no_keys(tmp_path: Path) -> None:
    assert Path(os.environ["PENSTOCK_HOME"]).is_relative_to(tmp_path)
    left = {name for name in os.environ if PRIVATE_VARIABLE.fullmatch(name)}
    allowed = {
        "PENSTOCK_HOME",
        "PENSTOCK_TRUST_FOLDER",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_EC2_METADATA_DISABLED",
    }
    assert left <= allowed


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "GEMINI_KEY", "AWS_PROFILE", "OLLAMA_HOST", "https_proxy", "NO_PROXY"],
)
def test_private_variables_are_recognised(name: str) -> None:
    assert PRIVATE_VARIABLE.fullmatch(name)
