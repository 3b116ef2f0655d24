"""A handle ends with exactly one terminal event, whoever stops it and whenever."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import RateLimited, RequestCancelled, StreamInterrupted
from penstock.contract.events import Cancelled, Chunk, Complete, Error, ReasoningDelta, StreamEvent
from penstock.contract.exchange import Metadata, Result, Usage
from penstock.contract.messages import Text
from penstock.contract.ports import Attempt, Target
from penstock.streaming.handle import StreamHandle
from tests.support.stub import Pause

RESULT = Result(
    (Text("abc"),),
    "m",
    "endTurn",
    Metadata(provider="p", model="m", request_id="r", latency_ms=1, usage=Usage(1, 3)),
)
COMPLETE = Complete(RESULT)
FAILURE = Error(RateLimited("slow down"))
A, B, C = Chunk("a"), Chunk("b"), Chunk("c")

Step = Sequence[StreamEvent] | Pause | Exception


class Upstream:
    """Plays steps and knows whether it has been closed, and how far it was read."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.closed = asyncio.Event()
        self.taken = 0

    async def events(self) -> AsyncGenerator[Sequence[StreamEvent], None]:
        try:
            for step in self.steps:
                self.taken += 1
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, Pause):
                    step.reached.set()
                    await step.over.wait()
                else:
                    yield step
        finally:
            self.closed.set()


ATTEMPT = Attempt(Target("fake", "echo"), 1)


async def opened(upstream: Upstream) -> StreamHandle:
    """A handle in the state in which the engine gives it away: the first batch is there."""
    events = upstream.events()
    return StreamHandle("req_1", ATTEMPT, await anext(events), events)


async def by_event(stream: StreamHandle) -> list[StreamEvent]:
    return [event async for event in stream]


async def by_batch(stream: StreamHandle) -> list[StreamEvent]:
    return [event async for batch in stream.batches() for event in batch]


Reading = Callable[[StreamHandle], Awaitable[list[StreamEvent]]]
both_ways = pytest.mark.parametrize("read", [by_event, by_batch])


def terminals(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if isinstance(event, Complete | Error | Cancelled)]


async def assert_over(stream: StreamHandle, upstream: Upstream) -> None:
    """Nothing follows, nothing can be stopped any more, and nothing is left open."""
    assert await by_event(stream) == []
    assert await by_batch(stream) == []
    assert await stream.cancel() is False
    await stream.aclose()
    async with asyncio.timeout(30):
        await upstream.closed.wait()


@both_ways
@pytest.mark.parametrize("end", [COMPLETE, FAILURE])
async def test_events_come_in_order_and_end_with_one_terminal_event(
    read: Reading, end: StreamEvent
) -> None:
    upstream = Upstream([A], [B, ReasoningDelta("hm")], [C], [end])
    stream = await opened(upstream)
    assert await read(stream) == [A, B, ReasoningDelta("hm"), C, end]
    await assert_over(stream, upstream)


@both_ways
async def test_a_whole_answer_may_come_in_one_batch(read: Reading) -> None:
    upstream = Upstream([A, B, COMPLETE])
    stream = await opened(upstream)
    assert await read(stream) == [A, B, COMPLETE]
    await assert_over(stream, upstream)


async def test_batches_are_handed_on_as_they_arrive() -> None:
    stream = await opened(Upstream([A], [B, C], [COMPLETE]))
    assert await anext(stream) == A
    assert [list(batch) async for batch in stream.batches()] == [[B, C], [COMPLETE]]
    stream = await opened(Upstream([A, B, C], [COMPLETE]))
    assert await anext(stream) == A
    assert [list(batch) async for batch in stream.batches()] == [[B, C], [COMPLETE]]


async def test_the_upstream_is_read_no_faster_than_the_events_are_taken() -> None:
    upstream = Upstream([A], [B], [C], [COMPLETE])
    stream = await opened(upstream)
    assert [await anext(stream), upstream.taken] == [A, 1]
    assert [await anext(stream), upstream.taken] == [B, 2]
    await stream.cancel()


