"""One HTTP request and its answer, as a door sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.contract.checks.lengths import NAME, TRACE_STATE
from penstock.contract.errors import ContentRejected, ModelNotFound, shown
from penstock.contract.events import Cancelled, Error, StreamEvent
from penstock.contract.requests import Caller
from penstock.pipeline.registry import new_request_id
from penstock.pipeline.scope import NOBODY
from penstock.server.errors import Failure, HttpProblem
from penstock.server.http.large_bodies import check_values, read_large
from penstock.streaming.handle import StreamHandle

if TYPE_CHECKING:
    from penstock.server.auth.gate import Access

T = TypeVar("T")
Scope: TypeAlias = dict[str, Any]
Event: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

ON_LOST = "penstock.on_lost"
"""Where in the scope of a request are the functions to call when its client goes away: the way of
ASGI is a task for each request that waits for nothing else."""
WATCH_AFTER_S = 0.05
"""Under other servers: how long a request runs before a task looks whether its client is there."""
_DRAIN_FACTOR = 4
"""A body announced as at most this many times too long is read to its end and thrown away, so that
its sender lives to read the answer; the connection of a longer one is closed."""

REQUEST_ID = b"x-request-id"
_STREAM: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientGone(Exception):
    """The client closed its connection before its request was whole."""


class Exchange:
    """Reads the request, writes the answer, and notices when the client goes away.

    From the moment the body is read, a client that goes away cancels the task that serves it, and
    with it whatever the engine does for it.
    """

    __slots__ = (
        "_body",
        "_client",
        "_limit",
        "_max_values",
        "_receive",
        "_scope",
        "_send",
        "_task",
        "_timer",
        "_watcher",
        "access",
        "cors",
        "ended",
        "gone",
        "headers",
        "method",
        "path",
        "request_id",
        "started",
        "whole",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limit: int,
        max_values: int | None = None,
    ) -> None:
        """`limit` is the size of the largest body that is read, `max_values` what it may hold."""
        self._scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.request_id: str | None = None
        """The id that the door has taken from the caller, for answers that the engine has no part
        in; without one they get a new id."""
        self._client: tuple[str, int] | None = scope.get("client")
        self.access: Access | None = None
        """What the caller may do, once that is known."""
        self.cors: Iterable[Header] = ()
        """What the answer says to a browser."""
        self.started = False
        """Whether the answer has begun, so that a failure can only be told inside it."""
        self.ended = False
        """Whether the answer is complete, so that nothing more can be told."""
        self.gone = False
        """Whether the client has gone and the task was cancelled for it."""
        self.whole = True
        """Whether the answer is one to keep: False for a stream that ended in an error."""
        self._body: bytes | None = None
        self._receive = receive
        self._send = send
        self._limit = limit
        self._max_values = max_values
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def caller(self) -> Caller | None:
        """Where the request comes from, as far as its key and its headers tell."""
        return caller_of(self.headers, self.access)

    @property
    def raw_path(self) -> bytes:
        """The path as it was sent, so that a `%2F` in a name is not one of its slashes."""
        return self._scope.get("raw_path") or self.path.encode()

    def respell(self, path: str) -> None:
        """Answer as if this path had been requested: its `/v1` was missing, or there twice."""
        raw = self.raw_path
        if len(path) > len(self.path):
            raw = b"/v1" + raw
        else:
            raw = raw[3:] if raw.startswith(b"/v1/v1/") else path.encode()
        self.path = path
        respelled: dict[str, Any] = {"path": path, "raw_path": raw}
        self._scope = {**self._scope, **respelled}

    @property
    def query(self) -> bytes:
        """What follows the question mark, as it was sent."""
        return self._scope.get("query_string", b"")

    @property
    def peer(self) -> str:
        """The address of whoever is connected."""
        return peer_of(self._client)

    def may_use(self, model: str) -> bool:
        """Whether the caller may ask for this model, and so know of it."""
        return self.access is None or self.access.may_use(model)

    def require(self, model: str | None) -> None:
        """Raise ModelNotFound where the caller may not know of this model."""
        if model and not self.may_use(model):
            raise ModelNotFound(f"there is no model {shown(model)}", model=model)

    @property
    def sees(self) -> str | None:
        """The key whose requests the caller sees; None: it sees those of all."""
        return None if self.access is None else self.access.sees

    async def body(self) -> bytes:
        """The whole body; raises HttpProblem as soon as it is known to be too large."""
        if self._body is None:
            self._body = await self._read_body()
        return self._body

    async def _read_body(self) -> bytes:
        announced = self.headers.get(b"content-length")
        if announced is not None and announced.isdigit() and int(announced) > self._limit:
            raise self._too_large(drain=int(announced) <= _DRAIN_FACTOR * self._limit)
        event = await self._next()
        body: bytes = event.get("body", b"")
        if event.get("more_body", False):
            body = await self._rest(body)
        elif len(body) > self._limit:
            raise self._too_large(drain=True)
        self._watch()
        if self._max_values is not None:
            await check_values(body, self._max_values)
        return body

    async def decoded(self, decode: Callable[..., T], *asking: Callable[[Any], Any]) -> T:
        """What `decode` makes of the body and of the functions that it asks, if there are any.

        A large body is decoded in a thread; the functions are called on the loop.
        """
        return await read_large(decode, await self.body(), *asking)

    async def reply(
        self,
        body: bytes,
        headers: Iterable[Header] = (),
        *,
        status: int = 200,
        content_type: bytes = b"application/json",
    ) -> None:
        """A whole answer, which is JSON unless it is said otherwise."""
        self.started = self.ended = True
        all_headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *self._named(headers),
            *self._limits(),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})
        await self._send(
            {"type": "http.response.body", "body": b"" if self.method == "HEAD" else body}
        )

    async def reply_nothing(self, headers: Iterable[Header] = ()) -> None:
        """An answer that has no body, because there is nothing to say but yes: 204."""
        self.started = self.ended = True
        named = self._named(headers)
        await self._send({"type": "http.response.start", "status": 204, "headers": named})
        await self._send({"type": "http.response.body"})

    async def begin_stream(self, headers: Iterable[Header] = ()) -> None:
        """The head of an event stream."""
        self.started = True
        all_headers = [*_STREAM, *self._named(headers), *self._limits()]
        await self._send({"type": "http.response.start", "status": 200, "headers": all_headers})

    async def write(self, data: bytes) -> None:
        """Events; returns when the client has taken enough of what was written before."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"", *, last: StreamEvent | None = None) -> None:
        """The last events, if any, and the end of the stream.

        `last` is the event that ended it, which may be an error.
        """
        self.ended = True
        if isinstance(last, Cancelled) or (
            isinstance(last, Error) and not isinstance(last.error, ContentRejected)
        ):
            self.whole = False
        await self._send({"type": "http.response.body", "body": data})

    async def replay(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """An answer that was given before, with the limits and origins of this request."""
        self.started = self.ended = True
        all_headers = [
            *self._named(headers),
            (b"content-length", b"%d" % len(body)),
            *self._limits(),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})
        await self._send({"type": "http.response.body", "body": body})

    def passed_on_by(self, send: Send) -> Exchange:
        """The same request, answered through `send`; it goes on when the client goes away."""
        scope: Scope = {**self._scope, ON_LOST: []}
        inner = Exchange(scope, self._receive, send, self._limit, self._max_values)
        inner._body = self._body
        inner.access, inner.cors, inner.request_id = self.access, self.cors, self.request_id
        return inner

    async def forward_event(self, event: Event) -> None:
        """Send what an inner exchange answers, and know how far it has come."""
        if event["type"] == "http.response.start":
            self.started = True
        elif not event.get("more_body", False):
            self.ended = True
        await self._send(event)

    @property
    def scope(self) -> Scope:
        """The request in ASGI's own words, for an application that answers it itself."""
        return self._scope

    async def pass_on(self, event: MutableMapping[str, Any]) -> None:
        """What such an application answers, with the headers that every answer has."""
        if event["type"] == "http.response.start":
            self.started = True
            event = {**event, "headers": [*self._named(event["headers"]), *self._limits()]}
        elif not event.get("more_body", False):
            self.ended = True
        await self._send(dict(event))

    def close(self) -> None:
        """The answer is given; nobody needs to watch the client any longer."""
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _named(self, headers: Iterable[Header]) -> list[Header]:
        """The headers with those that every answer has."""
        named = [*headers, *self.cors]
        if not any(name == REQUEST_ID for name, _ in named):
            named.append((REQUEST_ID, (self.request_id or new_request_id()).encode()))
        return named

    def _limits(self) -> Iterable[Header]:
        return () if self.access is None else self.access.headers()

    async def _next(self) -> Event:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        return event

    async def _rest(self, first: bytes) -> bytes:
        pieces = [first]
        size = len(first)
        more = True
        while more:
            if size > self._limit:
                raise self._too_large(drain=b"content-length" in self.headers)
            event = await self._next()
            pieces.append(event.get("body", b""))
            size += len(pieces[-1])
            more = event.get("more_body", False)
        if size > self._limit:
            raise self._too_large(drain=True)
        return b"".join(pieces)

    def _too_large(self, *, drain: bool) -> HttpProblem:
        return HttpProblem(
            Failure(
                413,
                f"the request is larger than {self._limit} bytes; send less, or raise "
                "limits.max_request_bytes",
                code="request_too_large",
                headers=() if drain else ((b"connection", b"close"),),
            )
        )

    def _watch(self) -> None:
        self._task = asyncio.current_task()
        on_lost: list[Callable[[], None]] | None = self._scope.get(ON_LOST)
        if on_lost is not None:
            on_lost.append(self._leave)
            return
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin_watching)

    def _begin_watching(self) -> None:
        self._timer = None
        self._watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self._task is not None:
            self.gone = True
            self._task.cancel()


