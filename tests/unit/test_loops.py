"""The event loops of the tests: what a pause of the machine does there, and what time does."""

import asyncio
import time

from tests.support.loops import pass_time, timeless


async def test_a_pause_of_the_whole_process_uses_up_no_limit() -> None:
    async with asyncio.timeout(0.2):
        time.sleep(0.5)  # noqa: ASYNC251 - which is the pause
        await asyncio.sleep(0.01)


async def test_otherwise_time_passes_as_ever() -> None:
    began, loop = time.monotonic(), asyncio.get_running_loop()
    started = loop.time()
    await asyncio.sleep(0.1)
    assert loop.time() - started >= 0.1
    # It may be late, as any timer; it is never early.
    assert time.monotonic() - began >= 0.1


@timeless
async def test_no_time_passes_before_it_is_told_to() -> None:
    sleeping = asyncio.create_task(asyncio.sleep(1.0))
    await pass_time(0.9)
    assert not sleeping.done()
    await pass_time(0.1)
    assert sleeping.done()
