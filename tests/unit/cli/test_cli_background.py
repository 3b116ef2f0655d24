"""The event loop beside the main thread."""

import asyncio
import os
import signal
import threading

import pytest

from penstock.cli.ui.background_loop import Background


def test_results_and_errors_come_back() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def fail() -> None:
        raise ValueError("no")

    with Background() as background:
        assert background.run(double(21)) == 42
        with pytest.raises(ValueError, match="no"):
            background.run(fail())
        assert background.run(double(1)) == 2


def test_an_interrupt_cancels_the_coroutine_and_waits_for_its_end() -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait_forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    def interrupt() -> None:
        started.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with Background() as background:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            background.run(wait_forever())
        assert ended.is_set()
        thread.join()


def test_what_still_runs_at_the_end_is_cancelled() -> None:
    cancelled = threading.Event()

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        return task

    with Background() as background:
        task = background.run(start())
    assert cancelled.is_set()
    assert task.cancelled()
