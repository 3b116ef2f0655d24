"""HTTP/1.1 by hand: one request read, one response written, to the byte and at its time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.wire.dialect import Frame, WireResponse
from tests.support.wire.scenario import Pause
from tests.support.wire.seen import Asked, WireRequest

_REASONS = {200: "OK", 307: "Temporary Redirect", 502: "Bad Gateway"}
_RESET = struct.pack("ii", 1, 0)  # linger for no time: the kernel sends RST instead of FIN
_PING_S = 0.02


@dataclass(eq=False)
class Exchange:
    """One request and what became of it."""

    seen: Asked | None
    gone: asyncio.Event
    """Set when the caller has closed the connection."""
    sent: int = 0
    """Bytes of the body that the network has taken."""
    body: bytes = b""
    """What was asked, to the byte."""


@dataclass(eq=False)
class Writer:
    """Writes one response."""

    stream: asyncio.StreamWriter
    gone: asyncio.Event
    exchange: Exchange | None = None

    async def whole(self, response: WireResponse, headers: Mapping[str, str]) -> None:
        length = {"content-length": str(len(response.body))}
        kind = {"content-type": response.content_type}
        await self.head(response.status, {**headers, **kind, **response.headers, **length})
        await self._write(response.body)

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        if "content-length" not in headers:
            headers = {**headers, "transfer-encoding": "chunked"}
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.stream.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.stream.drain()

    async def chunks(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size or len(data)):
            piece = data[at : at + size] if size else data
            await self._write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if size:
                await asyncio.sleep(0)  # let the other side read before the next piece is there

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def hang_up(self, *, reset: bool) -> None:
        """End the connection where a chunk should follow, or tear it down."""
        if reset:
            connection: socket.socket = self.stream.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.stream.transport.abort()
        raise ConnectionAbortedError

    async def ping(self, frame: Frame | None) -> None:
        """Say that one is alive, again and again, until nobody listens."""
        assert frame is not None, "this wire has no pings"
        while not self.gone.is_set():
            await self.chunks(frame.data, 0)
            await asyncio.sleep(_PING_S)

    async def wait(self, pause: Pause) -> None:
        pause.reached.set()
        waiting = [asyncio.ensure_future(event.wait()) for event in (pause.resume, self.gone)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()

    async def _write(self, data: bytes) -> None:
        self.stream.write(data)
        await self.stream.drain()
        if self.exchange is not None:
            self.exchange.sent += len(data)


async def read_request(reader: asyncio.StreamReader) -> WireRequest | None:
    """The next request of this connection; None when there is none."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    return WireRequest(method, unquote(parts.path), dict(parse_qsl(parts.query)), headers, body)
