"""Who stops whom: cancelling, going away, reading slowly, and many at once."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable

import pytest

from penstock import Cancelled, Chunk, RequestCancelled, StreamHandle
from tests.conformance.case import CLOSED_WITHIN_S, Case, collect, completed, texts
from tests.conformance.checks.answers import PIECES
from tests.support.wire.scenario import Pause, Scenario
from tests.support.wire.server import WireServer

SETTLED_POLLS = 20
POLL_S = 0.01
HUGE = ("x" * 65_535 + " ",) * 512
"""32 MB: more than all buffers between two processes take."""
ENDLESS = {"type": "array", "items": {"type": "integer"}, "minItems": 1900}
"""A schema that a small model needs a minute to fill."""


async def _begun(case: Case) -> StreamHandle:
    """A stream of which one piece has come, and the rest will not."""
    case.play(Scenario(text=PIECES, pause=Pause(after=1)))
    handle = await case.stream()
    assert await anext(handle) == Chunk(PIECES[0])
    return handle


async def cancelled(case: Case) -> None:
    handle = await _begun(case)
    await handle.cancel()
    assert await collect(handle) == [Cancelled()]
    await case.closed()


async def cancelled_while_read(case: Case) -> None:
    """Somebody waits for the next piece when somebody else cancels."""
    handle = await _begun(case)
    reader = asyncio.create_task(handle.result())
    await asyncio.sleep(0)  # the reader runs up to its wait
    await handle.cancel()
    with pytest.raises(RequestCancelled) as caught:
        await reader
    assert caught.value.request_id == handle.request_id
    await case.closed()


async def cancelled_by_id(case: Case) -> None:
    handle = await _begun(case)
    assert await case.engine.cancel_request(handle.request_id)
    assert await collect(handle) == [Cancelled()]
    await case.closed()
    assert not await case.engine.cancel_request(handle.request_id)


async def dropped(case: Case) -> None:
    handle = await _begun(case)
    del handle
    gc.collect()
    await case.closed()


async def left(case: Case) -> None:
    """`async with` closes the upstream, whatever happens inside."""
    async with await _begun(case) as handle:
        pass
    await case.closed()
    assert [event async for event in handle] == []


async def task_cancelled(case: Case) -> None:
    """A caller that waits for a whole answer, or for the first piece, is cancelled."""
    for call in (case.ask, case.stream):
        pause = Pause()
        case.play(Scenario(text=PIECES, pause=pause))
        task = asyncio.ensure_future(call())
        await pause.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await case.closed()


async def engine_closed(case: Case) -> None:
    handle = await _begun(case)
    await case.engine.aclose()
    await case.closed()
    assert await collect(handle) == [Cancelled()]


async def _stops_the_model(
    case: Case, stop: Callable[[StreamHandle], Awaitable[object]]
) -> StreamHandle:
    """The next call is answered at once, though the model had a minute of work left."""
    handle = await case.stream("Count.", max_tokens=8000, output_schema=ENDLESS)
    await anext(handle)
    await stop(handle)
    async with asyncio.timeout(30):
        assert (await case.ask("Hi", max_tokens=2)).text
    return handle


async def cancelled_live(case: Case) -> None:
    handle = await _stops_the_model(case, StreamHandle.cancel)
    assert await collect(handle) == [Cancelled()]


async def cancelled_while_read_live(case: Case) -> None:
    async def stop(handle: StreamHandle) -> None:
        reader = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        await handle.cancel()
        with pytest.raises(RequestCancelled):
            await reader

    await _stops_the_model(case, stop)


async def cancelled_by_id_live(case: Case) -> None:
    async def stop(handle: StreamHandle) -> None:
        assert await case.engine.cancel_request(handle.request_id)

    await _stops_the_model(case, stop)


async def dropped_live(case: Case) -> None:
    handle = await case.stream("Count.", max_tokens=8000, output_schema=ENDLESS)
    await anext(handle)
    del handle
    gc.collect()
    async with asyncio.timeout(30):
        assert (await case.ask("Hi", max_tokens=2)).text


async def left_live(case: Case) -> None:
    await _stops_the_model(case, StreamHandle.aclose)


async def task_cancelled_live(case: Case) -> None:
    async def stop(handle: StreamHandle) -> None:
        await handle.aclose()
        # This one waits for its turn behind nobody, and is cancelled while the model works.
        waiting = asyncio.ensure_future(case.ask("Count.", max_tokens=8000, output_schema=ENDLESS))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    await _stops_the_model(case, stop)


async def engine_closed_live(case: Case) -> None:
    handle = await case.stream("Count.", max_tokens=8000, output_schema=ENDLESS)
    await anext(handle)
    async with asyncio.timeout(CLOSED_WITHIN_S):
        await case.engine.aclose()
        assert await collect(handle) == [Cancelled()]


async def back_pressure(case: Case) -> None:
    """An unread stream is not read from the upstream either, and loses nothing by it."""
    case.play(Scenario(text=HUGE))
    handle = await case.stream(max_tokens=300_000)
    await _settled(case)
    before = case.upstream.progress
    pieces = texts(await collect(handle))
    assert before < case.upstream.progress / 2, "the whole stream was read ahead"
    assert len(pieces) == len(HUGE)
    assert sum(map(len, pieces)) == sum(map(len, HUGE))


async def _settled(case: Case) -> None:
    """Wait until the upstream makes no more progress."""
    quiet, last = 0, -1
    while quiet < SETTLED_POLLS:
        await asyncio.sleep(POLL_S)
        quiet = quiet + 1 if case.upstream.progress == last else 0
        last = case.upstream.progress


async def concurrent(case: Case) -> None:
    """Eight streams are under way at once, and none gets a piece of another."""
    resume = asyncio.Event()
    pauses = [Pause(1, resume=resume) for _ in range(8)]
    case.play(
        *(
            Scenario(text=(f"a{number} ", f"b{number} ", f"c{number}"), pause=pause)
            for number, pause in enumerate(pauses)
        )
    )

    async def one() -> str:
        return completed(await collect(await case.stream())).text

    tasks = [asyncio.ensure_future(one()) for _ in pauses]
    for pause in pauses:
        await pause.reached.wait()
    resume.set()
    said = await asyncio.gather(*tasks)
    assert sorted(said) == [f"a{number} b{number} c{number}" for number in range(8)]


async def concurrent_live(case: Case) -> None:
    words = ["one", "two", "three"]
    said = await asyncio.gather(
        *(case.ask(word, max_tokens=12, output_schema={"enum": [word]}) for word in words)
    )
    assert [json.loads(result.text) for result in said] == words


async def connection_reused(case: Case) -> None:
    case.play(*[Scenario(text=PIECES)] * 4)
    await case.ask()
    completed(await collect(await case.stream()))
    completed(await collect(await case.stream()))
    await case.ask()
    assert isinstance(case.scripted, WireServer)
    assert case.scripted.connections == 1


async def cancelled_is_not_reused(case: Case) -> None:
    """A connection in the middle of an answer is useless for the next call."""
    handle = await _begun(case)
    await handle.cancel()
    case.play(Scenario(text=PIECES))
    assert (await case.ask()).text == "".join(PIECES)
    assert isinstance(case.scripted, WireServer)
    assert case.scripted.connections == 2
