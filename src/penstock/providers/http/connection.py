"""One connection that speaks HTTP/1.1: a request goes out, and its answer comes in as it arrives.

The parsing is that of llhttp, by `httptools`. What is here is as little as can be between it and
whoever reads, because a token of a stream is often an HTTP chunk of its own: the pieces of a body
go straight into a list, and whoever reads takes all that have come.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextvars import Context
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_LONGEST_HEAD = 64 * 1024
_HELD_BYTES = 1024 * 1024
"""Beyond this nothing more is read from the network until somebody has taken what has come."""
_BODILESS = (204, 304)


class NotHttp(Exception):
    """What came is no HTTP response."""


class HungUp(ConnectionError):
    """The other end has closed the connection where it should have gone on."""


class Connection(asyncio.Protocol):
    """A connection for one exchange after another."""

    def __init__(self) -> None:
        """Expect to be connected by the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._pieces: list[bytes] = []
        # The parser calls these by their names; a body needs no function of ours between.
        self.on_body = self._pieces.append
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._held = 0
        self._head_size = 0
        self._asked = False
        self._has_head = False
        self._ends_with_connection = False
        self._keeps_alive = False
        self._write_paused = False
        self._read_paused = False
        self._sent: Callable[[], object] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline: float | None = None
        self._timer: asyncio.Handle | None = None
        # Not asked of the timer: uvloop's for the next moment does not know it.
        self._fires_at = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}
        """By their names in lower case; the first of those that come twice."""
        self.ended = False
        """Whether the answer has come to its proper end."""
        self.failure: Exception | None = None
        """Why nothing more of the answer will come."""
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = self._loop.create_future()
        # Windows has none: there, a connection that has just been closed may be used in vain.
        self._poll = select.poll() if hasattr(select, "poll") else None

    # What whoever asks uses

    @property
    def transport(self) -> asyncio.Transport:
        """What the bytes go through."""
        return self._transport

    def ask(self, head: bytes, body: bytes | None, sent: Callable[[], object] | None) -> None:
        """Write a request; `sent` is called when all of it is on its way."""
        self.status = self._head_size = 0
        self.headers = {}
        self._has_head = self.ended = False
        self._asked = True
        self._transport.write(head + body if body else head)
        if sent is not None:
            if self._write_paused:
                self._sent = sent
            else:
                sent()

    async def answered(self, seconds: float) -> None:
        """Return when status and headers are there; raises TimeoutError, NotHttp, OSError."""
        while True:
            if self.failure is not None:
                raise self.failure
            if self._has_head:
                return
            await self._wait(seconds)

    def ready(self) -> bytes:
        """What has come of the body and nobody has taken, without a wait."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held = 0
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()
        return data

    async def read(self, seconds: float) -> bytes:
        """The next bytes of the body, all that have come; empty at its end.

        Raises TimeoutError after so much silence, and what has ended the connection too early.
        """
        while not self._pieces:
            if self.ended:
                return b""
            if self.failure is not None:
                raise self.failure
            await self._wait(seconds)
        return self.ready()

    def reusable(self) -> bool:
        """Whether another request may follow; makes the connection wait for it."""
        good = self.ended and self._keeps_alive and not self._write_paused
        if not good or self.failure is not None or self._transport.is_closing():
            return False
        self._asked = False
        self._pieces.clear()
        self._held = 0
        self.idle_since = self._loop.time()
        return True

    def stands(self) -> bool:
        """Whether it can still be used: the end may have come without the event loop knowing."""
        if self._transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    def cut(self) -> None:
        """End it at once, whatever is under way."""
        self._forget_timer()
        self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        # Other event loops have classes of their own for it.
        self._transport = cast("asyncio.Transport", transport)
        if self._poll is not None:
            self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer, or of nothing that was asked for."""
        if not self._asked:
            self.cut()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keeps_alive = False
            if not self.ended:
                self._fail(NotHttp(_reason(error)))
        if not self._has_head:
            self._head_size += len(data)
            if self._head_size > _LONGEST_HEAD:
                self._fail(NotHttp("its headers have no end"))
            elif self.failure is None:
                return
        self._held += len(data)
        if self._held > _HELD_BYTES and not self._read_paused and not self.ended:
            self._read_paused = True
            self._transport.pause_reading()
        self._wake()

    def pause_writing(self) -> None:
        """The network takes no more for now."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """The network has taken what there was."""
        self._write_paused = False
        if self._sent is not None:
            sent, self._sent = self._sent, None
            sent()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection, and of a body that had no other."""
        self._forget_timer()
        if exc is None and self._has_head and self._ends_with_connection:
            self.ended = True
        elif self._asked and not self.ended:
            self._fail(exc or HungUp("it was closed too early"))
        self._keeps_alive = False
        if not self.lost.done():
            self.lost.set_result(None)
        self._wake()

    # What the parser calls

    def on_message_begin(self) -> None:
        """A response, of which there is one to a request."""
        if self.ended:
            raise NotHttp("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a line behind the body, which nobody asks for."""
        if self._has_head:
            return
        self._head_size += len(name) + len(value)
        if self._head_size > _LONGEST_HEAD:
            raise NotHttp(f"its headers are longer than {_LONGEST_HEAD} bytes")
        # The parser leaves the blanks at the end of a value, which are no part of it.
        trimmed = value.decode("latin-1").strip(" \t")
        self.headers.setdefault(name.decode("latin-1").lower(), trimmed)

    def on_headers_complete(self) -> None:
        """The head of the answer, or of a mere notice that it will come."""
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = {}
            return
        self.status = status
        self._ends_with_connection = (
            "content-length" not in self.headers
            and "transfer-encoding" not in self.headers
            and status not in _BODILESS
        )
        self._has_head = True

    def on_message_complete(self) -> None:
        """The end of the body."""
        if self._has_head:
            self._keeps_alive = self._parser.should_keep_alive()
            self.ended = True

    # Waiting

    async def _wait(self, seconds: float) -> None:
        """Until something has come or has gone wrong; raises TimeoutError.

        There is one timer for the life of the connection. It is moved only when it fires, because
        one for each wait would cost more than the wait itself.
        """
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is None or self._fires_at > deadline:
            self._set_timer(deadline)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = self._deadline = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        if self.failure is None:
            self.failure = failure
        self._transport.abort()

    def _set_timer(self, when: float) -> None:
        self._forget_timer()
        self._fires_at = when
        # Not in the context of the request, which the timer would keep while the socket is idle.
        self._timer = self._loop.call_at(when, self._on_timer, context=Context())

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(TimeoutError())


def _reason(error: Exception) -> str:
    """What the parser says, or what one of the functions that it calls did."""
    if isinstance(error, HttpParserUpgrade):
        return "it changed to another protocol"
    return str(error.__context__ or error)
