"""The sampling door over a WebSocket: many requests at once, each with its client's own id.

```
{"type": "createMessage", "id", "params", "stream"?, "requestId"?, "adapt"?}
                             ->  chunk*, then one of complete, error, cancelled
{"type": "cancel", "id"}     ->  the request ends
{"type": "ping", "id"?}      ->  {"type": "pong", "id"?}
```

`adapt` is `"adapt"` or `"refuse"`, and goes before the header `x-penstock-adapt` of the connection.

There is no queue between a model and its reader: all that is written waits for the client to take
what was written before, and whoever waits to write does not read on from its provider. One request
of a connection is written at a time, in turn, so that a slow client costs its buffers and one event
of each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from penstock.contract.errors import InvalidRequest, PenstockError, Problem, RequestCancelled
from penstock.contract.mcp.content import kind
from penstock.engine.build.pool import limits_of
from penstock.engine.engine import Engine
from penstock.pipeline.registry import id_problem, new_request_id
from penstock.server.dispatch import SHUTTING_DOWN, SocketRoute
from penstock.server.doors.adapting import adapting
from penstock.server.doors.sampling.approvals import Approvals
from penstock.server.doors.sampling.decode import decode, in_callers_words, read_call
from penstock.server.doors.sampling.encode import MessageFrames, StreamEncoder
from penstock.server.doors.sampling.errors import SAMPLING_ERRORS
from penstock.server.errors import Failure, HttpProblem, failure_of
from penstock.server.exchange import REQUEST_ID, ClientGone
from penstock.server.http.large_bodies import LARGE, check_values, read_large
from penstock.server.http.websocket import POLICY_VIOLATION, SERVICE_RESTART, Signal, Socket

logger = logging.getLogger("penstock.server")

PATH = "/v1/sampling/ws"
MISTAKES = 10
"""How many messages in a row may be none of this door; the last closes the connection."""
_LONGEST_ID = 128
_LARGEST_ID = 2**53
"""What every client's JSON can hold."""
_BODIES_AT_ONCE = 4
"""The running requests of a connection may together be so many times as large as one may be."""


class _Asked:
    """A request whose end has not been sent."""

    __slots__ = ("frames", "request_id", "size", "stopped")

    def __init__(self, identifier: str | int, request_id: str, size: int) -> None:
        self.frames = MessageFrames(identifier, request_id)
        self.request_id = request_id
        self.size = size
        self.stopped = False
        """Whether its client wants it no more; known before the engine knows the request."""


