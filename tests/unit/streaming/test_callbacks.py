"""Callbacks hear every event in order and exactly one end, whatever goes wrong."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any

import pytest

from penstock.contract.errors import PenstockError, RateLimited
from penstock.contract.events import (
    Cancelled,
    Chunk,
    Complete,
    Error,
    ReasoningDelta,
    StreamEvent,
)
from penstock.contract.exchange import Metadata, Result
from penstock.contract.messages import Text
from penstock.contract.ports import Attempt, Target
from penstock.streaming.callbacks import OtherDelta, StreamCallbacks
from penstock.streaming.handle import StreamHandle

RESULT = Result(
    (Text("ab"),),
    "m",
    "endTurn",
    Metadata(provider="p", model="m", request_id="r", latency_ms=1),
)
A, B = Chunk("a"), Chunk("b")
THOUGHT = ReasoningDelta("hm")
SLOW = RateLimited("slow down")


class Upstream:
    """Gives one event a batch; knows how far it was read and whether it was closed."""

    def __init__(self, *events: StreamEvent, endless: bool = False) -> None:
        self.events = events
        self.endless = endless
        self.taken = 0
        self.closed = False

    async def batches(self) -> AsyncGenerator[Sequence[StreamEvent], None]:
        try:
            for event in self.events:
                self.taken += 1
                yield (event,)
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True

    async def handle(self) -> StreamHandle:
        batches = self.batches()
        first = await anext(batches)
        return StreamHandle("req_1", Attempt(Target("p", "m"), 1), first, batches)


class Plain(StreamCallbacks):
    """Writes down what it hears; raises where it is told to."""

    def __init__(self, *, failing: str = "") -> None:
        self.heard: list[tuple[str, Any]] = []
        self.failing = failing

    def _hear(self, name: str, value: object = None) -> None:
        self.heard.append((name, value))
        if name in self.failing.split():
            raise LookupError(name)

    def chunk(self, chunk: Chunk, /) -> Awaitable[None] | None:
        self._hear("chunk", chunk.text)

    def delta(self, event: OtherDelta, /) -> Awaitable[None] | None:
        self._hear("delta", event)

    def complete(self, result: Result, /) -> Awaitable[None] | None:
        self._hear("complete", result)

    def error(self, error: PenstockError, /) -> Awaitable[None] | None:
        self._hear("error", error)

    def cancelled(self) -> Awaitable[None] | None:
        self._hear("cancelled")


class Waiting(Plain):
    """The same with coroutines."""

    async def chunk(self, chunk: Chunk, /) -> None:
        await asyncio.sleep(0)
        self._hear("chunk", chunk.text)

    async def delta(self, event: OtherDelta, /) -> None:
        self._hear("delta", event)

    async def complete(self, result: Result, /) -> None:
        self._hear("complete", result)

    async def error(self, error: PenstockError, /) -> None:
        self._hear("error", error)

    async def cancelled(self) -> None:
        await asyncio.sleep(0)
        self._hear("cancelled")


both_kinds = pytest.mark.parametrize("kind", [Plain, Waiting])


@both_kinds
@pytest.mark.parametrize(
    ("end", "heard"),
    [
        (Complete(RESULT), ("complete", RESULT)),
        (Error(SLOW), ("error", SLOW)),
        (Cancelled(), ("cancelled", None)),
    ],
)
async def test_every_event_is_heard_in_order_and_then_the_end(
    kind: type[Plain], end: Complete | Error | Cancelled, heard: tuple[str, Any]
) -> None:
    upstream = Upstream(A, THOUGHT, B, end)
    callbacks = kind()
    assert await (await upstream.handle()).drive(callbacks) == end
    assert callbacks.heard == [("chunk", "a"), ("delta", THOUGHT), ("chunk", "b"), heard]
    assert upstream.closed


async def test_what_is_not_overridden_is_not_missed() -> None:
    for end in (Complete(RESULT), Error(SLOW), Cancelled()):
        assert await (await Upstream(A, THOUGHT, end).handle()).drive(StreamCallbacks()) == end


async def test_a_stream_that_breaks_off_is_an_error() -> None:
    callbacks = Plain()
    end = await (await Upstream(A).handle()).drive(callbacks)
    assert isinstance(end, Error)
    assert callbacks.heard == [("chunk", "a"), ("error", end.error)]


@both_kinds
async def test_a_callback_that_raises_stops_the_upstream_and_its_error_is_raised(
    kind: type[Plain],
) -> None:
    upstream = Upstream(A, B, B, Complete(RESULT))
    callbacks = kind(failing="chunk")
    stream = await upstream.handle()
    with pytest.raises(LookupError, match="chunk"):
        await stream.drive(callbacks)
    assert callbacks.heard == [("chunk", "a"), ("cancelled", None)]
    assert (upstream.taken, upstream.closed) == (1, True)
    assert stream.ended


@pytest.mark.parametrize("end", [Complete(RESULT), Error(SLOW), Cancelled()])
async def test_an_end_whose_callback_raises_is_not_followed_by_another(
    end: Complete | Error | Cancelled,
) -> None:
    callbacks = Plain(failing="complete error cancelled")
    with pytest.raises(LookupError):
        await (await Upstream(A, end).handle()).drive(callbacks)
    assert len(callbacks.heard) == 2


async def test_the_first_failure_is_raised_and_the_second_is_noted() -> None:
    with pytest.raises(LookupError, match="chunk") as caught:
        await (await Upstream(A, B).handle()).drive(Plain(failing="chunk cancelled"))
    assert caught.value.__notes__ == [
        "the callback `cancelled` failed too: LookupError('cancelled')"
    ]


async def test_cancelling_the_task_that_drives_is_heard_and_goes_on() -> None:
    heard = asyncio.Event()

    class Telling(Waiting):
        async def chunk(self, chunk: Chunk, /) -> None:
            heard.set()

    upstream = Upstream(A, endless=True)
    callbacks = Telling(failing="cancelled")
    task = asyncio.ensure_future((await upstream.handle()).drive(callbacks))
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert callbacks.heard == [("cancelled", None)]
    assert upstream.closed


async def test_a_stream_is_cancelled_while_a_callback_is_busy() -> None:
    busy, go_on = asyncio.Event(), asyncio.Event()

    class Busy(Plain):
        async def chunk(self, chunk: Chunk, /) -> None:
            self._hear("chunk", chunk.text)
            busy.set()
            await go_on.wait()

    upstream = Upstream(A, B, Complete(RESULT))
    stream = await upstream.handle()
    callbacks = Busy()
    task = asyncio.ensure_future(stream.drive(callbacks))
    await busy.wait()
    assert await stream.cancel()
    assert upstream.closed
    go_on.set()
    assert await task == Cancelled()
    assert callbacks.heard == [("chunk", "a"), ("cancelled", None)]


async def test_the_upstream_is_read_no_further_than_the_callbacks_are() -> None:
    seen: list[int] = []
    upstream = Upstream(A, B, A, B, Complete(RESULT))

    class Slow(StreamCallbacks):
        async def chunk(self, chunk: Chunk, /) -> None:
            await asyncio.sleep(0)
            seen.append(upstream.taken)

    await (await upstream.handle()).drive(Slow())
    assert seen == [1, 2, 3, 4]


async def test_a_stream_that_has_been_read_tells_its_end_only() -> None:
    stream = await Upstream(A, Complete(RESULT)).handle()
    await stream.result()
    callbacks = Plain()
    assert await stream.drive(callbacks) == Complete(RESULT)
    assert callbacks.heard == [("complete", RESULT)]
