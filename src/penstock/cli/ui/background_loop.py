"""An event loop beside a main thread that waits for people.

While a line is typed, the main thread is blocked; connections must be looked after all the same, so
the loop has a thread of its own. Ctrl-C reaches the main thread, which cancels what it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs coroutines for a thread that is not asynchronous: `with Background() as background:`."""

    def __init__(self) -> None:
        """The thread starts on entering."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="penstock-loop", daemon=True)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises.

        KeyboardInterrupt cancels it, waits until it has ended, and goes on.
        """
        ended: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(coroutine)
            task.add_done_callback(lambda task: _copy(task, ended))
            tasks.append(task)

        try:
            self._loop.call_soon_threadsafe(start)
            return ended.result()
        except KeyboardInterrupt:
            # The loop runs callbacks in their order, so the task exists by then.
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            ended.exception()
            raise

    def __enter__(self) -> Background:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread; what still runs there is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


def _copy(task: asyncio.Task[T], ended: Future[T]) -> None:
    if task.cancelled():
        ended.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(task.result())
