"""Plain functions beside the event loop, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T]) -> T:
    """What the call gives; cancelling stops the wait for it, not it.

    Not in the event loop's own threads: those are few, and names and files need them too. A tool
    that never returns would keep one for ever, and keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(how: Callable[[], None]) -> None:
        def now() -> None:
            if not done.done():
                how()

        # The loop may have ended before the tool: then nobody is left who wants to know.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(now)

    def work() -> None:
        try:
            value = context.run(call)
        except StopIteration as error:
            # Which no future takes, for it would end the coroutine that waits.
            refused = RuntimeError("the function raised StopIteration")
            refused.__cause__ = error
            tell(lambda: done.set_exception(refused))
        except BaseException as error:  # noqa: BLE001 - it is raised over there
            failure = error
            tell(lambda: done.set_exception(failure))
        else:
            tell(lambda: done.set_result(value))

    threading.Thread(target=work, name="penstock-tool", daemon=True).start()
    return await done
