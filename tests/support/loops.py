"""Event loops for tests, whose limits are not met only because the machine paused.

What a test does in one process depends on time in two ways: something is to happen before a limit,
or after it. On a busy machine a process may not run for seconds, anywhere, and then a limit is over
without anybody having been slow.
"""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

_Given = ParamSpec("_Given")
_LONGEST_WAIT_S = 0.01
_LONGEST_STEP_S = 0.02


class _ShortWaits(selectors.DefaultSelector):
    """Waits for no longer than the loop's clock may go on at once."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout if timeout is None else min(timeout, _LONGEST_WAIT_S))


class SteadyLoop(asyncio.SelectorEventLoop):
    """Its clock goes as ever, but a pause of the whole process, however long, is only a moment."""

    def __init__(self) -> None:
        super().__init__(_ShortWaits())
        self._seen = self._now = time.monotonic()

    def time(self) -> float:
        seen = time.monotonic()
        self._now += min(seen - self._seen, _LONGEST_STEP_S)
        self._seen = seen
        return self._now


class TimelessLoop(asyncio.SelectorEventLoop):
    """Its clock stands still until `pass_time`; sockets and threads go on as ever."""

    now = 1000.0

    def time(self) -> float:
        return self.now


def timeless(
    test: Callable[_Given, Coroutine[Any, Any, None]],
) -> Callable[_Given, None]:
    """Run this test on a `TimelessLoop`."""

    @functools.wraps(test)
    def run(*args: _Given.args, **options: _Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=TimelessLoop) as runner:
            runner.run(test(*args, **options))

    return run


async def pass_time(seconds: float) -> None:
    """Let so much time have passed in a `timeless` test, and everybody take in what that means.

    What was sent before is taken in before, for loopback is quicker than this pauses.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimelessLoop)
    await _breathe(loop)
    loop.now += seconds
    await _breathe(loop)


async def _breathe(loop: asyncio.AbstractEventLoop) -> None:
    for _ in range(10):
        await loop.run_in_executor(None, time.sleep, 0.001)
