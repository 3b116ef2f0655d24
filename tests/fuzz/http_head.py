"""The gateway's side of one connection, in memory: the real protocol before a tiny application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from penstock.server.http.limits import Patience, PatientProtocol

_TURNS = 6
"""Runs of the event loop in which a request that is complete is answered."""
_HEAD_BYTES = 4_096


class _Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.closed or not data
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes of the body."""
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return
        size, more = size + len(event["body"]), event["more_body"]
    for name, value in scope["headers"]:
        assert isinstance(name, bytes)
        assert name == name.lower()
        assert b"\n" not in value
        assert b"\0" not in value
    body = b"%d" % size
    head = {"status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    await send({"type": "http.response.start", **head})
    await send({"type": "http.response.body", "body": body})


def serve(pieces: Sequence[bytes]) -> None:
    """Feed these reads to a connection; raises AssertionError for whatever must not happen."""
    loop = asyncio.new_event_loop()
    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    try:
        wire, state = _Wire(), ServerState()
        config = Config(_echo, log_config=None, access_log=False, ws="none", lifespan="off")
        config.load()
        protocol = PatientProtocol(
            patience=Patience(max_head_bytes=_HEAD_BYTES),
            config=config,
            server_state=state,
            app_state={},
            _loop=loop,
        )
        protocol.connection_made(wire)
        for piece in pieces:
            if wire.closed:
                break
            loop.run_until_complete(_received(protocol, piece))
        protocol.connection_lost(None)
        loop.run_until_complete(_turns())
        assert not state.tasks, "a request outlives its connection"
        assert not failures, failures
        _check_answers(bytes(wire.written))
    finally:
        loop.close()


async def _received(protocol: PatientProtocol, piece: bytes) -> None:
    protocol.data_received(piece)
    await _turns()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _check_answers(written: bytes) -> None:
    """Everything that was written is whole answers, and none is a failure of ours."""
    while written:
        head, end, rest = written.partition(b"\r\n\r\n")
        line, *headers = head.split(b"\r\n")
        assert end, head
        assert line.startswith(b"HTTP/1.1 "), line
        status = int(line[9:12])
        assert status < 500, head
        if 100 <= status < 200:
            written = rest
            continue
        lengths = [int(each[15:]) for each in headers if each.startswith(b"content-length:")]
        assert len(lengths) == 1, head
        # The answer to a HEAD announces what it does not bring.
        bodiless = not rest or rest.startswith(b"HTTP/1.1 ")
        written = rest if bodiless else rest[lengths[0] :]