def peer_of(client: tuple[str, int] | None) -> str:
    """A client's address, as logs show it."""
    return f"{client[0]}:{client[1]}" if client else "nobody"


def caller_of(headers: Mapping[bytes, bytes], access: Access | None = None) -> Caller | None:
    """Where a request with these headers comes from, as far as they and its key tell.

    Headers of a trace that are longer than any tracer writes them are left out.
    """
    terms = None if access is None else access.terms
    caller = None if terms is None else terms.caller
    traceparent = headers.get(b"traceparent")
    if traceparent is None:
        return caller
    if len(traceparent) > NAME:
        return caller
    tracestate = headers.get(b"tracestate", b"")
    if len(tracestate) > TRACE_STATE:
        tracestate = b""
    return msgspec.structs.replace(
        caller or NOBODY,
        traceparent=traceparent.decode("latin-1"),
        tracestate=tracestate.decode("latin-1") or None,
    )


class BatchEncoder(Protocol):
    """Writes the events of one stream in a door's own words."""

    ended: bool

    def encode(self, batch: Sequence[StreamEvent], /) -> bytes:
        """What there is to send for these events; `ended` is set with the last of them."""
        ...


async def forward(exchange: Exchange, handle: StreamHandle, encoder: BatchEncoder) -> None:
    """Send a stream on to its end, as fast as the client takes it."""
    async with contextlib.aclosing(handle.batches()) as batches:
        async for batch in batches:
            data = encoder.encode(batch)
            if encoder.ended:
                await exchange.end(data, last=batch[-1])
                break
            if data:
                await exchange.write(data)
