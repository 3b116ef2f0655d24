"""How long a client may take, and how much it may say before its request is read.

Six things would let a client hold a connection, or memory, for nothing: a head that never ends, a
head without measure, a body that trickles, headers behind a body (trailers) without end, requests
that are sent on and on without waiting for an answer, and an answer that is not taken. Each has its
limit. A request that comes in one piece, as most do, costs none of the timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from penstock.server.errors import OPENAI_ERRORS, Failure
from penstock.server.http.protocol import HttpProtocol

_BYTES_A_SECOND = 8192
"""The slowest client: a body has a second more for each of these parts, and an answer that waits to
be written must become shorter by so much."""
_MOST_WAITING = 256
"""Requests of one connection that wait for the answer to an earlier one."""


class Patience(msgspec.Struct, frozen=True):
    """The limits of one gateway."""

    max_head_bytes: int = 65_536
    idle_s: float = 75.0
    """Until the first byte of a connection."""
    head_s: float = 15.0
    """From the first byte of a request to the end of its head."""
    body_s: float = 30.0
    """From the head to the end of the body, and more for a large one."""
    write_s: float = 60.0
    """In which the client takes less than it must of what is written."""
    linger_s: float = 2.0
    """In which a client that still sends may read its last answer, and what it sends is dropped."""


class _Phase(Enum):
    IDLE = 0
    HEAD = 1
    BODY = 2


class PatientProtocol(HttpProtocol):
    """One connection of a client, which is given up when it takes too long."""

    def __init__(
        self, *, patience: Patience, ending: Callable[[], bool] | None = None, **options: Any
    ) -> None:
        """`ending` says whether the server is; `options` are uvicorn's own."""
        super().__init__(**options)
        if ending is not None:
            self.ending = ending
        self._patience = patience
        self._phase = _Phase.IDLE
        self._began = 0.0
        self._received = 0
        self._head_bytes = 0
        self._beside_body = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._lingering: asyncio.TimerHandle | None = None
        self._refused = False

    # -- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Somebody is there; somebody who says nothing is not kept for ever."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._patience.idle_s, self._close_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        for timer in (self._timer, self._stalled, self._lingering):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of one request or of several."""
        if self._refused:
            return
        before = self._phase
        self._beside_body += len(data)
        super().data_received(data)
        if self._refused:
            self._disarm()
            return
        phase = self._phase
        if phase is _Phase.IDLE:
            if self._timer is not None:
                self._disarm()
            return
        if phase is not before:
            self._began, self._received = self.loop.time(), 0
            self._disarm()
        self._received += len(data)
        # The parser keeps a head, and so a trailer, until it is whole.
        held = self._received if phase is _Phase.HEAD else self._beside_body
        if held > self._patience.max_head_bytes:
            self._refuse(_TOO_LARGE)
        elif self._timer is None:
            self._arm()

    def handle_websocket_upgrade(self) -> None:
        """From here on it is no connection of ours."""
        self._disarm()
        if self._owes_another:
            self.transport.abort()
            return
        super().handle_websocket_upgrade()

    # -- a client that does not read

    def pause_writing(self) -> None:
        """There is more to read than the client takes."""
        super().pause_writing()
        if self._stalled is None:
            self._expect_progress()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _expect_progress(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self._patience.write_s, self._check_progress)

    def _check_progress(self) -> None:
        """Give up a client that reads too little; nothing is written while it is behind."""
        taken = self._unsent - self.transport.get_write_buffer_size()
        if taken >= _BYTES_A_SECOND * self._patience.write_s:
            self._expect_progress()
        else:
            self.transport.abort()

    # -- a client that still sends

    def part(self) -> None:
        """Say that nothing more comes, and close when the client has, or soon.

        To close while bytes of it wait to be read would reset the connection, and the answer would
        be lost on its way.
        """
        self._refused = True
        self._disarm()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._lingering = self.loop.call_later(self._patience.linger_s, self.transport.close)

    # -- the parser tells how far a request has come

    def on_message_begin(self) -> None:
        """The first line."""
        self._phase = _Phase.HEAD
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One more header; one that comes behind the body is none.

        It would be a key, or a length, that nobody before us has looked at.
        """
        self._head_bytes += len(name) + len(value) + 4
        if self._phase is _Phase.HEAD:
            super().on_header(name, value)
        elif self._head_bytes > self._patience.max_head_bytes:
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """The whole head; nobody serves a request whose head is too large."""
        if self._head_bytes > self._patience.max_head_bytes:
            self._refuse(_TOO_LARGE)
        if self._refused:
            return
        self._phase = _Phase.BODY
        self._beside_body = 0
        if len(self.pipeline) >= _MOST_WAITING:
            self._refused = True
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._beside_body = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request."""
        self._phase = _Phase.IDLE
        if not self._refused:
            super().on_message_complete()

    # -- what is no request, or no longer one

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        self._refuse(_NOT_HTTP)

    def _unsupported_upgrade_warning(self) -> None:
        """Somebody wants another protocol, and gets an answer in this one, which is the last.

        What follows may be of either, so that it is not read.
        """
        cycle = cast("RequestResponseCycle | None", self.cycle)
        self._refused = True
        if cycle is None or cycle.response_complete:
            self.transport.close()
        else:
            cycle.keep_alive = False

    # -- time

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self._left_s(), self._look)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left_s(self) -> float:
        patience = self._patience
        if self._phase is _Phase.HEAD:
            allowed = patience.head_s
        else:
            allowed = patience.body_s + self._received / _BYTES_A_SECOND
        return self._began + allowed - self.loop.time()

    def _look(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            # It is we who do not read on: the request before is still being answered.
            self._began = self.loop.time()
        if self._left_s() > 0:
            self._arm()
        elif self._phase is _Phase.BODY and not self.cycle.response_started:
            self._refuse(_TOO_SLOW)
            # Whoever reads the body hears that it does not come.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self._phase is _Phase.HEAD:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.abort()

    def _close_idle(self) -> None:
        self._timer = None
        self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        """Say why, once, and close."""
        if self._refused:
            return
        self._refused = True
        if self._owes_another:
            # This answer would be taken for that one, or stand in the middle of it.
            self.transport.abort()
            return
        self.transport.write(answer)
        self.part()

    @property
    def _owes_another(self) -> bool:
        """Whether the client waits for the answer to something else, or already reads it."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or bool(self.pipeline) or self._phase is not _Phase.BODY


def _answer(line: bytes, failure: Failure) -> bytes:
    body = OPENAI_ERRORS.body(failure)
    return (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b" % (line, len(body), body)
    )


_NOT_HTTP = _answer(
    b"400 Bad Request",
    Failure(400, "this is not a request of HTTP/1.1 that can be read", code="invalid_http"),
)
_TOO_LARGE = _answer(
    b"431 Request Header Fields Too Large",
    Failure(
        431,
        "the head of the request is too large; send less, or raise limits.max_head_bytes",
        code="head_too_large",
    ),
)
_TOO_SLOW = _answer(
    b"408 Request Timeout",
    Failure(
        408,
        "the request has not come in time; see limits.head_timeout_s and limits.body_timeout_s",
        code="request_timeout",
        retryable=True,
    ),
)
