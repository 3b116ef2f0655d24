"""Several processes behind one port, and the one that looks after them.

The parent opens the socket and serves nothing itself. Its workers inherit that socket, so that a
connection waits for any of them and none is lost with one. A worker that dies is replaced; one that
cannot even start stops the gateway, with its own words.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

import msgspec

from penstock.config.settings import Config
from penstock.config.trust import ConfigFile
from penstock.runtime.background import Backoff
from penstock.runtime.child_processes import start_worker
from penstock.server.process.worker_folder import LOOK_S, WorkerFolder, limits_file, worker_folder
from penstock.storage.sqlite.record import StoreRecord

_VARIABLE = "PENSTOCK_WORKER"
READY = b"ready\n"
_SETTLED_S = 10.0
"""A worker that has lived so long is replaced without a pause."""
logger = logging.getLogger("penstock.server")


class Post(msgspec.Struct, frozen=True):
    """What a worker gets from its parent: descriptors, and its place among the others."""

    index: int
    number: int
    folder: str
    listener: int
    ready: int
    """Where it says that it answers."""
    leash: int
    """What ends when the parent does."""
    limits: int
    """The file in which all workers count."""
    store: StoreRecord | None = None
    """What the parent knows of the store."""

    @staticmethod
    def taken() -> Post | None:
        """That of this process; None: nobody has made it a worker."""
        given = os.environ.pop(_VARIABLE, None)
        return None if given is None else msgspec.json.decode(given, type=Post)

    def socket(self) -> socket.socket:
        """The gateway's listener."""
        return socket.socket(fileno=self.listener)

    def tell_ready(self) -> None:
        """Requests are answered."""
        with contextlib.suppress(OSError):
            os.write(self.ready, READY)

    def on_orphaned(self, call: Callable[[], None]) -> None:
        """Call this when there is no parent any more."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(self.leash)
            call()

        loop.add_reader(self.leash, gone)


def share(config: Config, index: int, number: int) -> Config:
    """The configuration of one worker of several: its part of what is counted by each alone."""
    if number == 1 or not any(each.max_concurrent for each in config.providers.values()):
        return config
    providers = {
        name: each.model_copy(update={"max_concurrent": _part(each.max_concurrent, index, number)})
        for name, each in config.providers.items()
    }
    return config.model_copy(update={"providers": providers})


def _part(whole: int | None, index: int, number: int) -> int | None:
    if whole is None:
        return None
    # A worker with no place at all could answer nothing.
    return max(1, whole // number + (index < whole % number))


class _Shared(NamedTuple):
    """What all workers of a gateway use."""

    folder: WorkerFolder
    limits: int


class Workers:
    """The worker processes of one gateway."""

    def __init__(
        self,
        number: int,
        listener: socket.socket,
        arguments: Iterable[str],
        store: Callable[[], StoreRecord | None] = lambda: None,
    ) -> None:
        """`arguments` are those of `penstock serve`; `store` is what a worker is to expect."""
        self._store = store
        self._number = number
        self._listener = listener
        self._arguments = ("serve", *arguments)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()
        self._all_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._code = 0

    @property
    def stopping(self) -> bool:
        """Whether they were told to stop."""
        return self._stopping.is_set()

    async def run(self, on_start: Callable[[], None]) -> int:
        """Until they are told to stop; the exit code. `on_start` is called when all answer."""
        with worker_folder() as folder, _opened(limits_file()) as limits:
            shared = _Shared(folder, limits)
            keepers = [
                asyncio.create_task(self._keep(index, shared)) for index in range(self._number)
            ]
            started = asyncio.create_task(self._all_ready.wait())
            watcher = asyncio.create_task(_watch(folder))
            try:
                await asyncio.wait({started, *keepers}, return_when=asyncio.FIRST_COMPLETED)
                if started.done():
                    on_start()
                else:
                    self.stop()
                await asyncio.gather(*keepers)
            finally:
                for task in (started, watcher, *keepers):
                    task.cancel()
        return self._code

    def stop(self) -> None:
        """Let what runs finish; the second time, cut it."""
        self._stopping.set()
        # Its workers close theirs: while anybody has it open, who comes would wait in vain.
        self._listener.close()
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Tell all of them."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, index: int, shared: _Shared) -> None:
        """Have a worker at this place, one after the other."""
        loop, backoff, quick = asyncio.get_running_loop(), Backoff(), 0
        while not self._stopping.is_set():
            began = loop.time()
            code = await self._one(index, shared)
            if self._stopping.is_set():
                return
            if index not in self._ready:
                # It has said why, and the next would say the same.
                self._code = code
                return
            reason = f"signal {-code}" if code < 0 else f"exit code {code}"
            logger.warning("worker %d has ended (%s): another takes its place", index, reason)
            quick = 0 if loop.time() - began > _SETTLED_S else quick + 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.delay(quick, 0.0)):
                    await self._stopping.wait()

    async def _one(self, index: int, shared: _Shared) -> int:
        """One process from its start to its end; its exit code."""
        ready, tells_ready = os.pipe()
        leash, holds_leash = os.pipe()
        listener, limits = self._listener.fileno(), shared.limits
        folder, expected = str(shared.folder.path), self._store()
        post = Post(index, self._number, folder, listener, tells_ready, leash, limits, expected)
        try:
            try:
                process = await start_worker(
                    self._arguments,
                    {_VARIABLE: msgspec.json.encode(post).decode()},
                    (listener, tells_ready, leash, limits, shared.folder.lock),
                )
            finally:
                os.close(tells_ready)
                os.close(leash)
            self._running[index] = process
            if self._stopping.is_set():
                process.terminate()
            if await _read(ready) == READY:
                self._ready.add(index)
                if len(self._ready) == self._number:
                    self._all_ready.set()
            return await process.wait()
        finally:
            # If this is cancelled while the worker runs, the worker ends with its leash.
            os.close(holds_leash)
            self._running.pop(index, None)


async def _watch(folder: WorkerFolder) -> None:
    """Restore the folder whenever something has removed it."""
    while True:
        await asyncio.sleep(LOOK_S)
        folder.restore()


@contextlib.contextmanager
def _opened(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _read(descriptor: int) -> bytes:
    """What is written into a pipe before its other end is closed, or its first line."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        return await reader.readline()
    finally:
        transport.close()


def arguments_of(file: ConfigFile | None, host: str, port: int) -> Iterator[str]:
    """The arguments of `serve` for a worker."""
    if file is not None:
        yield from ("--config", str(file.path))
        if file.found:
            yield "--found"
    yield from ("--host", host, "--port", str(port), "--workers", "1")
