"""What a caller holds of a running stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from types import TracebackType

from penstock.contract.errors import PenstockError, RequestCancelled, StreamInterrupted
from penstock.contract.events import Cancelled, Chunk, Complete, Error, StreamEvent
from penstock.contract.exchange import Result
from penstock.contract.metadata import ErrorMetadata
from penstock.contract.ports import Attempt
from penstock.streaming.callbacks import StreamCallbacks, tell, tell_stopped

EventBatches = AsyncGenerator[Sequence[StreamEvent], None]
_TERMINAL = (Complete, Error, Cancelled)


class StreamHandle:
    """An async iterator of events that ends with exactly one of Complete, Error or Cancelled.

    The upstream is read only as fast as the events are taken. Leaving the context, cancelling, or
    dropping the handle stops the upstream call.
    """

    def __init__(
        self,
        request_id: str,
        attempt: Attempt,
        first: Sequence[StreamEvent],
        rest: EventBatches,
        *,
        failure: Callable[[], ErrorMetadata | None] | None = None,
    ) -> None:
        """Made by the engine once the first events are there.

        `failure` gives what is known of the request once it has failed.
        """
        self.request_id = request_id
        self.attempt = attempt
        """Which target answers, and how many were tried up to it."""
        self._ready = deque(first)
        self._rest = rest
        self._failure = failure
        self._reader: asyncio.Task[object] | None = None
        self._stopped = False
        self._end: Complete | Error | Cancelled | None = None
        self._finish: Callable[[Complete], Complete | Error] = lambda end: end

    def finish_with(self, finish: Callable[[Complete], Complete | Error]) -> None:
        """Replace the event `Complete` by what this makes of it; before the stream is read."""
        self._finish = finish

    @property
    def ended(self) -> bool:
        """Whether the end has been read, or the stream was stopped."""
        return self._end is not None or self._stopped

    def __aiter__(self) -> StreamHandle:
        """A stream can be read once."""
        return self

    async def __anext__(self) -> StreamEvent:
        """The next event."""
        while not self._ready:
            if self._end is not None:
                await self._rest.aclose()
                raise StopAsyncIteration
            self._ready.extend(await self._next_batch())
        event = self._ready.popleft()
        if isinstance(event, _TERMINAL):
            event = self._end = self._finished(event)
        return event

    async def batches(self) -> EventBatches:
        """The same events, as many at once as have arrived; for code that forwards many streams."""
        while self._end is None:
            batch = list(self._ready) or await self._next_batch()
            self._ready.clear()
            if batch and isinstance(last := batch[-1], _TERMINAL):
                self._end = self._finished(last)
                batch = [*batch[:-1], self._end]
            yield batch
        await self._rest.aclose()

    async def texts(self) -> AsyncIterator[str]:
        """Only the pieces of text; raises the stream's error, or RequestCancelled."""
        async for event in self:
            if isinstance(event, Chunk):
                yield event.text
        self._outcome()

    async def result(self) -> Result:
        """Read on to the end, however often; raises the stream's error, or RequestCancelled."""
        async for _ in self:
            pass
        return self._outcome()

    async def drive(self, callbacks: StreamCallbacks) -> Complete | Error | Cancelled:
        """Read on to the end and tell the callbacks of each event; returns how it ended.

        The stream is read no faster than the callbacks take it. What a callback raises stops the
        upstream call and is raised here, as is a cancellation of this task; the callbacks then
        hear `cancelled` before, as the one end that they hear of.
        """
        try:
            async for event in self:
                if not isinstance(event, _TERMINAL):
                    await tell(callbacks, event)
        except BaseException as failure:
            await self.aclose()
            await tell_stopped(callbacks, failure)
            raise
        end = self._end or Cancelled()
        await tell(callbacks, end)
        return end

    async def cancel(self) -> bool:
        """Stop the upstream call; whoever reads the stream gets `Cancelled`. Safe to call twice.

        False when there was nothing left to stop.
        """
        if self._end is not None or self._stopped:
            return False
        self._stopped = True
        self._ready.clear()
        if self._reader is not None:
            self._reader.cancel()
        else:
            await self._rest.aclose()
        return True

    async def aclose(self) -> None:
        """Stop without a word, for callers that have what they need."""
        await self.cancel()
        if self._reader is None and self._end is None:
            self._end = Cancelled()

    async def __aenter__(self) -> StreamHandle:
        """`async with await engine.create_message_stream(...) as stream:`."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the upstream call if it still runs."""
        await self.aclose()

    async def _next_batch(self) -> Sequence[StreamEvent]:
        if self._stopped:
            return (Cancelled(),)
        if self._reader is not None:
            raise RuntimeError("the stream is being read by another task")
        self._reader = reader = asyncio.current_task()
        cancellations = reader.cancelling() if reader is not None else 0
        try:
            return await anext(self._rest)
        except StopAsyncIteration:
            error = StreamInterrupted("the stream ended without its terminal event")
            return (Error(self._located(error)),)
        except asyncio.CancelledError:
            # `cancel()` interrupts the reader by cancelling its task, which is undone here; a
            # cancellation of the reader by somebody else must go on unharmed.
            ours = self._stopped
            self._stopped = True
            if not ours or (reader is not None and reader.uncancel() > cancellations):
                raise
            return (Cancelled(),)
        finally:
            self._reader = None

    def _finished(self, end: Complete | Error | Cancelled) -> Complete | Error | Cancelled:
        return self._finish(end) if isinstance(end, Complete) else end

    def _outcome(self) -> Result:
        if isinstance(self._end, Complete):
            return self._end.result
        if isinstance(self._end, Error):
            raise self._end.error
        raise self._located(RequestCancelled("the request was cancelled"))

    def _located(self, error: PenstockError) -> PenstockError:
        failed = None if self._failure is None else self._failure()
        return error.located(request_id=self.request_id, metadata=failed)
