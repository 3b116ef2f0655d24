"""`penstock serve`: the gateway on a socket, until somebody stops it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any, Literal

import uvicorn

from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.gateway import Engine
from penstock.keys.store import KeyStore
from penstock.providers.embedded.install import missing
from penstock.providers.registry import KINDS
from penstock.server import (
    anthropic_api,
    openai_api,
    operations,
    responses_api,
    sampling_api,
    sampling_ws,
)
from penstock.server.access import Gate
from penstock.server.asgi import App
from penstock.server.guard import is_loopback
from penstock.server.screen import Screen
from penstock.server.websocket_protocol import PING_EVERY_S, PONG_WITHIN_S, SocketProtocol
from penstock.telemetry.logs import RequestLog, log_to
from penstock.telemetry.prometheus import PrometheusMetrics
from penstock.wiring import keyring_of

GRACE_S = 10
"""How long running requests may go on after the first signal to stop."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than clients keep theirs, so they close it."""
_LAST_WORDS_S = 1.0
_BACKLOG = 2048

logger = logging.getLogger("penstock.server")


def serve(config: Config, *, host: str, port: int, source: str) -> None:
    """Serve until SIGINT or SIGTERM; `source` says where the configuration comes from.

    Raises ConfigurationError when the address cannot be used.
    """
    everywhere = not is_loopback(host)
    if everywhere and not has_keys(config):
        raise ConfigurationError(
            f"{host} is reachable from other machines, and there is no key that this gateway could "
            "ask for: make one with `penstock keys create NAME`, or use --host 127.0.0.1"
        )
    with listen(host, port) as listener, _logging(config.server.log):
        _run(_serve(config, listener, source, key_required=everywhere))


@contextlib.contextmanager
def _logging(form: Literal["console", "json", "none"]) -> Generator[None, None, None]:
    if form == "none":
        yield
        return
    handler = log_to(None, form)
    try:
        yield
    finally:
        logging.getLogger("penstock").removeHandler(handler)


def has_keys(config: Config) -> bool:
    """Whether there is, or ever was, a key for this gateway; raises when that cannot be read."""
    return bool(config.keys) or bool(KeyStore(config.storage.path).generation())


def application(
    open_engine: Callable[[], Engine], config: Config, *, key_required: bool = False
) -> App:
    """All doors in front of one engine.

    `key_required`: nobody gets in without a key, also while there is none.
    """
    admin_key = config.server.admin_key
    gate = Gate(
        keyring_of(config, required=key_required),
        None if admin_key is None else admin_key.get_secret_value(),
    )
    metrics = PrometheusMetrics(
        models=config.models,
        targets=[target for model in config.models.values() for target in model.targets],
    )

    def opened() -> Engine:
        engine = open_engine()
        engine.hooks.subscribe(metrics)
        engine.hooks.subscribe(gate.watch)
        if config.server.log != "none":
            engine.hooks.subscribe(RequestLog())
        return engine

    return App(
        opened,
        {
            **openai_api.ROUTES,
            **responses_api.ROUTES,
            **anthropic_api.ROUTES,
            **sampling_api.ROUTES,
            **operations.routes(metrics),
        },
        max_request_bytes=config.limits.max_request_bytes,
        gate=gate,
        sockets=sampling_ws.SOCKETS,
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ConfigurationError with the remedy."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why_not(host, port, error)) from error
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use, perhaps by a Penstock that still runs; "
            f"stop that, or take another port: penstock serve --port {port + 1}"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; take one above 1023: penstock serve --port 8400"
    return f"cannot listen on {host} port {port}: {error.strerror}"


class GatewayServer(uvicorn.Server):
    """Uvicorn with our signals: the first lets running requests finish, the second cuts them."""

    def __init__(self, app: App, *, on_start: Callable[[], None] = lambda: None) -> None:
        """`on_start` is called once requests are answered."""
        # Its own log says nothing that a person needs, except what goes wrong inside it.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
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
                backlog=_BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_start = on_start

    @property
    def running_requests(self) -> int:
        """How many requests are being answered."""
        return sum(not task.done() for task in self.server_state.tasks)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        self._on_start()

    def stop(self) -> None:
        """Take no more requests and let the running ones finish; the second time, cut them."""
        if not self.should_exit:
            self.should_exit = True
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


async def _serve(
    config: Config, listener: socket.socket, source: str, *, key_required: bool
) -> None:
    engine = Engine(config, model_files=False, keep_books=True)
    screen = Screen(config, listener, source, keys=has_keys(config))
    warming: set[asyncio.Task[None]] = set()

    def started() -> None:
        screen.started()
        warming.add(asyncio.create_task(warm(engine)))

    app = application(lambda: engine, config, key_required=key_required)
    server = GatewayServer(app, on_start=started)

    def stop() -> None:
        screen.stopping(server.running_requests, GRACE_S, again=server.should_exit)
        server.stop()

    # Now, for a ledger that cannot be opened would refuse every request.
    await engine.ledger()
    try:
        with _signals(stop):
            await server.serve([listener])
    finally:
        for task in warming:
            task.cancel()
        await engine.aclose()
        screen.stopped()


async def warm(engine: Engine) -> None:
    """Do what the first request would otherwise wait for: load the model, or the HTTP client."""
    with contextlib.suppress(PenstockError):
        target = engine.targets()[0]
        configured = engine.config.providers.get(target.provider)
        kind = (configured and configured.kind) or target.provider
        if kind == "embedded" and not missing():
            request = SamplingRequest(messages=(user("Hi"),), max_tokens=1)
            # Past the pipeline, for this is nobody's request.
            await engine.provider(target.provider).generate(target.model, request)
        elif kind in KINDS and KINDS[kind].dialect is not None:
            await asyncio.to_thread(importlib.import_module, "aiohttp")


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Generator[None, None, None]:
    """Call `stop` on the event loop for every SIGINT and SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def caught(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, caught) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)
