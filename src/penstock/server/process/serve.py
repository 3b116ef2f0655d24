"""`penstock serve`: the gateway on a socket, until somebody stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeVar

from penstock.budget.overrides import remarks
from penstock.config.load import load_file
from penstock.config.settings import Config
from penstock.config.trust import ConfigFile, store_file
from penstock.contract.errors import ConfigurationError, PenstockError, StorageUnavailable
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.engine.build.budget import declared_budgets, is_protected
from penstock.engine.build.keys import key_store_of
from penstock.engine.build.storage import store_guards
from penstock.engine.engine import Engine
from penstock.keys.keyring import CHECK_S
from penstock.keys.rate_limit import window_of
from penstock.keys.shared_rate_limit import SharedWindows
from penstock.providers.embedded.install import missing
from penstock.providers.registry import KINDS
from penstock.runtime.background import Supervisor
from penstock.server.admin.audit import record_reload
from penstock.server.app import application, take_over
from penstock.server.auth.local_guard import is_loopback
from penstock.server.dispatch import App
from penstock.server.http.listening import Certificates, allow_open_files, listen, url_of
from penstock.server.http.server import GatewayServer
from penstock.server.ops.otlp import check
from penstock.server.process.banner import Screen
from penstock.server.process.peers import Siblings
from penstock.server.process.reload import Reloader
from penstock.server.process.workers import Post, Workers, arguments_of, share
from penstock.storage.sqlite.guard import StoreGuard, StoreGuards
from penstock.telemetry.exporters.logs import log_to

T = TypeVar("T")
_log = logging.getLogger("penstock.server")
_OPENED_S = 1.0
"""How long a worker that replaces another one waits for the ledger before it answers."""
_COLLECT_AFTER = (10_000, 20, 50)
"""How many objects are made before the collector looks for cycles, and how rarely it looks at the
older ones. A request makes some hundreds and leaves no cycles, so that with Python's own 700 a
fifth of the gateway's time went into looking at what is alive."""


