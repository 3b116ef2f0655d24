"""TCP servers on loopback whose every byte a test decides."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from tests.support.services import free_port

HOST = "127.0.0.1"
OK_HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED_HEAD = OK_HEAD + b"transfer-encoding: chunked\r\n\r\n"
STREAM_HEAD = OK_HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class RawRequest:
    """One request as it came over the wire; header names are lower-case."""

    line: str
    headers: Mapping[str, str]
    body: bytes


def whole(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> bytes:
    """A response with its length; `headers` is one line with its line end, or several."""
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Peer:
    """The server's end of one connection."""

    def __init__(
        self, server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer

    async def request(self) -> RawRequest | None:
        """The next request on this connection; None when the client has gone."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = [entry.partition(":") for entry in rest]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        assert len(headers) == len(pairs), f"a header came twice: {rest}"
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        request = RawRequest(line, headers, body)
        self.server.requests.append(request)
        return request

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Send RST instead of FIN."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Peer], Awaitable[None]]


@dataclass
class RawServer:
    """Calls its handler for each connection; an error in a handler fails the test at the end."""

    handler: Handler
    tls: ssl.SSLContext | None = None
    requests: list[RawRequest] = field(default_factory=list[RawRequest])
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _errors: list[BaseException] = field(default_factory=list[BaseException])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{HOST}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.handler(Peer(self, reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, as it may, or the test is over
        except Exception as error:  # noqa: BLE001
            self._errors.append(error)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._errors and error is None:
            raise self._errors[0]


def answering(*responses: bytes) -> Handler:
    """A handler that answers the requests of each connection with these, the last one for ever."""

    async def answer(peer: Peer) -> None:
        left = list(responses)
        while await peer.request():
            await peer.send(left.pop(0) if len(left) > 1 else left[0])

    return answer


async def tunnel(peer: Peer) -> None:
    """A CONNECT proxy: opens a connection and copies both ways until one side has gone."""
    request = await peer.request()
    assert request is not None
    method, target, _ = request.line.split()
    assert method == "CONNECT"
    host, _, port = target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    try:
        await asyncio.gather(copy(peer.reader, writer), copy(reader, peer.writer))
    finally:
        writer.close()


async def settle() -> None:
    """Let both ends, which share this loop, take in all that is on its way over loopback."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def read_to_their_end() -> None:
    """Wait until no client reads the rest of a body whose reader has left any more."""

    def reads() -> bool:
        return any("StreamingResponse.drain" in repr(task) for task in asyncio.all_tasks())

    while reads():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.001)


async def unused_port() -> int:
    """A port that refuses connections."""
    return free_port()