@both_ways
async def test_an_upstream_without_a_terminal_event_ends_in_an_error(read: Reading) -> None:
    upstream = Upstream([A], [B])
    stream = await opened(upstream)
    *events, end = await read(stream)
    assert events == [A, B]
    assert isinstance(end, Error)
    assert isinstance(end.error, StreamInterrupted)
    assert end.error.request_id == "req_1"
    await assert_over(stream, upstream)


async def test_a_bug_in_a_provider_is_raised_once_and_the_stream_is_over() -> None:
    upstream = Upstream([A], ZeroDivisionError())
    stream = await opened(upstream)
    assert await anext(stream) == A
    with pytest.raises(ZeroDivisionError):
        await anext(stream)
    assert [type(event) for event in await by_event(stream)] == [Error]
    await assert_over(stream, upstream)


# Cancelling from every place


@both_ways
@pytest.mark.parametrize("taken", range(4))
async def test_cancelling_between_reads_gives_one_cancelled(read: Reading, taken: int) -> None:
    upstream = Upstream([A, B], [C], [ReasoningDelta("hm")], [COMPLETE])
    stream = await opened(upstream)
    for _ in range(taken):
        await anext(stream)
    assert await stream.cancel() is True
    assert upstream.closed.is_set()
    assert await stream.cancel() is False
    assert await read(stream) == [Cancelled()]
    await assert_over(stream, upstream)


async def test_cancelling_after_the_terminal_event_changes_nothing() -> None:
    upstream = Upstream([A], [COMPLETE])
    stream = await opened(upstream)
    events: list[StreamEvent] = []
    async for event in stream:
        events.append(event)
        if event == COMPLETE:
            assert await stream.cancel() is False
    assert events == [A, COMPLETE]
    assert await stream.result() is RESULT
    await assert_over(stream, upstream)


async def test_cancelling_after_the_terminal_batch_changes_nothing() -> None:
    stream = await opened(Upstream([A, COMPLETE]))
    async for batch in stream.batches():
        assert list(batch) == [A, COMPLETE]
        assert await stream.cancel() is False
    assert await by_event(stream) == []


async def test_cancelling_before_the_terminal_event_is_read_wins() -> None:
    stream = await opened(Upstream([A, COMPLETE]))
    assert await anext(stream) == A
    assert await stream.cancel() is True
    assert await by_event(stream) == [Cancelled()]


async def test_the_reader_may_cancel_inside_its_own_loop() -> None:
    upstream = Upstream([A], [B], [COMPLETE])
    stream = await opened(upstream)
    events: list[StreamEvent] = []
    async for event in stream:
        events.append(event)
        await stream.cancel()
    assert events == [A, Cancelled()]
    await assert_over(stream, upstream)


@both_ways
@pytest.mark.parametrize("stop", [StreamHandle.cancel, StreamHandle.aclose])
@pytest.mark.parametrize("at", range(3))
async def test_another_task_stops_a_waiting_reader(
    read: Reading, stop: Callable[[StreamHandle], Awaitable[object]], at: int
) -> None:
    pauses = [Pause(), Pause(), Pause()]
    upstream = Upstream([A], pauses[0], [B], pauses[1], [C], pauses[2], [COMPLETE])
    stream = await opened(upstream)
    task = asyncio.ensure_future(read(stream))
    for pause in pauses[:at]:
        pause.over.set()
    async with asyncio.timeout(30):
        await pauses[at].reached.wait()
        await stop(stream)
        events = await task
    assert events == [[A], [A, B], [A, B, C]][at] + [Cancelled()]
    await assert_over(stream, upstream)


@both_ways
async def test_stopping_twice_in_every_way_interrupts_the_reader_once(read: Reading) -> None:
    pause = Pause()
    upstream = Upstream([A], pause, [COMPLETE])
    stream = await opened(upstream)
    task = asyncio.ensure_future(read(stream))
    await pause.reached.wait()
    assert await asyncio.gather(stream.cancel(), stream.cancel()) == [True, False]
    await stream.aclose()
    async with asyncio.timeout(30):
        assert await task == [A, Cancelled()]
    await assert_over(stream, upstream)


