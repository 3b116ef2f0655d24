"""Runs llama.cpp in a thread of its own and carries its output into any event loop.

There is one runtime a process for each model file, whatever number of providers and event loops
come and go: the model is loaded by the first call and stays until nobody has used it for a while.
Its single thread serves the calls strictly in the order of their arrival.

A process that is forked later loads a model of its own. That suits `multiprocessing`, but not a
bare `os.fork`: llama.cpp's exit handlers would wait for threads that the child does not have.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib
import os
import queue
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from penstock.contract.errors import ConfigurationError, RequestCancelled
from penstock.providers.embedded.count import count_tokens
from penstock.providers.embedded.files import (
    BUNDLED_MODULE,
    is_bundled,
    not_installed,
    verify,
)

LINGER_S = 60.0
"""How long a model stays in memory after the last provider that used it was closed."""

_EXIT_PATIENCE_S = 10.0
_PROMPT_STEP = 64
"""Tokens of a prompt that are read between two chances to cancel: about 0.4 s of one core."""
_PROMPT_CACHE_MIB = 128
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class ChatServer(Protocol):
    """The part of xllamacpp's server that is used here."""

    def handle_chat_completions(self, body: str, on_chunk: Callable[[str], bool], /) -> object:
        """Block until the answer is complete, or until `on_chunk` returns True."""
        ...

    def count_tokens(self, body: str, /) -> int:
        """The tokens of a chat completion's prompt."""
        ...


class _LlamaServer:
    """xllamacpp's server, and the port that it opens for what its own methods do not offer."""

    def __init__(self, server: Any, key: str) -> None:
        self.handle_chat_completions = server.handle_chat_completions
        self._server = server
        self._key = key

    def count_tokens(self, body: str, /) -> int:
        return count_tokens(self._server.listening_address, self._key, body)


def load(path: Path, *, context: int, threads: int) -> ChatServer:
    """Load a model; the only place that touches the untyped library.

    The bundled file must have its pinned hash.
    """
    if is_bundled(path):
        verify(BUNDLED_MODULE)
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise not_installed() from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _PROMPT_STEP
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.use_jinja = True
    params.warmup = False
    params.verbosity = -1
    # The library always opens a port on loopback as well; a key that nobody else knows closes it.
    key = secrets.token_hex(32)
    params.api_keys = [key]
    params.endpoint_slots = False
    params.ui = False
    params.n_threads_http = 1
    try:
        return _LlamaServer(xllamacpp.Server(params), key)
    except RuntimeError as error:
        raise ConfigurationError(
            f"llama.cpp cannot load {path}: the file is damaged, too large for this machine's "
            "memory, or of a kind that this version does not know"
        ) from error


def default_threads() -> int:
    """All CPUs that this process may use but one: llama.cpp collapses when it shares them."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cpus or 1, _cgroup_cpus()) - 1)


def _cgroup_cpus() -> int:
    """The CPUs that a container's quota amounts to."""
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return os.cpu_count() or 1


class Call:
    """One request on its way through the thread; made, read and cancelled on one event loop."""

    def __init__(self, body: str, loop: asyncio.AbstractEventLoop, *, counts: bool = False) -> None:
        """Belongs to `loop` until it ends."""
        self.body = body
        self.counts = counts
        self.cancelled = False
        self._loop = loop
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._chunks: list[str] = []
        self._notified = False
        self._ended = False
        self._error: Exception | None = None

    async def next(self) -> list[str] | None:
        """All chunks that arrived since the last call, None at the end; raises what went wrong."""
        await self._ready.wait()
        with self._lock:
            chunks, self._chunks = self._chunks, []
            if not self._ended:
                self._notified = False
                self._ready.clear()
        if chunks:
            return chunks
        if self._error is not None:
            raise self._error
        return None

    def cancel(self) -> None:
        """Stop within one chunk; a call that still waits for its turn never starts."""
        self.cancelled = True

    @property
    def abandoned(self) -> bool:
        """Nobody reads it any more."""
        return self.cancelled or self._loop.is_closed()

    def deliver(self, chunk: str) -> bool:
        """Take a chunk over from the thread; True asks it to stop."""
        if self.abandoned:
            return True
        with self._lock:
            self._chunks.append(chunk)
            sleeping, self._notified = not self._notified, True
        self._wake(sleeping)
        return False

    def end(self, error: Exception | None = None) -> None:
        """Nothing follows."""
        with self._lock:
            self._ended = True
            self._error = error
            sleeping, self._notified = not self._notified, True
        self._wake(sleeping)

    def _wake(self, sleeping: bool) -> None:
        """Call the reader once for all that arrives before it gets to run."""
        if not sleeping:
            return
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop was closed between the check and now
            self.cancelled = True


