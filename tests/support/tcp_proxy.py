"""A wire that a test can hold, cut and mend: a proxy on loopback before a real server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.support.services import HOST, free_port

_MOST = 65_536


class TcpProxy:
    """Forwards bytes to a server while it is mended; its port stays the same.

    `async with` starts it mended. `hold` keeps connections and forwards nothing more, `cut` ends
    them and refuses new ones, `mend` forwards what was held and accepts again.
    """

    def __init__(self, port: int) -> None:
        """`port` is that of the server behind it."""
        self.port = free_port()
        self.accepted = 0
        """Connections so far."""
        self._behind = port
        self._flows = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def mend(self) -> None:
        """Forward."""
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port)

    def hold(self) -> None:
        """Forward nothing more."""
        self._flows.clear()

    async def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> TcpProxy:
        """Start."""
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        await self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        ends = [writer]
        try:
            to_read, to_write = await asyncio.open_connection(HOST, self._behind)
            ends.append(to_write)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, to_write))
                group.create_task(self._forward(to_read, writer))
        except asyncio.CancelledError:
            pass  # it was cut, and whoever did that waits for the end
        finally:
            for end in ends:
                end.transport.abort()
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_MOST):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
            writer.close()
