"""Uvicorn's WebSocket protocol, made fit for clients that are slow, hostile or gone.

What differs from uvicorn's own:

- A server that stops does not cut the socket: the application hears `websocket.drain`.
- A client that closes its side without a word has gone, even when it left data unread; so has one
  that does not answer a ping, and one that does not take our goodbye.
- Pings of a client that does not read are answered once, when it reads again.
- Fragments are kept as bytes, not one object each, however small they are.
- A handshake that cannot be read is answered; neither one that is refused nor text that is not
  UTF-8 is a matter for the log.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from penstock.server.http.websocket import DRAIN

PING_EVERY_S = 20.0
PONG_WITHIN_S = 60.0
"""A client that takes nothing for so long has gone."""
_FRAGMENTS = 256
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 28\r\nconnection: close\r\n\r\nnot a WebSocket's handshake\n"
)


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection; made by uvicorn when a request asks for an upgrade."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """As uvicorn's own."""
        super().__init__(*args, **options)
        self._late_pong = b""
        self._last_call: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes of the handshake, or of frames."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.handshake_initiated = True
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_REQUEST)
            self.transport.close()

    async def send(self, message: Any) -> None:
        """As in ASGI 3; a refusal ends the handshake too, and is no accident for the log."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def eof_received(self) -> None:
        """The client has closed its side: what it has not read by now, nobody will."""
        if self.conn.close_rcvd is None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._last_call is not None:
            self._last_call.cancel()
        super().connection_lost(exc)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application has ended; a client that does not take the rest must not hold it."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._last_call = self.loop.call_later(self.close_timeout, self.transport.abort)

    def shutdown(self) -> None:
        """The server stops: let the application say when the socket may be closed."""
        if self.handshake_complete and not self.close_sent:
            self.queue.put_nowait(cast(Any, {"type": DRAIN}))
        else:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        """No pong came in time; a goodbye would not be read either."""
        self.transport.abort()

    def handle_ping(self) -> None:
        """Answer it, or only the last one when the client does not read."""
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)
        else:
            self._late_pong = pong

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._late_pong:
            pong, self._late_pong = self._late_pong, b""
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        """The next fragment of a message."""
        if len(self.frames) >= _FRAGMENTS:
            self.frames = [b"".join(self.frames)]
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """A message is whole."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            data, self.frames = b"".join(self.frames), []
            try:
                data.decode()
            except UnicodeDecodeError:
                self.conn.fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
                self.handle_parser_exception()
                return
            self.frames = [data]
        super().send_receive_event_to_app()
