"""Uvicorn's HTTP protocol, with trimmed header values and answers that are written for less.

Uvicorn looks at each header of an answer with two regular expressions, and gives the head and the
body to the socket one after the other. Here the head is checked as a whole, and goes out together
with the beginning of the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from penstock.server.exchange import ON_LOST

_BLANKS = b" \t"
_BODILESS = (204, 304)
_JOINED_UP_TO = 65_536
"""Bytes of a body that are copied to stand behind the head; a longer one is written by itself."""


def _never() -> bool:
    return False


class HttpProtocol(HttpToolsProtocol):
    """One connection of a client."""

    ending: Callable[[], bool] = staticmethod(_never)
    """Whether the server is about to close it: then each answer says so, and who reads that sends
    nothing more that would be lost."""
    _running: RequestResponseCycle | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trim the blanks around a value, which are no part of it (RFC 9110, 5.5).

        The parser leaves those at its end.
        """
        super().on_header(name, value.strip(_BLANKS))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, also for the request that is being answered while others wait behind it."""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
            scope: Any = running.scope
            for tell in scope[ON_LOST]:
                tell()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        scope: Any = cycle.scope
        scope[ON_LOST] = []
        # Where the cycle would look for its own method.
        vars(cycle)["send"] = _Answer(cycle, self.ending, self.part).send
        super()._start_asgi_task(cycle, app)

    def part(self) -> None:
        """Close behind an answer although the client may still be sending its request."""
        self.transport.close()


class _Answer:
    """What is sent to one request, in the place of `RequestResponseCycle.send`."""

    __slots__ = ("_chunked", "_cycle", "_ending", "_head", "_left", "_part")

    def __init__(
        self, cycle: RequestResponseCycle, ending: Callable[[], bool], part: Callable[[], None]
    ) -> None:
        self._cycle = cycle
        self._ending = ending
        self._part = part
        self._head = b""
        self._chunked = False
        self._left: int | None = None
        """Bytes of the body that were announced and have not been written."""

    async def send(self, message: Any) -> None:
        """As in ASGI 3; raises RuntimeError for messages that make no answer."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        kind = message["type"]
        if cycle.response_complete or (kind == "http.response.start") == cycle.response_started:
            raise RuntimeError(f"{kind!r} has no place here in an answer")
        if kind == "http.response.start":
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), message.get("more_body", False))

    def _begin(self, status: int, headers: Any) -> None:
        """Put the head together; it waits for the first of the body."""
        cycle = self._cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        if self._ending():
            cycle.keep_alive = False
        every = [*cycle.default_headers, *headers]
        closes = False
        for name, value in every:
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection" and b"close" in value.lower():
                cycle.keep_alive, closes = False, True
        if not cycle.keep_alive and not closes:
            every.append((b"connection", b"close"))
        if self._left is None and cycle.scope["method"] != "HEAD" and status not in _BODILESS:
            self._chunked = True
            every.append((b"transfer-encoding", b"chunked"))
        head = b"".join([STATUS_LINE[status], *[b"%b: %b\r\n" % each for each in every]])
        # One end of a line for each: whatever a value holds, it makes no header of its own.
        ends = len(every) + 1
        if not head.count(b"\r") == head.count(b"\n") == head.count(b"\r\n") == ends or 0 in head:
            raise RuntimeError("a header of the answer holds the end of a line, or a zero byte")
        self._head = head + b"\r\n"

    def _go_on(self, body: bytes, more: bool) -> None:
        cycle = self._cycle
        if cycle.scope["method"] == "HEAD":
            body, self._left = b"", 0
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body is not as long as its content-length says")
        if self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            framed = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
            self._write(framed)
        else:
            self._write(body)
        if more:
            return
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            if cycle.more_body:
                self._part()
            else:
                cycle.transport.close()
        cycle.on_response()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        write = self._cycle.transport.write
        if len(data) > _JOINED_UP_TO:
            if head:
                write(head)
            write(data)
        elif head or data:
            write(head + data)
