"""Calls of legacy clients while they run, so that `notifications/cancelled` finds them.

A modern client cancels by closing the answer. A legacy one sends a message, which may reach another
process than the call did; and its requests are numbered from 1, like everybody's. So each is told
an `Mcp-Session-Id` when it comes. That is a name and no state: nobody has to know it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

import msgspec

from penstock.keys.policy import MessageKind
from penstock.server.exchange import Exchange
from penstock.server.process.peers import Question, Siblings

SESSION = b"mcp-session-id"
_STREAMS = b"streams-"
_CANCELLED = "notifications/cancelled"
_INITIALIZE = "initialize"
_CANCELS = frozenset({_CANCELLED, "tasks/cancel", "dev.penstock/streams/cancel"})
_REQUESTS = frozenset({"tools/call", "prompts/get"})
"""What asks a model or a tool. All other methods look, wait, list or cancel."""

Name = tuple[str, str, str]
"""The caller's key, its session, and the JSON of the request's id."""


class _Message(msgspec.Struct):
    method: str = ""
    id: str | int | float | None = None
    params: Any = None


_UNREADABLE = _Message(method="tools/call")
"""The SDK may read more than we do: it counts as the most expensive message that it could be."""


class Calls:
    """Those that run in this process, with the way to those of the others."""

    def __init__(self, siblings: Siblings) -> None:
        """From now on it answers the other workers, too."""
        self._siblings = siblings
        self._running: dict[Name, asyncio.Task[None]] = {}

        async def cancel(name: list[str]) -> bool:
            return self._cancel((name[0], name[1], name[2]))

        siblings.answer(Question.MCP_CANCEL, cancel)

    async def serve(self, exchange: Exchange, body: bytes, work: Coroutine[Any, Any, None]) -> None:
        """Let the work answer this request; one that its client cancels ends without an answer."""
        message = _read(body)
        session = exchange.headers.get(SESSION, b"").decode("latin-1")
        if not session or message.method == _INITIALIZE:
            await work
            return
        if message.method == _CANCELLED and isinstance(message.params, dict):
            await self._stop(_name(exchange, session, message.params.get("requestId")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if message.id is None:
            await work
            return
        name = _name(exchange, session, message.id)
        task = asyncio.create_task(work)
        self._running[name] = task
        try:
            await asyncio.wait({task})
            if not task.cancelled():
                await task
            elif exchange.started and not exchange.ended:
                await exchange.end()
            elif not exchange.started:
                await exchange.reply_nothing()
        finally:
            if self._running.get(name) is task:
                del self._running[name]
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _stop(self, name: Name) -> None:
        if not self._cancel(name):
            await self._siblings.ask(Question.MCP_CANCEL, name)

    def _cancel(self, name: Name) -> bool:
        task = self._running.get(name)
        return task is not None and task.cancel()


def new_session(body: bytes) -> bytes | None:
    """The name for a client that starts a session with this message; None for other messages.

    The name keeps the one declared capability that later messages need, as no process keeps it.
    """
    message = _read(body)
    if message.method != _INITIALIZE:
        return None
    name = secrets.token_hex(16).encode()
    return _STREAMS + name if _declares_streaming(message.params) else name


def streams(session: bytes) -> bool:
    """Whether the client of this session declared that it reads chunks."""
    return session.startswith(_STREAMS)


def _declares_streaming(params: Any) -> bool:
    match params:
        case {"capabilities": {"experimental": {"dev.penstock/streaming": _}}}:
            return True
        case {"capabilities": {"extensions": {"dev.penstock/streaming": _}}}:
            return True
        case _:
            return False


def is_call(body: bytes) -> bool:
    """Whether this message asks a model or a tool, and gets an answer."""
    message = _read(body)
    return message.method in _REQUESTS and message.id is not None


def kind_of(body: bytes) -> MessageKind | None:
    """What this message counts as; None: a request of its key."""
    method = _read(body).method
    if method in _REQUESTS:
        return None
    return "cancels" if method in _CANCELS else "messages"


def _read(body: bytes) -> _Message:
    """The message as far as it matters here; the SDK answers what is none."""
    try:
        return msgspec.json.decode(body, type=_Message)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _name(exchange: Exchange, session: str, identifier: object) -> Name:
    # A number and its text are two ids.
    return exchange.sees or "", session, msgspec.json.encode(identifier).decode()
