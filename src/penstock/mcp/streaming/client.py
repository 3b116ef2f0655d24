"""The client's side: a streamed call as an async iterator, with any server and any `mcp.Client`."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, cast

from mcp import Client
from mcp_types import CallToolResult, TextContent

from penstock.contract.errors import ToolFailed
from penstock.mcp.streaming.wire import CHUNK_KEY, STREAM_KEY

_OPENING = f'{{"{CHUNK_KEY}":'
_NAMING = f'{{"{STREAM_KEY}":'
_parse = json.JSONDecoder().raw_decode
STRAGGLERS_S = 1.0
"""How long chunks may come after the result: they left before it, and are handed on beside it."""


@dataclass(frozen=True, slots=True)
class ToolChunk:
    """One piece of a tool's answer."""

    seq: int
    """Its place, from 0."""
    text: str
    """The text, or the JSON of `data`; empty for pictures and the like."""
    data: Any
    """What the tool gave, as JSON has it."""
    content: Mapping[str, Any] | None = None
    """The MCP content block, where it is more than a text."""
    total: int | None = None
    """How many chunks there are, where the server knows."""

    @property
    def media_type(self) -> str | None:
        """Of a picture, a sound or other bytes; None for text and JSON."""
        match self.content:
            case {"mimeType": str(name)} | {"resource": {"mimeType": str(name)}}:
                return name
            case _:
                return None


def stream_tool(
    client: Client,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    chunk_delay_ms: float = 0,
    timeout: float | None = None,
    buffer: int = 1024,
) -> ToolStream:
    """Call a tool and read its answer while it is made.

    ```python
    stream = stream_tool(client, "tell", {"topic": "tides"})
    async for chunk in stream:
        print(chunk.text, end="")
    print(stream.result.structured_content)
    ```

    A server that knows nothing of chunks gives one, which is the whole answer. Leaving the loop, or
    dropping the stream, cancels the call. `chunk_delay_ms` asks the server to pause between chunks;
    `timeout` limits the call, in seconds. A reader that is more than twice `buffer` chunks behind
    fails, unless client and server share a process: there the server waits.
    """
    if buffer < 1:
        raise ValueError(f"buffer is {buffer}: it must be at least 1")
    ask: dict[str, Any] = {"in": "message"}
    if chunk_delay_ms:
        ask["chunkDelayMs"] = chunk_delay_ms
    return ToolStream(_Call(client, name, arguments, timeout, ask, Inbox(buffer)))


