"""A call that is stopped by its id ends as cancelled, and leaves its task as it was."""

import asyncio
import contextlib

import pytest

from penstock.contract.errors import RequestCancelled
from penstock.pipeline.registry import Running


async def stopped(running: Running, task: asyncio.Task[int]) -> None:
    """Stop the call `mine` when it is there."""
    await asyncio.sleep(0)
    assert await running.cancel("mine") is True
    assert await running.cancel("mine") is False
    assert not task.done()


async def test_a_cancellation_that_somebody_swallows_still_ends_the_call() -> None:
    running = Running()

    async def deaf() -> int:
        with pytest.raises(RequestCancelled) as caught, running.call("mine"):  # noqa: SIM117
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        assert caught.value.request_id == "mine"
        task = asyncio.current_task()
        return -1 if task is None else task.cancelling()

    task = asyncio.ensure_future(deaf())
    await stopped(running, task)
    assert await task == 0
    assert await running.cancel("mine") is False


async def test_an_error_in_place_of_the_cancellation_is_raised_and_the_task_is_not_cancelled() -> (
    None
):
    running = Running()

    async def failing() -> int:
        with pytest.raises(LookupError), running.call("mine"):  # noqa: PT012
            try:
                await asyncio.Event().wait()
            finally:
                raise LookupError("while closing")
        await asyncio.sleep(0)
        task = asyncio.current_task()
        return -1 if task is None else task.cancelling()

    task = asyncio.ensure_future(failing())
    await stopped(running, task)
    assert await task == 0


async def test_ids_are_made_up_and_differ() -> None:
    running = Running()
    with running.call(None) as first, running.call(None) as second:
        assert first.startswith("req_")
        assert first != second