class LlamaRuntime:
    """A model, the thread that runs it, and the queue in front of it."""

    def __init__(
        self, load: Callable[[], ChatServer], *, name: str = "", linger_s: float = LINGER_S
    ) -> None:
        """Cheap: neither the thread nor the model exists before the first call."""
        self._load = load
        self._name = name
        self._linger_s = linger_s
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._users = 0
        self._stopping = False
        self.loaded = False

    def retain(self) -> None:
        """One more user: the model stays loaded until all have released it."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """One user less; after the last one the model goes when it has been idle for a while."""
        with self._lock:
            self._users -= 1
        self._queue.put(None)

    def submit(self, body: str, *, counts: bool = False) -> Call:
        """Queue a chat completion; its chunks come to the running event loop.

        One that `counts` is not answered: its only chunk is the number of its prompt's tokens.
        """
        call = Call(body, asyncio.get_running_loop(), counts=counts)
        with self._lock:
            if self._stopping:
                raise RequestCancelled("the interpreter is shutting down")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name=f"penstock-{self._name}", daemon=True
                )
                self._thread.start()
                # llama.cpp crashes when the interpreter goes away under its callback.
                atexit.register(self.shutdown)
            self._queue.put(call)
        return call

    def shutdown(self) -> None:
        """Stop the generation that runs, drop the queue and the model, and end the thread."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        self._queue.put(None)
        if thread is not None:
            thread.join(_EXIT_PATIENCE_S)

    def _serve(self) -> None:
        """The thread: load when there is work, unload when there are neither work nor users."""
        # The server is a local, not an attribute: llama.cpp's threads must end in this thread, and
        # a forked child, which has none of them, must never try to end them.
        server: ChatServer | None = None
        while not self._stopping:
            idle = server is not None and self._users == 0
            try:
                call = self._queue.get(timeout=self._linger_s if idle else None)
            except queue.Empty:
                server = None
                self.loaded = False
                continue
            if call is not None and not call.abandoned:
                try:
                    if server is None:
                        server = self._load()
                        self.loaded = True
                    if call.counts:
                        call.deliver(str(server.count_tokens(call.body)))
                    elif not call.abandoned:
                        server.handle_chat_completions(call.body, self._listener(call))
                    call.end()
                except Exception as error:  # noqa: BLE001 - the caller waits on another thread
                    # A traceback would keep this frame, and with it the server, alive.
                    call.end(error.with_traceback(None))
            # Waiting for the next call must not keep the last one's event loop alive.
            del call

    def _listener(self, call: Call) -> Callable[[str], bool]:
        return lambda chunk: call.deliver(chunk) or self._stopping


_runtimes: dict[tuple[int, Path, int, int], LlamaRuntime] = {}
_runtimes_lock = threading.Lock()


def shared(path: Path, *, context: int, threads: int | None) -> LlamaRuntime:
    """The process's runtime for this file, retained for the caller, who releases it."""
    threads = threads or default_threads()
    # The process is part of the key: a forked child cannot use its parent's threads.
    key = (os.getpid(), path, context, threads)
    with _runtimes_lock:
        runtime = _runtimes.get(key)
        if runtime is None:
            loader = functools.partial(load, path, context=context, threads=threads)
            runtime = _runtimes[key] = LlamaRuntime(loader, name=path.stem)
        runtime.retain()
        return runtime