class ToolStream:
    """The chunks of one call, in their order; the call starts when the first is asked for.

    Raises ToolFailed after the last chunk if the tool failed, and `MCPError` as the client does.
    """

    def __init__(self, call: Call) -> None:
        """Made by `stream_tool` and `watch_stream`."""
        # The call must not know this object, which is dropped when nobody reads it any more.
        self._call = call
        self._name = call.name
        self._inbox = call.inbox
        self._task: asyncio.Task[CallToolResult] | None = None
        self._result: CallToolResult | None = None
        self._ended = False

    @property
    def id(self) -> str | None:
        """The server's id of the stream, by which others watch and cancel it.

        None before the server has named it, and where the server does not know streams.
        """
        return self._inbox.stream_id

    async def open(self) -> str | None:
        """Start the call, and wait for the id of the stream, which comes before the first chunk."""
        task = self._started()
        named = asyncio.create_task(self._inbox.named.wait())
        try:
            await asyncio.wait([task, named], return_when=asyncio.FIRST_COMPLETED)
        finally:
            named.cancel()
        return self.id

    @property
    def result(self) -> CallToolResult:
        """The whole answer, once the last chunk was read; it may be an error's."""
        if self._result is None:
            raise RuntimeError(f"the call of {self._name!r} has no result yet: read it to the end")
        return self._result

    def __aiter__(self) -> ToolStream:
        """It is its own iterator, and can be read once."""
        return self

    async def __anext__(self) -> ToolChunk:
        """The next chunk; waits for it."""
        if self._ended:
            raise StopAsyncIteration
        task = self._started()
        chunk = await self._inbox.next()
        if chunk is not None:
            return chunk
        self._ended = True
        if self._inbox.overrun:
            raise ToolFailed(
                f"the reader of {self._name!r} is {2 * self._inbox.size} chunks behind, and the "
                "call was cancelled: read faster, or give stream_tool a larger buffer"
            )
        if task.cancelled():
            raise StopAsyncIteration  # it was closed while we waited here
        self._result = result = task.result()
        text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
        if result.is_error:
            raise ToolFailed(f"the tool {self._name!r} failed: {text}")
        if self._inbox.taken or _chunk_count(result) == 0:
            raise StopAsyncIteration
        return ToolChunk(0, text, _given(result, text), total=1)

    def _started(self) -> asyncio.Task[CallToolResult]:
        if self._task is None:
            self._task = asyncio.create_task(self._call.run())
            self._inbox.on_overrun = functools.partial(_cancel, self._task)
            self._task.add_done_callback(self._inbox.call_ended)
        return self._task

    async def aclose(self) -> None:
        """Cancel the call if it still runs, and return when it does not."""
        self._ended = True
        if self._task is not None:
            _give_up(self._task, self._inbox)
            await asyncio.wait([self._task])

    async def __aenter__(self) -> ToolStream:
        """For `async with`, which closes it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel what still runs."""
        await self.aclose()

    def __del__(self) -> None:
        """Cancel what still runs; whichever thread it is that collects it."""
        task = getattr(self, "_task", None)
        if task is not None:
            loop = task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_give_up, task, self._inbox)


def _give_up(task: asyncio.Task[CallToolResult], inbox: Inbox) -> None:
    inbox.close()
    _cancel(task)


def _cancel(task: asyncio.Task[CallToolResult]) -> None:
    """Cancel it once: a second time would break off telling the server of the first."""
    if not task.done() and not task.cancelling():
        task.cancel()


class Call(Protocol):
    """What fills an inbox with chunks."""

    @property
    def name(self) -> str:
        """For errors."""
        ...

    @property
    def inbox(self) -> Inbox:
        """Where the chunks go."""
        ...

    def run(self) -> Coroutine[Any, Any, CallToolResult]:
        """Until its end."""
        ...


@dataclass(frozen=True, slots=True)
class _Call:
    """The call of a tool."""

    client: Client
    name: str
    arguments: dict[str, Any] | None
    timeout: float | None
    ask: dict[str, Any]
    inbox: Inbox

    async def run(self) -> CallToolResult:
        return await self.client.call_tool(
            self.name,
            self.arguments,
            self.timeout,
            self.inbox.heard,
            meta=cast("Any", {STREAM_KEY: self.ask}),
        )


