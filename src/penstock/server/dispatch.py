"""The ASGI application: from the server to a door, and every failure back in that door's words.

It is raw ASGI without a framework, because a request may cost the gateway some 35 microseconds and
a framework's routing alone takes more. A handler is a coroutine function of the engine and the
exchange, and a door is a table of routes: `application` in `serve.py` puts them together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError
from penstock.engine.engine import Engine
from penstock.pipeline.registry import new_request_id
from penstock.server.auth.cors import Cors
from penstock.server.auth.gate import Gate, Needs
from penstock.server.errors import (
    OPENAI_ERRORS,
    ErrorShape,
    Failure,
    HttpProblem,
    failure_of,
    headers_of,
)
from penstock.server.exchange import REQUEST_ID, ClientGone, Exchange, Receive, Scope, Send
from penstock.server.http.limits import Patience
from penstock.server.http.websocket import INTERNAL_ERROR, SERVICE_RESTART, Socket
from penstock.server.near_paths import suggestion

logger = logging.getLogger("penstock.server")

SHUTTING_DOWN = Failure(
    503, "the gateway is shutting down", "server_error", "shutting_down", retryable=True
)

Handler: TypeAlias = Callable[[Engine, Exchange], Awaitable[None]]
SocketHandler: TypeAlias = Callable[[Callable[[], Engine], Socket], Awaitable[None]]
"""It asks for the engine again for each request, as a connection may outlive many of them."""


class Route(NamedTuple):
    """Who answers, and in which words its failures are told."""

    handler: Handler
    errors: ErrorShape = OPENAI_ERRORS
    needs: Needs = "key"
    """What its callers must show, where keys are asked for; below `/admin` always the admin key."""
    counted: bool | None = None
    """Whether a call is a request of its key; by default each POST is. False: the handler counts
    it by `Gate.count`."""


class SocketRoute(NamedTuple):
    """Who talks over a WebSocket, in which words one is refused, and what its callers must show."""

    handler: SocketHandler
    errors: ErrorShape = OPENAI_ERRORS
    needs: Needs = "key"


Routes: TypeAlias = Mapping[tuple[str, str], Route]
"""By method and path; a path that ends in `/*` takes everything below it."""


class App:
    """One gateway: an engine with its doors."""

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        routes: Routes,
        *,
        max_request_bytes: int,
        gate: Gate | None = None,
        sockets: Mapping[str, SocketRoute] | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """The engine is opened when the server starts, on the server's event loop.

        Without a `gate` everybody may do everything; `sockets` are the WebSockets by their paths.
        `on_stop` ends answers that would never end by themselves, when the server begins to stop.
        """
        self.on_stop = on_stop
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self.max_request_bytes = max_request_bytes
        """The largest body, or message of a WebSocket, that is read."""
        self.max_json_values: int | None = None
        """The most JSON values of a body; None: any number."""
        self._sockets = sockets or {}
        self.gate = gate
        self.cors: Cors | None = None
        """Whose web pages may call; None: nobody's."""
        self.patience = Patience()
        """How long clients may take."""
        self.draining = False
        """Whether the gateway stops soon and `/ready` says so."""
        self.configure: Callable[[Config], None] = lambda _: None
        """Lets the doors go by another configuration."""
        self.leave: Callable[[], Awaitable[None]] | None = None
        """What is done before the engine is closed."""
        self.finish: Callable[[], Awaitable[None]] | None = None
        """What is done last of all, when the engine is closed."""
        heads = {
            ("HEAD", path): route for (method, path), route in routes.items() if method == "GET"
        }
        every = {**heads, **routes}
        self._routes = {key: route for key, route in every.items() if not key[1].endswith("/*")}
        self._below = {
            (method, path[:-1]): route
            for (method, path), route in every.items()
            if path.endswith("/*")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The entry point of ASGI 3."""
        if scope["type"] == "http":
            limits = self.max_request_bytes, self.max_json_values
            await self._serve(Exchange(scope, receive, send, *limits))
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._converse(Socket(scope, receive, send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            if self.finish is not None:
                stack.push_async_callback(self.finish)
            try:
                engine = self._open_engine()
                await stack.enter_async_context(engine)
                if self.gate is not None:
                    await stack.enter_async_context(self.gate)
            except PenstockError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            self._engine = engine
            stack.push_async_callback(self._close)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        """Every method and path that is answered; `/*` is everything below a path."""
        below = {(method, f"{prefix}*") for method, prefix in self._below}
        return frozenset({*self._routes, *below})

    @property
    def engine(self) -> Engine | None:
        """Who answers now; None before the start."""
        return self._engine

    async def change(self, config: Config) -> None:
        """Go on with an engine of this configuration; raises, and then nothing has changed."""
        self._engine = await self._ready().reconfigured(config)
        self.configure(config)

    async def _close(self) -> None:
        if self.leave is not None:
            await self.leave()
        await self._ready().aclose()

    async def _serve(self, exchange: Exchange) -> None:
        if self.cors is not None:
            exchange.cors = self.cors.headers(exchange.headers)
            if allowed := self.cors.preflight(exchange.method, exchange.headers):
                await exchange.reply_nothing(allowed)
                return
        route = self._find(exchange.method, exchange.path)
        if route is None:
            # A base URL without `/v1`, or with one too many.
            path = _respelled(exchange.path)
            route = self._find(exchange.method, path)
            if route is not None:
                exchange.respell(path)
        errors = self._errors_at(exchange.path) if route is None else route.errors
        try:
            if self.gate is not None:
                needs, counted = ("key", None) if route is None else (route.needs, route.counted)
                self.gate.admit(exchange, needs, counted=counted)
            if route is None:
                raise self._nothing(exchange.method, exchange.path)
            engine = self._ready()
            # From before its body is read to its last round, it is one engine that answers.
            with engine.in_use():
                await route.handler(engine, exchange)
        except asyncio.CancelledError:
            # Either the client has gone, or the server has no more time for it.
            _forget_cancellation()
            if not exchange.gone:
                request_id = exchange.request_id or new_request_id()
                await _tell(exchange, errors, SHUTTING_DOWN, request_id)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - nothing may reach the client but a door's words
            if self.gate is not None:
                error = self.gate.failed(exchange, error)
            await tell_error(exchange, errors, error)
        finally:
            exchange.close()

    async def _converse(self, socket: Socket) -> None:
        route = self._sockets.get(socket.path)
        errors = OPENAI_ERRORS if route is None else route.errors
        try:
            if self.gate is not None:
                socket.knock(self.gate, "key" if route is None else route.needs)
            if route is None:
                message = f"there is no WebSocket at {socket.path}"
                raise HttpProblem(Failure(404, message, code="not_found"))
            self._ready()
            await route.handler(self._ready, socket)
        except asyncio.CancelledError:
            _forget_cancellation()
            await _end_socket(socket, errors, SHUTTING_DOWN, SERVICE_RESTART)
        except ClientGone:
            pass
        except Exception as error:
            failure = failure_of(error)
            if not isinstance(error, HttpProblem):
                logger.error("a WebSocket at %s failed: %s", socket.path, error, exc_info=error)
            await _end_socket(socket, errors, failure, INTERNAL_ERROR)

    def _ready(self) -> Engine:
        if self._engine is None:
            raise HttpProblem(Failure(503, "the gateway is starting", code="starting"))
        return self._engine

    def _find(self, method: str, path: str) -> Route | None:
        route = self._routes.get((method, path))
        if route is not None:
            return route
        for (known, prefix), below in self._below.items():
            if known == method and path.startswith(prefix):
                return below
        return None

    def _nothing(self, method: str, path: str) -> HttpProblem:
        """Why there is no route: a 404 or a 405."""
        allowed = {known for known, exact in self._routes if exact == path}
        allowed |= {known for known, prefix in self._below if path.startswith(prefix)}
        if not allowed:
            known = {exact for _, exact in self._routes}
            near = suggestion(path, known, {prefix for _, prefix in self._below})
            message = f"there is nothing at {path}{near}"
            return HttpProblem(Failure(404, message, code="not_found"))
        allow = ", ".join(sorted(allowed))
        return HttpProblem(
            Failure(
                405,
                f"{path} takes {allow}, not {method}",
                code="method_not_allowed",
                headers=((b"allow", allow.encode()),),
            )
        )

    def _errors_at(self, path: str) -> ErrorShape:
        """The words of the door that this path belongs to, if there were something at it."""
        for (_, known), route in self._routes.items():
            if path == known or path.startswith(f"{known}/"):
                return route.errors
        return OPENAI_ERRORS


def _respelled(path: str) -> str:
    return path[3:] if path.startswith("/v1/v1/") else f"/v1{path}"


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def tell_error(exchange: Exchange, errors: ErrorShape, error: Exception) -> None:
    """Answer with this error in the endpoint's shape, or end the stream with it."""
    known = error.request_id if isinstance(error, PenstockError) else None
    request_id = known or exchange.request_id or new_request_id()
    failure = failure_of(error)
    if failure.status == 500:
        # What Penstock itself says is explained by its message; only a bug needs its traceback.
        trace = None if isinstance(error, PenstockError) else error
        logger.error("request %s failed: %s", request_id, error, exc_info=trace)
    await _tell(exchange, errors, failure, request_id)


async def _tell(exchange: Exchange, errors: ErrorShape, failure: Failure, request_id: str) -> None:
    if exchange.ended:
        return
    failure = msgspec.structs.replace(failure, request_id=request_id)
    if exchange.started:
        await exchange.end(errors.event(failure))
        return
    # Anthropic's clients look for the second name.
    names = ((name, request_id.encode()) for name in (REQUEST_ID, b"request-id"))
    headers = [*names, *headers_of(failure)]
    await exchange.reply(errors.body(failure), headers, status=failure.status)


async def _end_socket(socket: Socket, errors: ErrorShape, failure: Failure, code: int) -> None:
    with contextlib.suppress(ClientGone):
        if socket.accepted:
            await socket.close(code, failure.message)
        else:
            headers = [(REQUEST_ID, new_request_id().encode()), *headers_of(failure)]
            await socket.refuse(failure.status, errors.body(failure), headers)
