"""An event store for `MCPServer` over streamable HTTP with sessions."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import mcp_types as types
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.mcp.resumption.log import EventLimits, EventLog

_ID = re.compile(r"([0-9a-f]{32})\.(\d{1,9})")
_MOST_RUNNING = 10_000
_HEADER = MCP_SESSION_ID.encode()
_message: TypeAdapter[types.JSONRPCMessage] = TypeAdapter(types.JSONRPCMessage)


@dataclass
class _Session:
    """The session of a request. What a session's tasks send is sent in that of its first one."""

    name: str
    """Empty until the answer to `initialize` names it."""
    resumed: str = ""
    """The event behind which this request goes on."""


@dataclass
class _Stream:
    """The answer to one request, while it is not complete."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    seq: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)


_session: ContextVar[_Session | None] = ContextVar("session", default=None)


class SqliteEvents(EventStore):
    """Events of all sessions in an SQLite file, so that a client gets the rest of a lost stream.

    ```python
    events = SqliteEvents("events.db")
    app = events.over(server.streamable_http_app(event_store=events, retry_interval=500))
    ```

    `over` tells the store which session a request belongs to: the SDK numbers the streams of each
    session by the ids of its requests, and every client begins with 1.
    """

    def __init__(self, path: Path | str, limits: EventLimits | None = None) -> None:
        """Nothing is opened before the first event."""
        self._log = EventLog(Path(path), limits)
        self._running: OrderedDict[tuple[str, str], _Stream] = OrderedDict()
        self._by_id: dict[str, _Stream] = {}

    def over(self, app: ASGIApp) -> ASGIApp:
        """The application of the server, for whose sessions events are kept."""

        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers: dict[bytes, bytes] = dict(scope["headers"])
            session = _Session(headers.get(_HEADER, b"").decode("latin-1"))

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start" and not session.name:
                    given: dict[bytes, bytes] = dict(message["headers"])
                    session.name = given.get(_HEADER, b"").decode("latin-1")
                await send(message)

            before = _session.set(session)
            try:
                await app(scope, receive, named)
            finally:
                _session.reset(before)

        return wrapped

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        """Keep a message, or name the place before the first one; the id of the event."""
        session = _present()
        if session.resumed and message is None:
            return session.resumed
        if not session.name:
            return f"{uuid.uuid4().hex}.0"  # of `initialize`, which a client sends again
        key = (session.name, stream_id)
        stream = self._running.get(key)
        if stream is None or message is None:
            stream = await self._begin(key)
        if message is None:
            return f"{stream.id}.0"
        stream.seq += 1
        seq = stream.seq
        content = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        await self._log.append(stream.id, [(seq, content)])
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._forget(key)
        stream.news.set()
        stream.news = asyncio.Event()
        return f"{stream.id}.{seq}"

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send what came behind this event, and what comes, until the answer is complete.

        The SDK would pass on what comes itself, but loses what comes while it begins to.
        """
        session = _present()
        found = _ID.fullmatch(last_event_id)
        if found is None or not await self._log.want(found[1], session.name):
            return None
        id, seq = found[1], int(found[2])
        session.resumed = last_event_id
        while True:
            stream = self._by_id.get(id)
            news = None if stream is None else stream.news
            events = (await self._log.after(id, seq)).events
            for number, content in events:
                seq = number
                message = _message.validate_json(content, by_name=False)
                await send_callback(EventMessage(message, f"{id}.{number}"))
            if events:
                continue
            if news is None:
                return None
            await news.wait()

    async def aclose(self) -> None:
        """Close the file."""
        await self._log.aclose()

    async def _begin(self, key: tuple[str, str]) -> _Stream:
        self._forget(key)
        stream = _Stream()
        self._running[key] = stream
        self._by_id[stream.id] = stream
        if len(self._running) > _MOST_RUNNING:
            self._forget(next(iter(self._running)))
        await self._log.open(stream.id, key[0])
        return stream

    def _forget(self, key: tuple[str, str]) -> None:
        stream = self._running.pop(key, None)
        if stream is not None:
            self._by_id.pop(stream.id, None)
            stream.news.set()


def _present() -> _Session:
    session = _session.get()
    if session is None:
        raise RuntimeError(
            "SqliteEvents does not know the session of this request: serve "
            "`events.over(server.streamable_http_app(event_store=events))`"
        )
    return session