class Inbox:
    """Chunks that came and were not yet read, put in order."""

    def __init__(self, size: int) -> None:
        """For so many chunks."""
        self.size = size
        self.stream_id: str | None = None
        self.named = asyncio.Event()
        self.first = 0
        """The place of the first chunk that comes."""
        self.taken = 0
        self.overrun = False
        self.on_overrun: Callable[[], object] = lambda: None
        self._next = 0
        self._held: dict[int, ToolChunk] = {}
        self._waiting = 0
        self._closed = False
        self._expected: int | None = None
        self._call_ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def heard(self, progress: float, total: float | None, message: str | None) -> None:
        """What the client calls for each notification of progress; others than chunks are let go.

        Waits for room. In one process the server waits with it; elsewhere the client goes on
        reading, and more and more would wait here: that ends the call.
        """
        if self.stream_id is None and (about := _read(message, _NAMING)) is not None:
            self._name(about)
            return
        chunk = _read_chunk(message)
        if chunk is None or chunk.seq < self._next or chunk.seq in self._held:
            return
        if self.overrun or self._closed:
            return
        if self._is_full_for(chunk.seq) and not await self._room_came(chunk.seq):
            return
        self._held[chunk.seq] = chunk
        self._news.set()

    def _name(self, about: Mapping[str, Any]) -> None:
        """The server names the stream, and the first chunk that comes if that is not the first."""
        id, first = about.get("streamId"), about.get("first")
        if not isinstance(id, str):
            return
        self.stream_id = id
        if isinstance(first, int) and not self.taken and not self._held:
            self.first = self._next = max(first, 0)
        self.named.set()

    def _is_full_for(self, seq: int) -> bool:
        # The one that is read next must never wait behind those that come after it.
        return len(self._held) >= self.size and seq != self._next

    async def _room_came(self, seq: int) -> bool:
        if self._waiting >= self.size:
            self.overrun = True
            self._news.set()
            self.on_overrun()
            return False
        self._waiting += 1
        try:
            while self._is_full_for(seq):
                self._room.clear()
                await self._room.wait()
        finally:
            self._waiting -= 1
        return not self._closed

    def close(self) -> None:
        """Nobody reads any more; those who wait for room need not."""
        self._closed = True
        self._held.clear()
        self._room.set()

    def call_ended(self, task: asyncio.Task[CallToolResult]) -> None:
        """There is a result, or there will be none."""
        self._call_ended = True
        if not task.cancelled() and task.exception() is None:
            self._expected = _chunk_count(task.result())
        self._news.set()

    async def next(self) -> ToolChunk | None:
        """The next chunk, or None when there are no more."""
        while self._next not in self._held:
            if self.overrun and not self._held:
                return None
            if self._call_ended:
                if not await self._straggler():
                    break
                continue
            self._news.clear()
            await self._news.wait()
        if not self._held:
            return None
        # After the end of the call there may be gaps; what is there keeps its order.
        seq = self._next if self._next in self._held else min(self._held)
        self._next, self.taken = seq + 1, self.taken + 1
        self._room.set()
        return self._held.pop(seq)

    async def _straggler(self) -> bool:
        """Whether one more came: the result may overtake the last chunks on this side."""
        if not self._expected or self._next >= self._expected:
            return False
        self._news.clear()
        try:
            async with asyncio.timeout(STRAGGLERS_S):
                await self._news.wait()
        except TimeoutError:
            self._expected = None
            return False
        return True


def _chunk_count(result: CallToolResult) -> int | None:
    """How many chunks the server says it has sent, if it knows what chunks are."""
    match result.meta:
        case {"dev.penstock/stream": {"total_chunks": int(count)}}:
            return count
        case _:
            return None


def _given(result: CallToolResult, text: str) -> Any:
    """What the tool gave: servers wrap all that is no object, to have one."""
    match result.structured_content:
        case None:
            return text
        case {"result": value} as whole if len(whole) == 1:
            return value
        case data:
            return data


def _read(message: str | None, opening: str) -> dict[str, Any] | None:
    """The object under the key that a message opens with; None for any other message."""
    if message is None or not message.startswith(opening):
        return None
    try:
        whole, end = _parse(message)
    except (ValueError, RecursionError):
        return None
    (body,) = whole.values() if len(whole) == 1 else (None,)
    if end != len(message) or not isinstance(body, dict):
        return None
    return cast("dict[str, Any]", body)


def _read_chunk(message: str | None) -> ToolChunk | None:
    fields = _read(message, _OPENING)
    if fields is None:
        return None
    seq, content, total = fields.get("seq"), fields.get("content"), fields.get("total")
    if not isinstance(seq, int) or seq < 0 or "data" not in fields:
        return None
    data = fields["data"]
    text = data if isinstance(data, str) else _text_of(content)
    return ToolChunk(seq, text, data, content, total if isinstance(total, int) else None)


def _text_of(content: object) -> str:
    match content:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return ""
