"""A provider that breaks on purpose: the model's name says how, exactly and at the TCP level.

It speaks Chat Completions. Its answer is sixty words; whatever else a caller ends up with is wrong,
unless it is one clear error. It keeps what it was asked, and when.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any

WORDS = tuple(f"word{number} " for number in range(1, 61))
WHOLE = "".join(WORDS)
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, as it came in."""

    at: float
    model: str
    body: Mapping[str, Any]

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def begun(self) -> str:
        """What the caller wants gone on with."""
        last = self.body["messages"][-1]
        return last["content"] if last["role"] == "assistant" else ""


@dataclass
class FaultServer:
    """`async with FaultServer() as server:`; `server.url` is the base address."""

    down: bool = False
    seen: list[Seen] = field(default_factory=list[Seen])
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller has hung up on a model that never answers."""

    def of(self, model: str) -> list[Seen]:
        """The requests for this model, in their order."""
        return [each for each in self.seen if each.model == model]

    def gaps(self, model: str) -> list[float]:
        """The seconds between its requests."""
        times = [each.at for each in self.of(model)]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    async def __aenter__(self) -> FaultServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        self._open: set[asyncio.StreamWriter] = set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while request := await _read(reader):
                seen = Seen(time.monotonic(), request["model"], request)
                self.seen.append(seen)
                call = Call(self, seen, len(self.of(seen.model)), reader, writer)
                if not await call.answer():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            self._open.discard(writer)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode().split("\r\n")
    length = next(int(line[15:]) for line in lines if line.lower().startswith("content-length:"))
    return json.loads(await reader.readexactly(length))


@dataclass
class Call:
    """One request and the ways to answer it; each gives whether the connection may be used on."""

    server: FaultServer
    seen: Seen
    number: int
    """The how-manieth request for this model it is."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> bool:
        if self.server.down:
            return await self.error(503, {"message": "down", "type": "server_error"})
        kind, _, rest = self.seen.model.partition(":")
        way: Callable[[str], Awaitable[bool]] = getattr(self, f"do_{kind.replace('-', '_')}")
        return await way(rest)

    # ---- whole and right

    async def do_healthy(self, _: str = "") -> bool:
        begun = self.seen.begun
        words = [word for word in WORDS if len("".join(WORDS[: WORDS.index(word)])) >= len(begun)]
        return await self.say(words)

    async def do_other(self, _: str) -> bool:
        """Another answer than everybody else's."""
        return await self.say([word.upper() for word in WORDS])

    async def do_no_prefill(self, _: str) -> bool:
        """Takes no beginning of an answer, and says so."""
        if self.seen.begun:
            return await self.error(400, {"message": "no prefill", "type": "invalid_request_error"})
        return await self.say(WORDS)

    # ---- refusals

    async def do_429(self, form: str) -> bool:
        if self.number > 1 and form != "forever":
            return await self.say(WORDS)
        headers = {
            "seconds": {"retry-after": "1"},
            "ms": {"retry-after-ms": "120"},
            "date": {"retry-after": formatdate(time.time() + 2, usegmt=True)},
            "long": {"retry-after": "3600"},
            "forever": {},
        }[form]
        return await self.error(429, {"message": "slow down", "type": "requests"}, headers)

    async def do_500(self, form: str) -> bool:
        if self.number > 1 and form == "once":
            return await self.say(WORDS)
        return await self.error(500, {"message": "oops", "type": "server_error"})

    async def do_503(self, _: str) -> bool:
        return await self.error(503, {"message": "down", "type": "server_error"})

    async def do_401(self, _: str) -> bool:
        return await self.error(401, {"message": "bad key", "type": "authentication_error"})

    async def do_context(self, _: str) -> bool:
        return await self.error(400, {"message": "long", "code": "context_length_exceeded"})

    async def do_filter(self, _: str) -> bool:
        return await self.error(400, {"message": "no", "code": "content_filter"})

    async def do_bad(self, _: str) -> bool:
        return await self.error(400, {"message": "bad", "type": "invalid_request_error"})

    async def do_html(self, _: str) -> bool:
        return await self.send(502, HTML, {"content-type": "text/html"})

    async def do_200_error(self, _: str) -> bool:
        body = json.dumps({"error": {"message": "overloaded", "type": "overloaded_error"}})
        return await self.send(200, body.encode(), {"content-type": "application/json"})

    # ---- the wire itself

    async def do_reset(self, _: str) -> bool:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()
        return False

    async def do_silence(self, _: str) -> bool:
        await self.reader.read(1)
        self.server.gone.set()
        return False

    async def do_slow(self, _: str) -> bool:
        """Headers, and then no token."""
        await self.begin()
        return await self.do_silence("")

    async def do_cut(self, after: str) -> bool:
        await self.begin()
        await self.tokens(WORDS[: int(after)])
        self.writer.transport.abort()
        return False

    async def do_ends(self, after: str) -> bool:
        """The body ends well, the stream does not."""
        await self.begin()
        await self.tokens(WORDS[: int(after)])
        await self.end()
        return False

    async def do_stall(self, after: str) -> bool:
        await self.begin()
        await self.tokens(WORDS[: int(after)])
        return await self.do_silence("")

    async def do_inband(self, after: str) -> bool:
        await self.begin()
        await self.tokens(WORDS[: int(after)])
        error = {"error": {"message": "overloaded", "type": "overloaded_error"}}
        await self.event(json.dumps(error))
        await self.end()
        return False

    async def do_malformed(self, _: str) -> bool:
        await self.begin()
        await self.tokens(WORDS[:20])
        await self.event('{"choices": [{"delta": ')
        await self.tokens(WORDS[20:])
        await self.finish()
        return await self.end()

    async def do_no_done(self, _: str) -> bool:
        await self.begin()
        await self.tokens(WORDS)
        await self.finish(done=False)
        await self.end()
        return False

    async def do_wrong_type(self, _: str) -> bool:
        body = json.dumps(_whole(WORDS)).encode()
        return await self.send(200, body, {"content-type": "application/json"})

    async def do_gzip(self, _: str) -> bool:
        body = gzip.compress(json.dumps(_whole(WORDS)).encode())
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        return await self.send(200, body, headers)

    async def do_endless(self, _: str) -> bool:
        """Everything is said, and the body does not end."""
        await self.begin()
        await self.tokens(WORDS)
        await self.finish()
        await self.reader.read(1)
        return False

    # ---- the pieces

    async def say(self, words: tuple[str, ...] | list[str]) -> bool:
        if not self.seen.stream:
            body = json.dumps(_whole(words)).encode()
            return await self.send(200, body, {"content-type": "application/json"})
        await self.begin()
        await self.tokens(words)
        await self.finish()
        return await self.end()

    async def error(
        self, status: int, error: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> bool:
        body = json.dumps({"error": error}).encode()
        return await self.send(
            status, body, {"content-type": "application/json", **(headers or {})}
        )

    async def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(
            f"HTTP/1.1 {status} X\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
        )
        await self.writer.drain()
        return True

    async def begin(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await self.writer.drain()

    async def tokens(self, words: tuple[str, ...] | list[str]) -> None:
        for word in words:
            await self.event(json.dumps({"id": "c1", "choices": [_delta({"content": word})]}))

    async def finish(self, *, done: bool = True) -> None:
        last = {"id": "c1", "choices": [_delta({}, "stop")], "usage": _USAGE}
        await self.event(json.dumps(last))
        if done:
            await self.event("[DONE]")

    async def event(self, data: str) -> None:
        frame = f"data: {data}\n\n".encode()
        self.writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        await self.writer.drain()

    async def end(self) -> bool:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return True


_USAGE = {"prompt_tokens": 10, "completion_tokens": 60}


def _delta(delta: Mapping[str, str], reason: str | None = None) -> Mapping[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _whole(words: tuple[str, ...] | list[str]) -> Mapping[str, Any]:
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "model": "m", "choices": [choice], "usage": _USAGE}
