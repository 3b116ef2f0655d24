"""A deadline interrupts its own block only, and never swallows somebody else's cancellation."""

import asyncio

import pytest

from penstock.providers.deadline import Deadline


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_block_in_time_is_left_alone() -> None:
    with Deadline(60):
        await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_block_that_takes_too_long_is_interrupted() -> None:
    with pytest.raises(TimeoutError) as caught, Deadline(0):
        await forever()
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_block_itself_is_not_replaced() -> None:
    async def fail_when_interrupted() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise ZeroDivisionError from None

    with pytest.raises(ZeroDivisionError), Deadline(0):
        await fail_when_interrupted()


async def test_a_cancellation_from_outside_goes_on() -> None:
    started = asyncio.Event()

    async def work() -> None:
        with Deadline(60):
            started.set()
            await forever()

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_outside_wins_over_an_expiry_at_the_same_time() -> None:
    async def work() -> None:
        # Both timers are due in the same turn of the loop.
        asyncio.get_running_loop().call_later(0, task.cancel)
        with Deadline(0):
            await forever()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_an_outer_limit_is_not_taken_for_ours() -> None:
    async def work() -> None:
        with Deadline(60):
            await forever()

    outer = asyncio.timeout(0)
    with pytest.raises(TimeoutError):
        async with outer:
            await work()
    assert outer.expired()


async def test_limits_nest() -> None:
    with Deadline(60):
        with pytest.raises(TimeoutError), Deadline(0):
            await forever()
        await asyncio.sleep(0)


async def test_a_deadline_outside_of_any_task_is_refused() -> None:
    loop = asyncio.get_running_loop()
    refusal: asyncio.Future[str] = loop.create_future()

    def call() -> None:
        try:
            Deadline(1)
        except RuntimeError as error:
            refusal.set_result(str(error))

    loop.call_soon(call)
    assert "needs a task" in await refusal