def serve(
    config: Config,
    *,
    host: str,
    port: int,
    source: str,
    file: str | Path | ConfigFile | None = None,
    workers: int | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `source` says where the configuration comes from.

    `file` is read again on SIGHUP, or when it has changed. One that was found in the working folder
    must be trusted then too, where it needs it. Raises ConfigurationError when the
    address cannot be used, and SystemExit when workers cannot start.
    """
    everywhere = not is_loopback(host)
    post = Post.taken()
    stores = store_guards(durable=True, expected=None if post is None else post.store)
    if post is None:
        _check_store(stores.of(config.storage.path))
    if post is None and everywhere and not has_keys(config, stores):
        raise ConfigurationError(
            f"{host} is reachable from other machines, which requires a key: create one with "
            "`penstock keys create NAME`, or use --host 127.0.0.1"
        )
    job = Job(
        config,
        source,
        _absolute(file),
        everywhere,
        Certificates.of(config.server),
        stores,
    )
    number = config.server.workers if workers is None else workers
    with _logging(config.server.log):
        if post is None:
            # Workers have that of their parent.
            allow_open_files()
        if post is not None:
            with post.socket() as listener:
                _run(_serve(job, listener, post))
        elif number == 1:
            with listen(host, port) as listener:
                _run(_serve(job, listener))
        else:
            with listen(host, port) as listener:
                arguments = arguments_of(job.file, host, listener.getsockname()[1])
                if code := _run(_supervise(job, listener, number, arguments)):
                    raise SystemExit(code)


class Job(NamedTuple):
    """What a gateway is to serve."""

    config: Config
    source: str
    file: ConfigFile | None
    key_required: bool
    certificates: Certificates | None
    stores: StoreGuards

    @property
    def guard(self) -> StoreGuard:
        """What refuses another store than the expected one."""
        return self.stores.of(self.config.storage.path)

    def read(self) -> Config:
        """The configuration as its file says it now."""
        return Config.embedded() if self.file is None else load_file(self.file)

    @property
    def watched(self) -> tuple[Path, ...]:
        """The file, and the list of trusted files where that decides whether it is used."""
        if self.file is None:
            return ()
        trusted = store_file() if self.file.found else None
        return (self.file.path,) if trusted is None else (self.file.path, trusted)

    def screen(self, listener: socket.socket, workers: int = 1) -> Screen:
        """Where it is told."""
        url = url_of(listener, tls=self.certificates is not None)
        keys = has_keys(self.config, self.stores)
        return Screen(self.config, url, self.source, keys=keys, workers=workers)


def _absolute(file: str | Path | ConfigFile | None) -> ConfigFile | None:
    if file is None:
        return None
    named = file if isinstance(file, ConfigFile) else ConfigFile(Path(file))
    return named._replace(path=named.path.absolute())


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


def has_keys(config: Config, stores: StoreGuards) -> bool:
    """Whether there is, or ever was, a key for this gateway; raises when that cannot be read."""
    return bool(config.keys) or bool(key_store_of(config, stores).generation())


async def _serve(job: Job, listener: socket.socket, post: Post | None = None) -> None:
    """One process: the whole gateway, or one worker of it."""
    index, number = (0, 1) if post is None else (post.index, post.number)
    siblings = Siblings(None if post is None else Path(post.folder), index, number)
    shared = None if post is None else SharedWindows(post.limits)
    config = share(job.config, index, number)
    engine = Engine(config, model_files=False, keep_books=True, stores=job.stores)
    screen = job.screen(listener) if post is None else None
    warming: set[asyncio.Task[None]] = set()

    def started() -> None:
        if screen is not None:
            screen.started()
        if post is not None:
            post.tell_ready()
        _settle_memory()
        warming.add(asyncio.create_task(warm(engine)))

    app = application(
        lambda: engine,
        config,
        key_required=job.key_required,
        siblings=siblings,
        windows=shared or window_of,
        stores=job.stores,
    )
    certificates = job.certificates
    server = GatewayServer(
        app,
        on_start=started,
        grace_s=config.server.grace_s,
        tls=None if certificates is None else certificates.context,
    )
    reloader = Reloader(
        config,
        job.watched,
        lambda: share(job.read(), index, number),
        app.change,
        certificates,
        watches=post is None,
        on_read=lambda read: app.engine.hooks.happened(read) if app.engine is not None else None,
        # All workers reload; one of them records it.
        on_change=partial(_record_reload, app) if index == 0 else lambda _before, _now, _file: None,
    )

    def stop() -> None:
        if screen is not None:
            grace_s, again = config.server.grace_s, server.should_exit
            screen.stopping(server.running_requests, grace_s, again=again)
        server.stop()

    def begin_drain() -> None:
        app.draining = True

    drain = Drain(config.server.drain_s, begin_drain, stop, screen)

    await _open_ledger(engine, job, starting=post is None)
    watching = Supervisor()
    watching.add("configuration", reloader.run)
    try:
        # The parent of workers decides when they stop, and tells them of the drain before.
        handlers = {"SIGINT": drain.stop, "SIGHUP": reloader.tell, "SIGUSR1": begin_drain}
        handlers["SIGTERM"] = drain.drain if post is None else stop
        with _signals(handlers):
            if post is not None:
                post.on_orphaned(stop)
            async with siblings, watching:
                await take_over(siblings, engine)
                await server.serve([listener])
    finally:
        for task in warming:
            task.cancel()
        await (app.engine or engine).aclose()
        if shared is not None:
            shared.close()
        if screen is not None:
            screen.stopped()


async def _supervise(
    job: Job, listener: socket.socket, number: int, arguments: Iterable[str]
) -> int:
    """The parent of several workers; the exit code."""
    workers = Workers(number, listener, arguments, job.guard.handed_over)
    screen = job.screen(listener, number)

    async def pass_on(_: Config) -> None:
        workers.signal(signal.SIGHUP)

    reloader = Reloader(
        job.config,
        job.watched,
        job.read,
        pass_on,
        job.certificates,
        on_renewed=lambda: workers.signal(signal.SIGHUP),
    )

    def stop() -> None:
        screen.stopping(None, job.config.server.grace_s, again=workers.stopping)
        workers.stop()

    drain = Drain(job.config.server.drain_s, lambda: workers.signal(signal.SIGUSR1), stop, screen)
    # Once, so that what is wrong with it is said once.
    check(job.config)
    engine = Engine(job.config, keep_books=True, stores=job.stores)
    try:
        await _open_ledger(engine, job, starting=True)
    finally:
        await engine.aclose()
    watching = Supervisor()
    watching.add("configuration", reloader.run)
    watching.add("store", partial(_follow, job.guard))
    with _signals({"SIGINT": drain.stop, "SIGTERM": drain.drain, "SIGHUP": reloader.tell}):
        async with watching:
            code = await workers.run(screen.started)
    if not code:
        screen.stopped()
    return code


def _record_reload(app: App, before: Config, now: Config, file: str) -> None:
    if app.engine is not None:
        record_reload(app.engine, before, now, file)


class Drain:
    """The time between SIGTERM and the end of the port, in which load balancers look away."""

    def __init__(
        self,
        drain_s: float,
        begin: Callable[[], object],
        stop: Callable[[], object],
        screen: Screen | None,
    ) -> None:
        """`begin` makes the gateway unready, and `stop` follows `drain_s` seconds later."""
        self._drain_s = drain_s
        self._begin = begin
        self._stop = stop
        self._screen = screen
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Stop now; again, cut what still runs."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop()

    def drain(self) -> None:
        """Stop after the drain; again, stop now."""
        if self._timer is not None or not self._drain_s:
            self.stop()
            return
        if self._screen is not None:
            self._screen.draining(self._drain_s)
        self._begin()
        self._timer = asyncio.get_running_loop().call_later(self._drain_s, self._stop)


async def _open_ledger(engine: Engine, job: Job, *, starting: bool) -> None:
    """Open it now, for without it every request would be refused.

    A worker that replaces another one starts also while the store is missing or locked, so that
    callers get an answer.
    """
    if is_protected(job.config):
        job.guard.protect()
    try:
        async with asyncio.timeout(None if starting else _OPENED_S):
            await engine.ledger()
        await asyncio.to_thread(job.guard.remember)
        if starting and engine.keeps_ledger:
            await _say_what_is_overridden(engine)
    except (StorageUnavailable, TimeoutError):
        if starting:
            raise


async def _say_what_is_overridden(engine: Engine) -> None:
    config = engine.config
    declared = declared_budgets(config)
    for remark in remarks(await engine.budgets(), declared, config.source or "this gateway"):
        _log.warning("%s", remark)


def _check_store(guard: StoreGuard) -> None:
    """Raise ConfigurationError when the store is not the one that the gateway had before."""
    try:
        guard.verify()
    except StorageUnavailable as error:
        raise ConfigurationError(str(error)) from error


async def _follow(guard: StoreGuard) -> None:
    """Keep what the workers have written of the store, for those that replace them."""
    while True:
        await asyncio.sleep(CHECK_S)
        await asyncio.to_thread(guard.handed_over)


def _settle_memory() -> None:
    """What has been made by now stays to the end: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


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
            await asyncio.to_thread(importlib.import_module, "penstock.providers.http.client")


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


def _run(main: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.run(main)
    return uvloop.run(main)
