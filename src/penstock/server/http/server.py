"""Uvicorn as a gateway needs it: our signals, our protocols, our patience."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any, cast

import uvicorn

from penstock.server.dispatch import App
from penstock.server.http.limits import PatientProtocol
from penstock.server.http.listening import BACKLOG
from penstock.server.http.websocket_protocol import PING_EVERY_S, PONG_WITHIN_S, SocketProtocol

GRACE_S = 10.0
"""How long running requests may go on after the first signal to stop."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than clients keep theirs, so they close it."""
_LAST_WORDS_S = 1.0
_LAST_REQUESTS_S = 0.2
"""Between the last new connection and the end of those on which nothing is asked: what is on its
way meanwhile is answered, with the word that the connection ends."""


class GatewayServer(uvicorn.Server):
    """Uvicorn with our signals: the first lets running requests finish, the second cuts them."""

    def __init__(
        self,
        app: App,
        *,
        on_start: Callable[[], None] = lambda: None,
        grace_s: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`on_start` is called once requests are answered."""
        # Its own log says nothing that a person needs, except what goes wrong inside it.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

        def connected(**options: Any) -> PatientProtocol:
            return PatientProtocol(
                patience=app.patience, ending=lambda: self.should_exit, **options
            )

        config = uvicorn.Config(
            app,
            # The limits are those that hold when somebody connects.
            http=cast(Any, connected),
            ws=SocketProtocol,
            ws_max_size=app.max_request_bytes,
            ws_ping_interval=PING_EVERY_S,
            ws_ping_timeout=PONG_WITHIN_S,
            # On messages of a few words it costs more than it saves, and memory a socket.
            ws_per_message_deflate=False,
            interface="asgi3",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        config.ssl = tls
        # Fractions of a second are as good to the event loop, whatever the annotation says.
        config.timeout_graceful_shutdown = GRACE_S if grace_s is None else grace_s  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = app.on_stop

    @property
    def running_requests(self) -> int:
        """How many requests are being answered."""
        return sum(not task.done() for task in self.server_state.tasks)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let nobody in any more, and end when all who are in have their answers."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        await asyncio.sleep(_LAST_REQUESTS_S)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Take no more requests and let the running ones finish; the second time, cut them."""
        if not self.should_exit:
            self.should_exit = True
            self._on_stop()
            return
        for task in list(self.server_state.tasks):
            task.cancel()
        # Whoever reads has been told by then; whoever does not is not waited for.
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._cut)

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Nothing: the caller of `serve` decides about signals."""
        yield
