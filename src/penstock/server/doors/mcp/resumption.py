"""The rest of a lost answer at `/mcp`: events get ids, and `GET` with `Last-Event-ID` goes on.

The call runs in a task of its own. When its client goes away it continues for the time that
`server.mcp_resume_s` gives, since the last time that a client asked for its events; then it is
cancelled. The file of events is shared by all workers.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.contract.errors import PenstockError
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Event, Exchange

if TYPE_CHECKING:
    from penstock.mcp.resumption.log import EventLog

LAST_EVENT = b"last-event-id"
RETRY_MS = 500
"""After what time a client should ask for the rest."""
FIRST_WITH_PRIMING = "2025-11-25"
"""Clients of earlier revisions cannot read an event without data."""
_ID = re.compile(rb"([0-9a-f]{32})\.(\d{1,9})")
_PENDING_BYTES = 1_000_000
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.25
_PING_S = 10.0
_log = logging.getLogger("penstock.server")

Serve: TypeAlias = Callable[[Exchange], Coroutine[Any, Any, None]]


class Resumption:
    """Answers whose clients may come back for the rest."""

    def __init__(self) -> None:
        """Nothing is kept before the first answer that is."""
        self._log: EventLog | None = None
        self._running: set[_Recording] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def run(
        self, exchange: Exchange, session: str, serve: Serve, path: Path, ttl_s: float
    ) -> None:
        """Let `serve` answer, and keep its events for `ttl_s` in the file at this path."""
        recording = _Recording(self._opened(path, ttl_s), session, exchange)
        recording.task = task = asyncio.create_task(self._record(recording, serve))
        self._running.add(recording)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if exchange.gone and recording.is_kept:
                recording.lost_at = time.time()
                task.add_done_callback(_report)
            else:
                task.cancel()
                await asyncio.wait({task})
            raise

    async def resume(self, exchange: Exchange, session: str, path: Path, ttl_s: float) -> None:
        """Answer `GET` with `Last-Event-ID`: the events behind it, until the answer's end."""
        await exchange.body()
        given = _ID.fullmatch(exchange.headers[LAST_EVENT])
        stream, seq = (given[1].decode(), int(given[2])) if given else ("", 0)
        log, owner = self._opened(path, ttl_s), _owner(exchange, session)
        if not await log.want(stream, owner):
            raise HttpProblem(_UNKNOWN)
        now = asyncio.get_running_loop().time
        wanted = written = now()
        pause = _FIRST_LOOK_S
        await exchange.begin_stream()
        while True:
            events, state = await log.after(stream, seq)
            if events:
                seq, pause, written = events[-1][0], _FIRST_LOOK_S, now()
                await exchange.write(b"".join(event for _, event in events))
            elif state != "running":
                await exchange.end()
                return
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_LOOK_S)
            if now() - wanted > min(1.0, ttl_s / 4):
                wanted = now()
                await log.want(stream, owner)
            if now() - written > _PING_S:
                written = now()
                await exchange.write(b": ping\n\n")

    async def aclose(self) -> None:
        """Stop what runs without its client, and close the file."""
        if self._renewing is not None:
            self._renewing.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log is not None:
            await self._log.aclose()

    def _opened(self, path: Path, ttl_s: float) -> EventLog:
        from penstock.mcp.resumption.log import EventLimits, EventLog

        limits = EventLimits(ttl_s=ttl_s)
        if self._log is None:
            self._log = EventLog(path, limits)
        self._log.limits = limits
        return self._log

    async def _record(self, recording: _Recording, serve: Serve) -> None:
        try:
            await serve(recording.inner)
        finally:
            self._running.discard(recording)
            await recording.finish()

    async def _renew(self) -> None:
        """Keep the streams of this process alive, and end calls that no client comes back for."""
        from penstock.mcp.resumption.log import RENEW_S

        while self._running and self._log is not None:
            await asyncio.sleep(min(RENEW_S, self._log.limits.ttl_s / 2))
            kept = {each.stream: each for each in self._running if each.is_kept}
            try:
                wanted = await self._log.renew(list(kept))
            except PenstockError as error:
                _log.error("events of /mcp cannot be renewed: %s", error)
                continue
            for stream, recording in kept.items():
                recording.end_unless_wanted(wanted.get(stream, 0.0), self._log.limits.ttl_s)


