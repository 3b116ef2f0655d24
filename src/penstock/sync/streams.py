"""Streams for code without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from penstock.contract.errors import RequestCancelled
from penstock.contract.events import Cancelled, Chunk, Error
from penstock.sync.portal import Portal

EventT_co = TypeVar("EventT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class AsyncStream(Protocol[EventT_co, ResultT_co]):
    """What a stream is made of: a `StreamHandle` or a `GeneratorStream`."""

    def __anext__(self) -> Coroutine[Any, Any, EventT_co]:
        """The next event."""
        ...

    def result(self) -> Coroutine[Any, Any, ResultT_co]:
        """The rest, read to its end."""
        ...

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Stop the upstream call."""
        ...


class SyncStream(Generic[EventT_co, ResultT_co]):
    """An iterator of events that ends with exactly one terminal event.

    The upstream is read only as fast as the events are taken. Leaving the context, or closing,
    stops the upstream call.
    """

    def __init__(self, portal: Portal, stream: AsyncStream[EventT_co, ResultT_co]) -> None:
        """Made by `create_message_stream` and by generators."""
        self._portal = portal
        self._stream = stream

    def __iter__(self) -> Iterator[EventT_co]:
        """A stream can be read once."""
        return self

    def __next__(self) -> EventT_co:
        """The next event."""
        try:
            return self._portal.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self) -> EventT_co:
        return await self._stream.__anext__()

    def texts(self) -> Iterator[str]:
        """Only the pieces of text; raises the stream's error, or RequestCancelled."""
        for event in self:
            if isinstance(event, Chunk):
                yield event.text
            elif isinstance(event, Error):
                raise event.error
            elif isinstance(event, Cancelled):
                raise RequestCancelled("the request was cancelled")

    def result(self) -> ResultT_co:
        """Read on to the end: what the call without a stream would return."""
        return self._portal.run(self._stream.result())

    def close(self) -> None:
        """Stop the upstream call if it still runs; safe to call twice and from another thread."""
        self._portal.run(self._stream.aclose())

    def __enter__(self) -> SyncStream[EventT_co, ResultT_co]:
        """`with engine.create_message_stream(...) as stream:`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the upstream call if it still runs."""
        self.close()
