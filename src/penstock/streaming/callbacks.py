"""For those who want to be called with the events of a stream instead of asking for them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeAlias

from penstock.contract.errors import PenstockError
from penstock.contract.events import (
    Cancelled,
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    ToolUseDelta,
)
from penstock.contract.exchange import Result

OtherDelta: TypeAlias = ReasoningDelta | ToolUseDelta | ToolStarted | ToolEnded
"""Every event before the end that is not a piece of the answer's text."""


class StreamCallbacks:
    """What `StreamHandle.drive` calls: override what you want to hear, with `def` or `async def`.

    After any number of `chunk` and `delta` comes exactly one of `complete`, `error` and
    `cancelled`. The stream waits for each, so that one which takes its time slows the upstream.
    """

    def chunk(self, chunk: Chunk, /) -> Awaitable[None] | None:
        """The next piece of the answer's text."""

    def delta(self, event: OtherDelta, /) -> Awaitable[None] | None:
        """The next piece of something else: of thinking, or of a tool call."""

    def complete(self, result: Result, /) -> Awaitable[None] | None:
        """The stream ended well, with this result."""

    def error(self, error: PenstockError, /) -> Awaitable[None] | None:
        """The stream failed."""

    def cancelled(self) -> Awaitable[None] | None:
        """The stream was stopped: by its id, by its reader, or by a callback that raised."""


async def tell(callbacks: StreamCallbacks, event: StreamEvent) -> None:
    """Call what this event is for, and wait for it."""
    match event:
        case Chunk():
            waiting = callbacks.chunk(event)
        case Complete(result):
            waiting = callbacks.complete(result)
        case Error(error):
            waiting = callbacks.error(error)
        case Cancelled():
            waiting = callbacks.cancelled()
        case _:
            waiting = callbacks.delta(event)
    if waiting is not None:
        await waiting


async def tell_stopped(callbacks: StreamCallbacks, failure: BaseException) -> None:
    """Tell them of the end that a failure of their own, or of their task, has brought about."""
    try:
        await tell(callbacks, Cancelled())
    except Exception as error:  # noqa: BLE001 - the failure that came first is the one to raise
        failure.add_note(f"the callback `cancelled` failed too: {error!r}")
