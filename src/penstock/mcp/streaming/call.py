"""One streamed call on the server: numbers its chunks and its tool's own progress, and sends them.

Chunks have whole numbers, 1, 2, 3; what the tool reports itself in between gets fractions, so that
progress increases whatever a tool counts: 1, 1.5, 1.67, 2.
"""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from contextvars import ContextVar
from typing import Any

import anyio
from mcp.server.session import ServerSession
from mcp_types import ProgressNotification, ProgressNotificationParams, ProgressToken

from penstock.mcp.streaming.chunks import Chunk
from penstock.mcp.streaming.streams import Stream
from penstock.mcp.streaming.wire import (
    CHUNK_KEY,
    PROGRESS_KEY,
    STREAM_KEY,
    AnyRequest,
    Ask,
    token_of,
)

current_call: ContextVar[CallStream | None] = ContextVar("current_call", default=None)
"""The streamed call that this code runs for."""
_json = json.JSONEncoder(separators=(",", ":")).encode


class CallStream:
    """Sends the chunks of one call, one after the other.

    Whoever sends waits until the transport has taken the chunk: a slow client slows the tool.
    """

    def __init__(self, request: AnyRequest, ask: Ask, *, first: int = 0) -> None:
        """For a request that asked for it so.

        `first` is the number of the first chunk, for one who watches a stream that has begun.
        """
        self._ask = ask
        self._token = token_of(request)
        self.id = uuid.uuid4().hex
        self.kept: Stream | None = None
        self._made_token = self._token is None and ask.by_field
        if self._made_token:
            # The field asks for chunks, token or not; the request's id then says whose they are.
            self._token = f"stream-{self.id}"
        self._request = request
        self._session = request.session
        self._claimed = False
        self._closed = False
        self._sent = first
        self._reports = 0
        self._next_at = 0.0
        self._turn = asyncio.Lock()

    @property
    def token(self) -> ProgressToken | None:
        """Under which the chunks go out."""
        return self._token

    @property
    def claimed(self) -> bool:
        """Whether a tool sends its chunks itself."""
        return self._claimed

    @property
    def sent(self) -> int:
        """How many chunks went out."""
        return self._sent

    def claim(self, request: AnyRequest) -> bool:
        """Whether the caller is the first to ask, and so the one that sends the chunks.

        `request` is the one that the tool sees. It may differ from the client's: a task outlives
        its request, and has other ways to reach the client.
        """
        if self._claimed or self._closed:
            return False
        self._claimed = True
        self.follow(request)
        return True

    def follow(self, request: AnyRequest) -> None:
        """From now on send by the ways of this request, and number what its tool reports."""
        session = request.session
        if not isinstance(session, _Numbered) or session.call_stream is not self:
            request.session = session = _numbered(session, self)
        self._request, self._session = request, session.plain

    async def open(self, about: dict[str, Any]) -> None:
        """Name the stream and its token, before the first chunk."""
        told = {"streamId": self.id, **about}
        if self._token is not None:
            told["progressToken"] = self._token
        if self._made_token:
            told["requestId"] = self._request.request_id
        async with self._turn:
            if self._ask.in_message:
                await self._notify(0, None, _json({STREAM_KEY: told}), None)
            else:
                await self._notify(0, None, None, {STREAM_KEY: told})

    async def send(self, chunk: Chunk, total: int | None = None) -> None:
        """Send the next chunk, and return when it is on its way."""
        async with self._turn:
            if self._closed:
                return
            if self._ask.delay_s:
                await self._pause()
            seq = self._sent
            message, meta = self._form(chunk, seq, total)
            await self._notify(seq + 1, total, message, meta)
            self._sent, self._reports = seq + 1, 0
            if self.kept is not None:
                self.kept.keep(chunk, total)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on what the tool reports itself, between the numbers of the chunks."""
        async with self._turn:
            if self._closed:
                return
            self._reports += 1
            own = (
                {"progress": progress} if total is None else {"progress": progress, "total": total}
            )
            number = self._sent + 1 - 1 / (self._reports + 1)
            await self._notify(number, None, message, {PROGRESS_KEY: own})

    def close(self) -> None:
        """Nothing is sent any more: the call is answered, or nobody waits for it."""
        self._closed = True

    async def _pause(self) -> None:
        await anyio.sleep(max(0.0, self._next_at - anyio.current_time()))
        self._next_at = anyio.current_time() + self._ask.delay_s

    def _form(
        self, chunk: Chunk, seq: int, total: int | None
    ) -> tuple[str | None, dict[str, Any] | None]:
        """The message, and what goes under `_meta`."""
        if self._ask.in_message:
            return _message(chunk, seq, total), None
        body: dict[str, Any] = {"seq": seq, "content": chunk.content_json()}
        if total is not None:
            body["total"] = total
        if self._ask.by_field:
            body["chunk_num"] = seq + 1
        if self._ask.by_field or chunk.is_typed:
            body["data"] = chunk.data
        if self._made_token:
            body["requestId"] = self._request.request_id
        return chunk.text, {CHUNK_KEY: body}

    async def _notify(
        self, number: float, total: float | None, message: str | None, meta: dict[str, Any] | None
    ) -> None:
        if self._token is None or (meta is None and not self._made_token):
            # The client's own token is known there, and in one process it may listen without any.
            # Nothing is made of pydantic's on this way, which is the one of `stream_tool`.
            await self._session.report_progress(number, total, message)
            return
        params = ProgressNotificationParams(
            progress_token=self._token, progress=number, total=total, message=message, _meta=meta
        )
        await self._session.send_notification(
            ProgressNotification(params=params), related_request_id=self._request.request_id
        )


class _Numbered(ServerSession):
    """A session whose tool's own progress takes its place among the chunks."""

    call_stream: CallStream
    plain: ServerSession
    """The session that this one stands for."""

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        await self.call_stream.report(progress, total, message)

    async def send_progress_notification(
        self,
        progress_token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
        related_request_id: str | None = None,
    ) -> None:
        if progress_token == self.call_stream.token:
            await self.call_stream.report(progress, total, message)
        else:
            await super().send_progress_notification(
                progress_token, progress, total, message, related_request_id
            )


def _numbered(session: ServerSession, stream: CallStream) -> _Numbered:
    """The same session in all but progress; other extensions may have put one of theirs there."""
    made = object.__new__(_numbered_kind(type(session)))
    vars(made).update(vars(session), call_stream=stream, plain=session)
    return made


@functools.cache
def _numbered_kind(kind: type[ServerSession]) -> type[_Numbered]:
    return type(f"Numbered{kind.__name__}", (_Numbered, kind), {})


def _message(chunk: Chunk, seq: int, total: int | None) -> str:
    """The chunk as JSON; most are a few letters, which cost less than an object around them."""
    more = "" if total is None else f',"total":{total}'
    if not isinstance(chunk.data, str):
        more += f',"content":{_json(chunk.content_json())}'
    return f'{{"{CHUNK_KEY}":{{"seq":{seq},"data":{_json(chunk.data)}{more}}}}}'
