"""The streams of a server by their ids: looked up, watched and cancelled, each by its owner."""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import anyio
from mcp.server.mcpserver.exceptions import ToolError

from penstock.mcp.streaming.chunks import Chunk

Status: TypeAlias = Literal["running", "completed", "failed", "cancelled"]

KEPT_BYTES = 256 * 1024
"""The chunks that are kept of one stream, the newest, for those who begin to watch later."""
KEPT_ENDED = 256
"""How many streams are kept after their end, by all owners together."""
_OVERHEAD = 200
"""What a kept chunk takes beside its JSON, about."""


class Sent(NamedTuple):
    """A chunk with its place."""

    seq: int
    chunk: Chunk
    total: int | None


@dataclass(frozen=True, slots=True)
class StreamState:
    """What is known of a stream."""

    id: str
    tool: str
    status: Status
    sent: int
    """How many chunks went out."""
    first_kept: int
    """The first chunk that can still be watched; `sent` when none can."""
    token: str | int | None = None
    """The progress token of the call."""


class Stream:
    """One streamed call as others see it."""

    def __init__(self, id: str, tool: str, owner: str, token: str | int | None) -> None:
        """It runs."""
        self.id = id
        self.tool = tool
        self.owner = owner
        self.token = token
        self.status: Status = "running"
        self.outcome: Status = "completed"
        """How its tool ended, where the call was answered with a task before."""
        self.detached = False
        """Whether the call was answered with a task: the tool's end is the stream's."""
        self._sent = 0
        self._kept: deque[Sent] = deque()
        self._size = 0
        self._scopes: list[anyio.CancelScope] = []
        self._news: asyncio.Event | None = None
        self._cancelled = False

    @property
    def state(self) -> StreamState:
        """How it is now."""
        first = self._kept[0].seq if self._kept else self._sent
        return StreamState(self.id, self.tool, self.status, self._sent, first, self.token)

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._cancelled

    def keep(self, chunk: Chunk, total: int | None) -> None:
        """One more went out."""
        self._kept.append(Sent(self._sent, chunk, total))
        self._sent += 1
        self._size += chunk.size + _OVERHEAD
        while self._size > KEPT_BYTES:
            self._size -= self._kept.popleft().chunk.size + _OVERHEAD
        self._tell()

    def end(self, status: Status) -> None:
        """Nothing more comes; the first to say so is right."""
        if self.status == "running":
            self.status = status
            self._tell()

    def cancel(self) -> bool:
        """Stop the call; whether it still ran."""
        if self.status != "running":
            return False
        self._cancelled = True
        for scope in self._scopes:
            scope.cancel()
        return True

    @contextmanager
    def scope(self) -> Generator[anyio.CancelScope]:
        """What `cancel` ends."""
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            if self._cancelled:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.remove(scope)

    def after(self, seq: int) -> list[Sent]:
        """The kept chunks from this place on."""
        if seq >= self._sent:
            return []
        return [sent for sent in self._kept if sent.seq >= seq]

    async def look(self, seq: int, wait_s: float) -> list[Sent]:
        """The same; when there are none yet, wait so long for one or for the end."""
        if seq >= self._sent and self.status == "running":
            if self._news is None:
                self._news = asyncio.Event()
            with anyio.move_on_after(wait_s):
                await self._news.wait()
        return self.after(seq)

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None


@contextmanager
def cancellable(stream: Stream) -> Generator[None]:
    """Raise ToolError in place of what runs inside, once the stream is cancelled by its id."""
    outcome: Status = "failed"
    try:
        with stream.scope() as scope:
            yield
            outcome = "completed"
    finally:
        stream.outcome = "cancelled" if stream.cancelled else outcome
        if stream.detached:
            stream.end(stream.outcome)
    if scope.cancelled_caught:
        raise ToolError(f"the stream {stream.id} was cancelled by request")


class Streams:
    """All streams of a server: those that run, and the last that ended."""

    def __init__(self) -> None:
        """None so far."""
        self._running: dict[str, Stream] = {}
        self._ended: OrderedDict[str, Stream] = OrderedDict()

    def add(self, stream: Stream, call: object) -> None:
        """Keep it; it has ended at the latest when `call` is collected."""
        self._running[stream.id] = stream
        weakref.finalize(call, self._collected, stream).atexit = False

    def end(self, stream: Stream, status: Status) -> None:
        """It has ended so, if it has not ended before."""
        stream.end(status)
        if self._running.pop(stream.id, None) is not None:
            self._ended[stream.id] = stream
            while len(self._ended) > KEPT_ENDED:
                self._ended.popitem(last=False)

    def _collected(self, stream: Stream) -> None:
        self.end(stream, stream.outcome)

    def forget(self, stream: Stream) -> None:
        """It was no stream: the call has not been answered yet."""
        self._running.pop(stream.id, None)

    def find(self, id: str, owner: str | None = None) -> Stream | None:
        """The stream with this id; with an owner only if it is that one's."""
        stream = self._running.get(id) or self._ended.get(id)
        if stream is None or (owner is not None and stream.owner != owner):
            return None
        return stream

    def get(self, id: str) -> StreamState | None:
        """What is known of the stream with this id; None without such a stream."""
        stream = self.find(id)
        return None if stream is None else stream.state

    def running(self) -> list[StreamState]:
        """All that run."""
        return [stream.state for stream in self._running.values()]

    def cancel(self, id: str) -> bool:
        """Stop the call of this stream; whether there was one that ran."""
        stream = self.find(id)
        return stream is not None and stream.cancel()

    async def watch(self, id: str) -> AsyncIterator[Any]:
        """The data of its chunks, from the first that is kept until its end."""
        stream = self.find(id)
        seq = 0
        while stream is not None:
            for sent in await stream.look(seq, 3600):
                seq = sent.seq + 1
                yield sent.chunk.data
            if stream.status != "running" and not stream.after(seq):
                return