class _Session:
    """What one connection asks for."""

    def __init__(self, engine: Callable[[], Engine], socket: Socket, approvals: Approvals) -> None:
        self._engine = engine
        self._approvals = approvals
        self._socket = socket
        self._asked: dict[str | int, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._writing = asyncio.Lock()
        self._mistakes = 0
        self._draining = False

    async def run(self) -> None:
        try:
            while self._mistakes < MISTAKES:
                await self._take(await self._socket.receive())
            await self._socket.close(POLICY_VIOLATION, f"{MISTAKES} invalid messages in a row")
        except asyncio.CancelledError:
            left = list(self._asked.values())
            await self._stop()
            await self._send(*(each.frames.error(SHUTTING_DOWN) for each in left))
            raise
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _take(self, message: str | bytes | Signal) -> None:
        if message is Signal.DRAIN:
            self._draining = True
            await self._close_when_drained()
            return
        try:
            await self._obey(message)
        except HttpProblem as problem:
            self._mistakes += 1
            await self._send(MessageFrames(None, None).error(problem.failure))
        else:
            self._mistakes = 0

    async def _obey(self, message: str | bytes | Signal) -> None:
        """Do what the message says; raises HttpProblem when it says nothing known."""
        if not isinstance(message, str):
            raise _mistake("the message is binary; send JSON as text")
        if len(message) >= LARGE:
            await check_values(message.encode(), self._engine().config.limits.max_json_values)
        decoded = await read_large(partial(decode, what="the message"), message)
        if not isinstance(decoded, Mapping):
            raise _mistake(f"the message is {kind(decoded)}; send an object with a type")
        fields = cast(Mapping[str, Any], decoded)
        match fields.get("type"):
            case "createMessage":
                await self._begin(fields, len(message))
            case "cancel":
                # A request that has just ended is nobody's mistake.
                asked = self._asked.get(_identifier(fields))
                if asked is not None:
                    asked.stopped = True
                    caller = self._socket.caller
                    key = None if caller is None else caller.key
                    await self._engine().cancel_request(asked.request_id, key=key)
            case "ping":
                known = {} if fields.get("id") is None else {"id": _identifier(fields)}
                await self._send(msgspec.json.encode({"type": "pong", **known}))
            case _:
                raise _mistake("`type` is not known; give createMessage, cancel or ping")

    async def _begin(self, fields: Mapping[str, Any], size: int) -> None:
        identifier = _identifier(fields)
        if identifier in self._asked:
            raise _mistake(f"the id {identifier!r} is that of a request that still runs")
        given = fields.get("requestId")
        problem = None if given is None else id_problem(given)
        request_id: str = new_request_id() if given is None or problem else given
        asked = _Asked(identifier, request_id, size)
        refusal = self._refusal(size)
        if problem:
            refusal = failure_of(InvalidRequest.of([Problem("requestId", problem)]))
        if refusal is not None:
            await self._send(asked.frames.error(refusal))
            return
        self._asked[identifier] = asked
        self._size += size
        task = asyncio.create_task(self._serve(identifier, asked, fields))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refusal(self, size: int) -> Failure | None:
        if self._draining:
            return SHUTTING_DOWN
        try:
            # Again for each request: the key may have been revoked since the last.
            self._socket.admit()
        except HttpProblem as problem:
            return problem.failure
        limits = self._engine().config.limits
        most = limits.max_socket_requests
        if len(self._tasks) >= most:
            return _too_much(
                f"{most} requests run on this connection; wait for one to end, or raise "
                "limits.max_socket_requests"
            )
        if self._tasks and self._size + size > _BODIES_AT_ONCE * limits.max_request_bytes:
            return _too_much(
                f"the requests of this connection have {self._size + size} characters together; "
                "wait for one to end, or raise limits.max_request_bytes"
            )
        return None

    async def _serve(self, identifier: str | int, asked: _Asked, fields: Mapping[str, Any]) -> None:
        """One request from its params to its end, which is sent exactly once."""
        frames = asked.frames
        try:
            try:
                engine = self._engine()
                with engine.in_use():
                    end = await self._answer(engine, asked, fields)
            except ClientGone:
                return
            except RequestCancelled:
                end = frames.cancelled()
            except Exception as error:  # noqa: BLE001 - nothing may reach the client but our words
                end = frames.error(self._told(asked, error))
            # The client may use the id again as soon as it has read the end.
            self._asked.pop(identifier, None)
            with contextlib.suppress(ClientGone):
                await self._send(end)
        finally:
            self._asked.pop(identifier, None)
            self._size -= asked.size
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        await self._close_when_drained()

    async def _answer(self, engine: Engine, asked: _Asked, fields: Mapping[str, Any]) -> bytes:
        """Send all chunks and return the end."""
        if asked.stopped:
            return asked.frames.cancelled()
        params: object = fields.get("params")
        if fields.get("stream") is not None and isinstance(params, Mapping):
            params = {**cast(Mapping[str, Any], params), "stream": fields["stream"]}
        large = asked.size >= LARGE
        read = partial(read_call, params, limits_of(engine.config))
        call = await asyncio.to_thread(read) if large else read()
        if asked.stopped:  # while a thread has read it
            return asked.frames.cancelled()
        adapt = fields.get("adapt")
        request = adapting(call.request, engine, self._socket.headers, adapt)
        caller = self._approvals.caller(engine, self._socket.caller)
        try:
            if not call.stream:
                result = await engine.create_message(
                    request, request_id=asked.request_id, caller=caller
                )
                return asked.frames.complete(result)
            handle = await engine.create_message_stream(
                request, request_id=asked.request_id, caller=caller
            )
        except InvalidRequest as error:
            raise in_callers_words(error, "requestId", call.paths) from error
        encoder = StreamEncoder(asked.frames)
        messages: list[bytes] = []
        async with handle, contextlib.aclosing(handle.batches()) as batches:
            async for batch in batches:
                messages = encoder.encode(batch)
                if encoder.ended:
                    break
                await self._send(*messages)
        *chunks, end = messages
        await self._send(*chunks)
        return end

    def _told(self, asked: _Asked, error: Exception) -> Failure:
        failure = failure_of(self._socket.told(error))
        if failure.status == 500:
            trace = None if isinstance(error, PenstockError) else error
            logger.error("request %s failed: %s", asked.request_id, error, exc_info=trace)
        return failure

    async def _send(self, *messages: bytes) -> None:
        async with self._writing:
            for message in messages:
                await self._socket.send(message)

    async def _close_when_drained(self) -> None:
        if self._draining and not self._tasks:
            with contextlib.suppress(ClientGone):
                await self._socket.close(SERVICE_RESTART, SHUTTING_DOWN.message)


def sockets(approvals: Approvals) -> Mapping[str, SocketRoute]:
    """The socket of this door; `approvals` says who is asked before a request is made."""

    async def converse(engine: Callable[[], Engine], socket: Socket) -> None:
        """`GET /v1/sampling/ws`."""
        await socket.accept([(REQUEST_ID, new_request_id().encode())])
        await _Session(engine, socket, approvals).run()

    return {PATH: SocketRoute(converse, SAMPLING_ERRORS)}


def _identifier(fields: Mapping[str, Any]) -> str | int:
    value = fields.get("id")
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_ID:
        return value
    raise _mistake(
        f"`id` is missing or not valid; give a text of 1 to {_LONGEST_ID} characters "
        "or a whole number"
    )


def _mistake(message: str) -> HttpProblem:
    return HttpProblem(Failure(400, message, code="invalid_message"))


def _too_much(message: str) -> Failure:
    return Failure(429, message, "rate_limit_error", "too_many_requests", retryable=True)