class _Recording:
    """Passes an answer on to its client, and keeps its events."""

    def __init__(self, log: EventLog, session: str, outer: Exchange) -> None:
        self.stream = uuid.uuid4().hex
        self.inner = outer.passed_on_by(self._send)
        self.task: asyncio.Task[None] | None = None
        self.lost_at: float | None = None
        """When the client went away; None: it is there."""
        self.is_kept = False
        self._log, self._outer = log, outer
        self._owner = _owner(outer, session)
        # A key may open as many sessions as it likes.
        self._account = outer.sees or self._owner
        self._seq = 0
        self._pending: list[tuple[int, bytes]] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    def end_unless_wanted(self, wanted: float, ttl_s: float) -> None:
        """Cancel the call when no client came back in time."""
        if (
            self.lost_at is not None
            and self.task is not None
            and time.time() - max(self.lost_at, wanted) > ttl_s
        ):
            self.task.cancel()

    async def finish(self) -> None:
        """Write what is left, and mark the end."""
        if self.is_kept:
            await self._written()
            try:
                await self._log.end(self.stream)
            except PenstockError as error:
                _log.error("the end of an answer at /mcp could not be kept: %s", error)

    async def _send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            await self._forward(event)
            if _is_stream(event):
                await self._begin()
            return
        data: bytes = event.get("body", b"")
        if self.is_kept and b"data:" in data:
            data = await self._kept(data)
        if not event.get("more_body", False) and self.is_kept:
            # The client may ask for what it missed as soon as the answer has ended.
            await self._written()
        await self._forward({**event, "body": data})

    async def _begin(self) -> None:
        try:
            await self._log.open(self.stream, self._owner, self._account)
        except PenstockError as error:
            _log.error("an answer at /mcp cannot be resumed: %s", error)
            return
        self.is_kept = True
        version = self._outer.headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        if version >= FIRST_WITH_PRIMING:
            first = f"id: {self.stream}.0\nretry: {RETRY_MS}\ndata: \n\n"
            await self._forward(
                {"type": "http.response.body", "body": first.encode(), "more_body": True}
            )

    async def _kept(self, data: bytes) -> bytes:
        """The event with its id."""
        self._seq += 1
        event = b"id: %s.%d\r\n" % (self.stream.encode(), self._seq) + data
        self._pending.append((self._seq, event))
        self._pending_bytes += len(event)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if self._pending_bytes > _PENDING_BYTES:
            await self._written()
        return event

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        try:
            while self._pending and self.is_kept:
                events, self._pending, self._pending_bytes = self._pending, [], 0
                self.is_kept = await self._log.append(self.stream, events)
        except PenstockError as error:
            self.is_kept = False
            _log.error("an answer at /mcp cannot be resumed any more: %s", error)
        finally:
            self._writing = None

    async def _forward(self, event: Event) -> None:
        if self.lost_at is None:
            await self._outer.forward_event(event)


def _is_stream(event: Event) -> bool:
    return event["status"] == 200 and any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in event["headers"]
    )


def _owner(exchange: Exchange, session: str) -> str:
    return f"{exchange.sees or ''}\n{session}"


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a call at /mcp failed after its client had gone: %s", error)


_UNKNOWN = Failure(
    404,
    "Last-Event-ID is unknown here: the answer is too old or was too large to be kept, or belongs "
    "to another session; send the call again",
    "not_found_error",
    "event_not_found",
    "Last-Event-ID",
)
