"""One event loop in a background thread, for code that has no event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_STOP_S = 10.0


class Portal:
    """Runs coroutines in a thread; the program may end while it is open."""

    def __init__(self) -> None:
        """Starts the thread."""
        self._stopped = asyncio.Event()
        started: threading.Event = threading.Event()
        self._thread = threading.Thread(
            target=asyncio.run, args=[self._serve(started)], name="penstock-sync", daemon=True
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread.start()
        started.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; an interrupt of the calling thread cancels it."""
        if threading.current_thread() is self._thread or self._loop is None:
            coroutine.close()
            raise RuntimeError(
                "penstock.sync was called by a coroutine that it runs, which would wait for itself:"
                " await the asynchronous API there"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs and end the thread."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(_STOP_S)

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        started.set()
        await self._stopped.wait()


class _Process:
    """The portal of this process, and what must end before it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: Portal | None = None
        self.at_exit: list[Callable[[], None]] = []
        self.inherited: list[Portal] = []

    def forget(self) -> None:
        """In the child of a fork: the thread is gone, and its loop must never be touched.

        The loop is kept: closing it here would take the sockets of the parent out of the selector
        that both share.
        """
        if self.portal is not None:
            self.inherited.append(self.portal)
        self.portal = None
        self.lock = threading.Lock()

    def end(self) -> None:
        """At the end of the program."""
        for close in self.at_exit:
            close()
        if self.portal is not None:
            self.portal.stop()


_PROCESS = _Process()
# Before the threads of executors end, which closing a ledger needs: `atexit` comes after them, and
# what is registered last is called first, so their module must be loaded already.
importlib.import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_PROCESS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forget)


def portal() -> Portal:
    """The portal of this process; the first call starts it."""
    with _PROCESS.lock:
        if _PROCESS.portal is None:
            _PROCESS.portal = Portal()
        return _PROCESS.portal


def at_exit(close: Callable[[], None]) -> None:
    """Call this before the portal stops at the end of the program."""
    _PROCESS.at_exit.append(close)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run any coroutine in the background event loop and return its result.

    Coroutines of one program share that loop, whichever thread calls.
    """
    return portal().run(coroutine)
