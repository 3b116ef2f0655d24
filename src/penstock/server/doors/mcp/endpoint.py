"""`/mcp`: Penstock as an MCP server over streamable HTTP, in both eras.

The SDK speaks the protocol; keys, limits and time limits are those of every other door. Nothing of
it is imported before somebody calls.

It keeps no sessions: any process of a gateway answers any message. Whoever closes the answer to a
call has cancelled it, and so has a legacy client that says so.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError
from penstock.engine.engine import Engine
from penstock.server.auth.gate import Gate
from penstock.server.auth.local_guard import is_local_origin
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.mcp.calls import SESSION, Calls, is_call, kind_of, new_session, streams
from penstock.server.doors.mcp.errors import MCP_ERRORS
from penstock.server.doors.mcp.resumption import LAST_EVENT, Resumption
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Event, Exchange
from penstock.server.process.peers import Question, Siblings

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from penstock.mcp.streaming.extension import StreamingTools

PATH = "/mcp"


class MCPEndpoint:
    """The door; its server is made when somebody first knocks, and lives until `aclose`."""

    def __init__(self, engine: Callable[[], Engine], gate: Gate, siblings: Siblings) -> None:
        """`engine` gives the one that answers at the moment."""
        self._calls = Calls(siblings)
        self._engine = engine
        self._gate = gate
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._siblings = siblings
        self._resumption = Resumption()
        self._streaming: StreamingTools | None = None
        siblings.answer(Question.MCP_STREAM, self._about_stream)

    def routes(self) -> Routes:
        """POST for messages, and GET for the rest of an answer; there is no session to end."""
        return {
            ("POST", PATH): Route(self, MCP_ERRORS, counted=False),
            ("GET", PATH): Route(self._resume, MCP_ERRORS, counted=False),
        }

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """Hand the request to the SDK, for the caller that the key names."""
        _check_origin(engine, exchange)
        body = await exchange.body()
        self._gate.count(exchange, kind_of(body))
        session = exchange.headers.get(SESSION, b"").decode("latin-1")
        resume_s = engine.config.server.mcp_resume_s
        if resume_s and session and is_call(body):
            path = events_file(engine.config)

            async def serve(inner: Exchange) -> None:
                await self._serve(inner, body)

            await self._resumption.run(exchange, session, serve, path, resume_s)
        else:
            await self._serve(exchange, body)

    async def _serve(self, exchange: Exchange, body: bytes) -> None:
        manager = await self._started()
        from penstock.mcp.serving.visits import visiting
        from penstock.server.doors.mcp.caller import GatewayVisit

        pending: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Event:
            if pending:
                return pending.pop()
            # Whether the client is still there is watched by the exchange, which cancels us.
            await asyncio.Event().wait()
            raise AssertionError

        visit = GatewayVisit(
            self._engine,
            exchange.access,
            exchange.caller,
            lambda error: self._gate.failed(exchange, error),
            streams=streams(exchange.headers.get(SESSION, b"")),
        )
        session = new_session(body)

        async def send(event: MutableMapping[str, Any]) -> None:
            if session is not None and event["type"] == "http.response.start":
                event = {**event, "headers": [*event["headers"], (SESSION, session)]}
            await exchange.pass_on(event)

        with visiting(visit):
            work = manager.handle_request(exchange.scope, receive, send)
            await self._calls.serve(exchange, body, work)

    async def _resume(self, engine: Engine, exchange: Exchange) -> None:
        """The rest of an answer that a client lost, where answers are kept."""
        resume_s = engine.config.server.mcp_resume_s
        if not resume_s or LAST_EVENT not in exchange.headers:
            raise HttpProblem(_NOTHING_TO_LISTEN_TO)
        _check_origin(engine, exchange)
        self._gate.count(exchange, "messages")
        session = exchange.headers.get(SESSION, b"").decode("latin-1")
        path = events_file(engine.config)
        await self._resumption.resume(exchange, session, path, resume_s)

    async def aclose(self) -> None:
        """End it, if it ever began; a task that has not ended fails, and says why."""
        await self._resumption.aclose()
        self._closing.set()
        if self._manager is not None and self._running is not None:
            await self._running

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                # In a thread, for it takes longer than a stream should stand still.
                await asyncio.to_thread(_import)
                ready: asyncio.Future[StreamableHTTPSessionManager] = (
                    asyncio.get_running_loop().create_future()
                )
                # In a task of its own: the SDK must leave it where it has entered it.
                self._running = asyncio.create_task(self._run(ready))
                await asyncio.wait({ready, self._running}, return_when=asyncio.FIRST_COMPLETED)
                if not ready.done():
                    await self._running  # which raises why it has not begun
                self._manager = ready.result()
        return self._manager

    async def _run(self, ready: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        from mcp.server.transport_security import TransportSecuritySettings

        from penstock.mcp.serving.server import build_server, streaming_of, tasks_of

        tasks = tasks_of(tasks_file(self._engine().config))
        self._streaming = streaming_of(self._elsewhere)
        server = build_server(tasks, self._streaming)
        server.streamable_http_app(
            stateless_http=True,
            # Names, origins and sizes have been looked at, by rules that may change.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=2**40,
        )
        async with server.session_manager.run(), tasks:
            ready.set_result(server.session_manager)
            await self._closing.wait()

    async def _about_stream(self, order: dict[str, Any]) -> dict[str, Any] | None:
        return None if self._streaming is None else await self._streaming.answer(order)

    async def _elsewhere(self, order: dict[str, Any]) -> dict[str, Any] | None:
        answers = await self._siblings.ask(Question.MCP_STREAM, order)
        return next(iter(answers), None)


def tasks_file(config: Config) -> Path:
    """Where tasks are kept: beside the ledger, and not in it, for they come and go."""
    return config.storage.path.with_name("mcp-tasks.db")


def events_file(config: Config) -> Path:
    """Where events are kept for clients that lost their connection."""
    return config.storage.path.with_name("mcp-events.db")


def _import() -> None:
    try:
        importlib.import_module("penstock.mcp.serving.server")
    except ImportError as error:
        raise ConfigurationError(
            f"{PATH} needs the extra `mcp`: pip install 'penstock[mcp]' ({error})"
        ) from error


def _check_origin(engine: Engine, exchange: Exchange) -> None:
    """The standard wants it also where a key is asked for."""
    origin = exchange.headers.get(b"origin")
    if origin is None or is_local_origin(origin):
        return
    allowed = engine.config.server.cors_origins
    if "*" not in allowed and origin.decode("latin-1") not in allowed:
        raise HttpProblem(
            Failure(
                403,
                "no web page of that origin may call; add it to server.cors_origins",
                "permission_error",
                "origin_not_allowed",
            )
        )


_NOTHING_TO_LISTEN_TO = Failure(
    405,
    "GET answers with the rest of a lost answer only: send Last-Event-ID, where "
    "server.mcp_resume_s is set; messages are sent with POST",
    "invalid_request_error",
    "method_not_allowed",
    headers=((b"allow", b"POST"),),
)
