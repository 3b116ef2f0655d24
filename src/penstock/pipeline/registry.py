"""The requests that run now, by their ids, so that any of them can be stopped."""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from concurrent.futures import Future
from typing import TypeAlias, cast

from penstock.contract.errors import (
    InvalidRequest,
    PenstockError,
    Problem,
    RequestCancelled,
    attached_metadata,
    shown,
)
from penstock.streaming.handle import StreamHandle

_ID = re.compile(r"[!-~]{1,128}")
"""What an HTTP header can carry, and a log can show."""
_ID_DIGITS = 24
_GENERATED_ID = re.compile(r"req_[0-9a-f]{24}")
_IDS_AT_ONCE = 256
_Identity: TypeAlias = tuple[str | None, str]
"""The key of a request and its id, which is unique only among the requests of that key."""


_ready_ids: list[str] = []
"""Ids that nobody has yet. To ask the system for randomness gives the interpreter to other threads,
and it is had back only when they let go of it; so it is asked for many at once."""
if hasattr(os, "register_at_fork"):
    # What a forked process inherits, its parent would use too.
    os.register_at_fork(after_in_child=_ready_ids.clear)


def new_request_id() -> str:
    """An id that no other request has, and that nobody can guess."""
    while True:
        try:
            # In one step, for engines may run in several threads.
            return _ready_ids.pop()
        except IndexError:
            digits = os.urandom(_IDS_AT_ONCE * _ID_DIGITS // 2).hex()
            starts = range(0, len(digits), _ID_DIGITS)
            _ready_ids.extend([f"req_{digits[start : start + _ID_DIGITS]}" for start in starts])


def is_generated_id(request_id: str) -> bool:
    """Whether the id has the form that `new_request_id` gives, so that it cannot be guessed."""
    return _GENERATED_ID.fullmatch(request_id) is not None


def id_problem(request_id: object) -> str | None:
    """Why nobody can use this as the id of a request; None when it will do."""
    if isinstance(request_id, str) and _ID.fullmatch(request_id):
        return None
    return (
        f"{shown(request_id)} is not a valid id; give 1 to 128 visible ASCII characters, no blanks"
    )


class InFlight:
    """How many requests have come in and not ended."""

    def __init__(self) -> None:
        """Nobody is here."""
        self._number = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def enter(self) -> None:
        """A request has come in."""
        self._number += 1

    def leave(self) -> None:
        """A request has ended."""
        self._number -= 1
        if not self._number:
            for each in self._waiting:
                if not each.done():
                    each.set_result(None)

    async def emptied(self, limit_s: float | None) -> bool:
        """Wait until the last one has ended, but not longer than this; whether it has."""
        if not self._number:
            return True
        empty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(empty)
        try:
            await asyncio.wait({empty}, timeout=limit_s)
        finally:
            self._waiting.discard(empty)
        return not self._number


class _Call:
    """A call that a task is waiting for."""

    __slots__ = ("before", "stopped", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.before = task.cancelling()
        self.stopped = False

    def stop(self) -> bool:
        if self.stopped:
            return False
        self.stopped = True
        self.task.cancel()
        return True

    def undo(self) -> bool:
        """Take our cancellation back; whether it was there, and nobody else's is."""
        return self.stopped and self.task.uncancel() <= self.before


def _cancelled(request_id: str, error: BaseException | None) -> PenstockError:
    cancelled = RequestCancelled("the request was cancelled", request_id=request_id)
    return cancelled.located(metadata=attached_metadata(error))


class Registered:
    """The block in which a call has its id; made by `Running.call`."""

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_call", "_calls", "_identity")

    def __init__(self, calls: dict[_Identity, _Call], identity: _Identity) -> None:
        """It is for one use, in the task that made it."""
        self._calls = calls
        self._identity = identity
        self._call = _Call(cast("asyncio.Task[object]", asyncio.current_task()))

    def __enter__(self) -> str:
        self._calls[self._identity] = self._call
        return self._identity[1]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        del self._calls[self._identity]
        ours = self._call.undo()
        # We interrupt the call by cancelling its task, which is undone here; a cancellation of the
        # task by somebody else must go on unharmed. Where there is no error, somebody below has
        # swallowed the interruption; who cancelled was told that it worked.
        if ours and (error is None or isinstance(error, asyncio.CancelledError)):
            raise _cancelled(self._identity[1], error) from None


class Running:
    """Knows calls while they are awaited, and streams for as long as somebody holds them."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._calls: dict[_Identity, _Call] = {}
        self._streams: weakref.WeakValueDictionary[_Identity, StreamHandle] = (
            weakref.WeakValueDictionary()
        )
        # Weakly, for an engine is kept for a loop as long as that lives.
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def call(self, request_id: str | None, key: str | None = None) -> Registered:
        """The id of a call, under which it can be stopped while the block runs.

        A call that is stopped raises RequestCancelled. Raises InvalidRequest for an id that cannot
        be used, or that another running request of the same key has.
        """
        if request_id is not None and (problem := self._problem(request_id, key)):
            raise InvalidRequest.of([Problem("request_id", problem)])
        self._loop = weakref.ref(asyncio.get_running_loop())
        return Registered(self._calls, (key, request_id or new_request_id()))

    def keep(self, handle: StreamHandle, key: str | None = None) -> StreamHandle:
        """Register a stream of this key."""
        self._streams[key, handle.request_id] = handle
        return handle

    async def cancel(self, request_id: str, key: str | None = None) -> bool:
        """Stop the request of this key, or those of all keys, that have this id.

        False when none runs.
        """
        stopped = [await self._stop(identity) for identity in self._named(request_id, key)]
        return any(stopped)

    def cancel_threadsafe(self, request_id: str) -> Future[bool]:
        """The same from any thread; the future tells what came of it."""
        loop = self._loop() if self._loop is not None else None
        if loop is None or loop.is_closed():
            nothing: Future[bool] = Future()
            nothing.set_result(False)
            return nothing
        return asyncio.run_coroutine_threadsafe(self.cancel(request_id), loop)

    async def cancel_all(self) -> None:
        """Stop everything."""
        for identity in {*self._calls, *self._streams}:
            await self._stop(identity)

    def _named(self, request_id: str, key: str | None) -> set[_Identity]:
        if key is not None:
            return {(key, request_id)}
        return {each for each in (*self._calls, *self._streams) if each[1] == request_id}

    async def _stop(self, identity: _Identity) -> bool:
        call = self._calls.get(identity)
        if call is not None:
            return call.stop()
        handle = self._streams.get(identity)
        return handle is not None and await handle.cancel()

    def _problem(self, request_id: str, key: str | None) -> str | None:
        if problem := id_problem(request_id):
            return problem
        handle = self._streams.get((key, request_id))
        if (key, request_id) in self._calls or (handle is not None and not handle.ended):
            return f"{request_id!r} is the id of a request that still runs; give each its own"
        return None