async def test_a_cancelled_reader_goes_on_with_its_own_work() -> None:
    pause = Pause()
    stream = await opened(Upstream([A], pause))

    async def read_and_work() -> str:
        assert await by_event(stream) == [A, Cancelled()]
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
        await asyncio.sleep(0)
        return "worked on"

    task = asyncio.create_task(read_and_work())
    await pause.reached.wait()
    await stream.cancel()
    assert await task == "worked on"


# The reader's own task is cancelled


@both_ways
async def test_a_cancellation_of_the_readers_task_is_not_swallowed(read: Reading) -> None:
    pause = Pause()
    upstream = Upstream([A], pause, [COMPLETE])
    stream = await opened(upstream)
    task = asyncio.ensure_future(read(stream))
    await pause.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert upstream.closed.is_set()
    assert await by_event(stream) == [Cancelled()]
    await assert_over(stream, upstream)


@pytest.mark.parametrize("outer_first", [True, False])
async def test_when_both_are_cancelled_at_once_the_task_is(outer_first: bool) -> None:
    pause = Pause()
    upstream = Upstream([A], pause, [COMPLETE])
    stream = await opened(upstream)
    task = asyncio.create_task(by_event(stream))
    await pause.reached.wait()
    if outer_first:
        task.cancel()
    await stream.cancel()
    if not outer_first:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    await assert_over_after_cancelled(stream, upstream)


async def assert_over_after_cancelled(stream: StreamHandle, upstream: Upstream) -> None:
    assert await by_event(stream) == [Cancelled()]
    await assert_over(stream, upstream)


async def test_a_time_limit_around_the_reading_works() -> None:
    pause = Pause()
    upstream = Upstream([A], pause, [COMPLETE])
    stream = await opened(upstream)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await by_event(stream)
    await assert_over_after_cancelled(stream, upstream)


async def test_a_task_that_is_being_cancelled_can_still_read_and_be_stopped() -> None:
    pause = Pause()
    stream = await opened(Upstream([A], pause))

    async def clean_up_by_reading() -> list[StreamEvent]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await by_event(stream)
        raise AssertionError

    task = asyncio.create_task(clean_up_by_reading())
    await asyncio.sleep(0)
    task.cancel()
    await pause.reached.wait()
    await stream.cancel()
    assert await task == [A, Cancelled()]


async def test_a_failing_sibling_in_a_task_group_ends_the_reader() -> None:
    pause = Pause()
    upstream = Upstream([A], pause)
    stream = await opened(upstream)

    async def fail() -> None:
        await pause.reached.wait()
        raise ZeroDivisionError

    async def read_beside_a_failure() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(by_event(stream))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await read_beside_a_failure()
    assert caught.group_contains(ZeroDivisionError)
    assert upstream.closed.is_set()


async def test_two_tasks_cannot_read_at_once_and_the_first_is_unharmed() -> None:
    pause = Pause()
    upstream = Upstream([A], pause, [COMPLETE])
    stream = await opened(upstream)
    task = asyncio.create_task(by_event(stream))
    await pause.reached.wait()
    with pytest.raises(RuntimeError, match="read by another task"):
        await anext(stream)
    pause.over.set()
    assert await task == [A, COMPLETE]
    await assert_over(stream, upstream)


# Closing and dropping


@pytest.mark.parametrize("taken", range(3))
async def test_closing_ends_the_stream_without_a_word(taken: int) -> None:
    upstream = Upstream([A], [B], [C], [COMPLETE])
    stream = await opened(upstream)
    for _ in range(taken):
        await anext(stream)
    await stream.aclose()
    assert upstream.closed.is_set()
    await assert_over(stream, upstream)
    with pytest.raises(RequestCancelled):
        await stream.result()


async def test_leaving_the_context_closes_the_upstream() -> None:
    upstream = Upstream([A], [B], [COMPLETE])
    async with await opened(upstream) as stream:
        assert await anext(stream) == A
    assert upstream.closed.is_set()
    await assert_over(stream, upstream)


async def test_leaving_the_context_by_an_error_closes_the_upstream() -> None:
    upstream = Upstream([A], [B])
    with pytest.raises(ZeroDivisionError):
        async with await opened(upstream):
            raise ZeroDivisionError
    assert upstream.closed.is_set()


