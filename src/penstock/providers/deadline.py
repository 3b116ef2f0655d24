"""A limit on the time that a block of code may take."""

from __future__ import annotations

import asyncio


class Deadline:
    """`with Deadline(seconds):` raises TimeoutError out of a block that takes longer.

    It does what `asyncio.timeout` does with less machinery, which counts where every call
    needs one. It can be entered once, at once, and not be moved.
    """

    __slots__ = ("_cancellations", "_expired", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        """The time begins now."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task that it can interrupt")
        self._task = task
        self._cancellations = task.cancelling()
        self._expired = False
        self._timer = loop.call_later(seconds, self._expire)

    def __enter__(self) -> None:
        """The block begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Turn our own cancellation, and no other, into TimeoutError."""
        self._timer.cancel()
        if not self._expired:
            return
        others = self._task.uncancel() > self._cancellations
        if kind is asyncio.CancelledError and not others:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()
