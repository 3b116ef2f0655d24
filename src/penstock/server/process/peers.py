"""How the workers of one gateway ask one another what only one of them can know or do.

Each listens on a socket in a folder that only their user may enter. A question is one line of JSON,
`[name, argument]`, and so is its answer. A socket that was removed, with its folder or alone, is
made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from penstock.server.process.worker_folder import LOOK_S, is_private

Answerer: TypeAlias = Callable[[Any], Awaitable[Any]]

PATIENCE_S = 2.0
"""How long a worker waits for another, which may be busy, or gone."""
_LONGEST = 64 * 1024 * 1024
_log = logging.getLogger("penstock.server")


class Question(StrEnum):
    """What workers ask one another, with its argument and its answer."""

    CANCEL = "cancel"
    """`[request id, key or null]`: whether a request of this key, or of any, was stopped."""
    METRICS = "metrics"
    """The counters."""
    REQUESTS = "requests"
    """A query of the admin API: the requests that fit."""
    REQUEST = "request"
    """`[request id, key or null]`: that request of this key, or of any, or null."""
    TARGETS = "targets"
    """The targets."""
    DOWN = "down"
    """`[pattern, reason, target, ...]`: mark down what it covers, such as these; the targets."""
    UP = "up"
    """`[pattern, target, ...]`: mark up what it covers, such as these; the targets."""
    HELD = "held"
    """All marks and pauses, for a worker that starts."""
    PAUSE = "pause"
    """`[target, seconds, reason]`: it has asked another worker for a pause."""
    APPROVALS = "approvals"
    """What waits for approval."""
    APPROVAL = "approval"
    """An id: what waits under it, or null."""
    DECIDE = "decide"
    """`[id, order]` of the admin API: whether it waited, and is decided so."""
    MCP_STREAM = "mcp-stream"
    """What is asked about a stream of the MCP endpoint: the answer, or null without that stream."""
    MCP_CANCEL = "mcp-cancel"
    """`[key, session, id]` of a call at the MCP door: whether it ran, and was stopped."""


class Siblings:
    """The other workers; a gateway of one process has none."""

    def __init__(self, folder: Path | None = None, index: int = 0, number: int = 1) -> None:
        """One of `number`, which meet in this folder; `async with` begins to answer."""
        self._own = index
        self._places = (
            [] if folder is None else [folder / f"worker-{each}" for each in range(number)]
        )
        self._answerers: dict[str, Answerer] = {}
        self._server: asyncio.Server | None = None
        self._bound: tuple[int, int] | None = None
        self._watcher: asyncio.Task[None] | None = None

    def answer(self, name: str, answerer: Answerer) -> None:
        """Answer questions of this name so; the argument and the answer are JSON."""
        self._answerers[name] = answerer

    @property
    def others(self) -> int:
        """How many other workers there are."""
        return max(0, len(self._places) - 1)

    async def ask(self, name: str, argument: Any = None) -> list[Any]:
        """What all others say; who is gone or does not answer in time says nothing."""
        others = [place for place in self._places if place is not self._places[self._own]]
        # A folder that was removed may have come back as another user's.
        if not others or not is_private(others[0].parent):
            return []
        answers = await asyncio.gather(*(_ask(place, name, argument) for place in others))
        return [answer for answer in answers if answer is not None]

    async def __aenter__(self) -> Siblings:
        if self._places:
            await self._listen()
            self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._server is not None:
            self._server.close()

    async def _listen(self) -> None:
        """Listen at our place; raises OSError when there is no folder."""
        place = self._places[self._own]
        if not is_private(place.parent):
            raise PermissionError(f"{place.parent} is not a folder of this user alone")
        again = self._server is not None
        if self._server is not None:
            self._server.close()
        # A worker that was killed has left its own behind.
        place.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._hear, place, limit=_LONGEST)
        self._bound = _identity(place)
        if again:
            _log.warning("%s was removed, and is made again", place)

    async def _watch(self) -> None:
        """Listen again whenever the socket is gone; the parent makes the folder again."""
        while True:
            await asyncio.sleep(LOOK_S)
            if _identity(self._places[self._own]) != self._bound:
                with contextlib.suppress(OSError):
                    await self._listen()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                name, argument = msgspec.json.decode(await reader.readline())
                answer = await self._answerers[name](argument)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
            except (OSError, ValueError):
                pass  # it has gone, or is none of us
            except Exception:  # noqa: BLE001 - who asks gets no answer, and this worker goes on
                _log.exception("a question of another worker could not be answered")


def _identity(place: Path) -> tuple[int, int] | None:
    try:
        found = place.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


async def _ask(place: Path, name: str, argument: Any) -> Any:
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(place, limit=_LONGEST)
            with contextlib.closing(writer):
                writer.write(msgspec.json.encode([name, argument]) + b"\n")
                return msgspec.json.decode(await reader.readline())
    except (OSError, ValueError, TimeoutError) as error:
        _log.debug("%s does not answer %r: %r", place.name, name, error)
        return None