async def test_leaving_the_context_after_the_end_keeps_the_result() -> None:
    async with await opened(Upstream([A], [COMPLETE])) as stream:
        assert await by_event(stream) == [A, COMPLETE]
    assert await stream.result() is RESULT


@pytest.mark.parametrize("taken", range(3))
async def test_dropping_the_handle_closes_the_upstream(taken: int) -> None:
    upstream = Upstream([A], [B], [C], [COMPLETE])
    stream = await opened(upstream)
    for _ in range(taken):
        await anext(stream)
    del stream
    gc.collect()
    async with asyncio.timeout(30):
        await upstream.closed.wait()


async def test_a_reader_that_breaks_out_and_drops_the_handle_closes_the_upstream() -> None:
    upstream = Upstream([A], [B], [COMPLETE])

    async def first_text() -> str:
        async for text in (await opened(upstream)).texts():
            return text
        raise AssertionError

    assert await first_text() == "a"
    gc.collect()
    async with asyncio.timeout(30):
        await upstream.closed.wait()


# Reading for the text or for the result


async def test_texts_are_the_pieces_of_text_only() -> None:
    stream = await opened(Upstream([A, ReasoningDelta("hm")], [B], [COMPLETE]))
    assert [text async for text in stream.texts()] == ["a", "b"]


async def test_the_result_is_there_at_the_end_however_often_it_is_asked_for() -> None:
    stream = await opened(Upstream([A], [COMPLETE]))
    assert await anext(stream) == A
    assert await stream.result() is RESULT
    assert await stream.result() is RESULT
    assert [text async for text in stream.texts()] == []


async def test_texts_and_result_raise_the_error_of_the_stream() -> None:
    stream = await opened(Upstream([A], [FAILURE]))
    texts = aiter(stream.texts())
    assert await anext(texts) == "a"
    with pytest.raises(RateLimited):
        await anext(texts)
    with pytest.raises(RateLimited):
        await stream.result()


async def test_texts_and_result_of_a_cancelled_stream_say_so() -> None:
    stream = await opened(Upstream([A], [B], [COMPLETE]))
    await stream.cancel()
    with pytest.raises(RequestCancelled) as caught:
        await stream.result()
    assert caught.value.request_id == "req_1"
    with pytest.raises(RequestCancelled):
        _ = [text async for text in stream.texts()]


# Every interleaving of what a caller may do


actions = st.lists(st.sampled_from(["read", "batch", "cancel", "close", "outer"]), max_size=12)
ends = st.sampled_from(["complete", "error", "nothing", "silence"])


@given(actions, ends, st.integers(1, 3))
def test_whatever_the_order_there_is_exactly_one_terminal_event(
    order: list[str], end: str, size: int
) -> None:
    async def play() -> None:
        ending: dict[str, list[Step]] = {
            "complete": [[COMPLETE]],
            "error": [[FAILURE]],
            "nothing": [],
            "silence": [Pause()],
        }
        upstream = Upstream([A] * size, [B] * size, [], [C] * size, *ending[end])
        stream = await opened(upstream)
        events: list[StreamEvent] = []
        closed = False
        for action in [*order, "cancel", *["read"] * 20]:
            if action == "cancel":
                await stream.cancel()
            elif action == "close":
                await stream.aclose()
                closed = closed or not terminals(events)
            else:
                events += await step(stream, action)
        # Whoever closes a stream does not want to hear of it any more.
        assert terminals(events) == ([] if closed else events[-1:])
        assert upstream.closed.is_set()

    asyncio.run(play())


async def step(stream: StreamHandle, action: str) -> list[StreamEvent]:
    """One read in a task of its own, which `outer` cancels when it has to wait."""

    async def read() -> list[StreamEvent]:
        if action == "batch":
            async for batch in stream.batches():
                return list(batch)
            return []
        try:
            return [await anext(stream)]
        except StopAsyncIteration:
            return []

    task = asyncio.create_task(read())
    for _ in range(5):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    if action == "outer":
        task.cancel()
    else:
        await stream.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return []
