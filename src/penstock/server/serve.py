"""`penstock serve`: the gateway on a socket, until somebody stops it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from penstock.config.load import load
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.gateway import Engine
from penstock.keys.store import KeyStore
from penstock.pool.supervise import Supervisor
from penstock.providers.embedded.install import missing
from penstock.providers.registry import KINDS
from penstock.server.application import application
from penstock.server.guard import is_loopback
from penstock.server.http_server import GatewayServer
from penstock.server.listening import Certificates, listen, url_of
from penstock.server.reload import Reloader
from penstock.server.screen import Screen
from penstock.telemetry.logs import log_to


def serve(
    config: Config, *, host: str, port: int, source: str, file: str | Path | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; `source` says where the configuration comes from.

    `file` is read again on SIGHUP, or when it has changed. Raises ConfigurationError when the
    address cannot be used.
    """
    everywhere = not is_loopback(host)
    if everywhere and not has_keys(config):
        raise ConfigurationError(
            f"{host} is reachable from other machines, and there is no key that this gateway could "
            "ask for: make one with `penstock keys create NAME`, or use --host 127.0.0.1"
        )
    certificates = Certificates.of(config.server)
    with listen(host, port) as listener, _logging(config.server.log):
        _run(
            _serve(
                config,
                listener,
                source,
                key_required=everywhere,
                file=None if file is None else Path(file),
                certificates=certificates,
            )
        )


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


async def _serve(
    config: Config,
    listener: socket.socket,
    source: str,
    *,
    key_required: bool,
    file: Path | None = None,
    certificates: Certificates | None = None,
) -> None:
    engine = Engine(config, model_files=False, keep_books=True)
    url = url_of(listener, tls=certificates is not None)
    screen = Screen(config, url, source, keys=has_keys(config))
    warming: set[asyncio.Task[None]] = set()

    def started() -> None:
        screen.started()
        warming.add(asyncio.create_task(warm(engine)))

    app = application(lambda: engine, config, key_required=key_required)
    server = GatewayServer(
        app,
        on_start=started,
        grace_s=config.server.grace_s,
        tls=None if certificates is None else certificates.context,
    )
    reloader = Reloader(config, file, lambda: load(file), app.change, certificates)

    def stop() -> None:
        screen.stopping(server.running_requests, config.server.grace_s, again=server.should_exit)
        server.stop()

    # Now, for a ledger that cannot be opened would refuse every request.
    await engine.ledger()
    watching = Supervisor()
    watching.add("configuration", reloader.run)
    try:
        with _signals({"SIGINT": stop, "SIGTERM": stop, "SIGHUP": reloader.tell}):
            async with watching:
                await server.serve([listener])
    finally:
        for task in warming:
            task.cancel()
        await (app.engine or engine).aclose()
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
def _signals(handlers: Mapping[str, Callable[[], None]]) -> Generator[None, None, None]:
    """Call these on the event loop for every signal of their names."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # Not every system has all of them.
    known = {name: getattr(signal, name) for name in handlers if hasattr(signal, name)}

    def caught(name: str) -> Callable[[int, FrameType | None], None]:
        return lambda _number, _frame: loop.call_soon_threadsafe(handlers[name]) and None

    before = {number: signal.signal(number, caught(name)) for name, number in known.items()}
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
