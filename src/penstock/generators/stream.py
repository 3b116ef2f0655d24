"""What a caller holds of a generator's running stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from penstock.contract.errors import PenstockError
from penstock.contract.events import Chunk, Complete, Error, GeneratorEvent
from penstock.contract.exchange import Metadata, Result
from penstock.contract.messages import Message

T = TypeVar("T")


class Settled(msgspec.Struct, Generic[T], frozen=True):
    """The end of a run: the value, and the result that it was read from."""

    value: T
    result: Result
    turns: tuple[Message, ...] = ()
    """What the run adds to a history: the prompt, calls of tools and their results, the answer."""


class GeneratorStream(Generic[T]):
    """An async iterator of events that ends with exactly one of Complete or Error.

    An error before the first event is raised instead. Nothing is asked before the first event is;
    leaving the context, or closing, stops whatever runs: the upstream call and the tools.
    """

    def __init__(self, events: AsyncGenerator[GeneratorEvent | Settled[T], None]) -> None:
        """Made by `generator.stream()`."""
        self._events = events
        self._reader: asyncio.Task[object] | None = None
        self._begun = False
        self._ended = False
        self._settled: Settled[T] | None = None
        self._error: PenstockError | None = None

    def __aiter__(self) -> GeneratorStream[T]:
        """A stream can be read once."""
        return self

    async def __anext__(self) -> GeneratorEvent:
        """The next event."""
        if self._ended:
            raise StopAsyncIteration
        if self._reader is not None:
            raise RuntimeError("the stream is being read by another task")
        self._reader = reader = asyncio.current_task()
        cancellations = reader.cancelling() if reader is not None else 0
        try:
            event = await anext(self._events)
        except asyncio.CancelledError:
            # `aclose` of another task interrupts the reader by cancelling it, which is undone here.
            if not self._ended or (reader is not None and reader.uncancel() > cancellations):
                raise
            raise StopAsyncIteration from None
        except PenstockError as error:
            self._ended = True
            self._error = error
            if not self._begun:
                raise
            return Error(error)
        finally:
            self._reader = None
        self._begun = True
        if isinstance(event, Settled):
            self._ended = True
            self._settled = event
            await self._events.aclose()
            return Complete(event.result)
        return event

    async def texts(self) -> AsyncIterator[str]:
        """Only the pieces of text; raises the stream's error."""
        async for event in self:
            if isinstance(event, Chunk):
                yield event.text
        self._outcome()

    async def result(self) -> tuple[T, Metadata]:
        """Read on to the end: the value and what there is to know about it, as `generate` gives."""
        async for _ in self:
            pass
        return self._outcome()

    async def aclose(self) -> None:
        """Stop whatever runs; safe to call twice, and while another task reads, which then ends."""
        closed, self._ended = self._ended, True
        if self._reader is None:
            await self._events.aclose()
        elif not closed:
            self._reader.cancel()

    async def __aenter__(self) -> GeneratorStream[T]:
        """`async with generator.stream() as stream:`."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop whatever still runs."""
        await self.aclose()

    def _outcome(self) -> tuple[T, Metadata]:
        if self._error is not None:
            raise self._error
        if self._settled is None:
            raise RuntimeError("the stream was closed before its end")
        return self._settled.value, self._settled.result.metadata
