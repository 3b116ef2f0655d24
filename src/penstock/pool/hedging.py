"""Company for a target that is late: a second one is asked, and the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from penstock.contract.errors import PenstockError
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.pool.error_policy import may_fail_over
from penstock.pool.plan import Run, Ticket

R = TypeVar("R", SamplingRequest, TranscriptionRequest, EmbeddingRequest)
T = TypeVar("T")


async def race(
    run: Run[R],
    ticket: Ticket[R],
    late_s: float,
    ask: Callable[[Ticket[R]], Coroutine[Any, Any, T]],
    drop: Callable[[T], Awaitable[None]],
) -> tuple[Ticket[R], T]:
    """The first good answer, and whose it is; after `late_s` seconds two targets are asked.

    The slower one is stopped, and what it brought at the last moment is given to `drop`. Raises the
    error of the first target when no answer is good; that of the second has been noted by then.
    """
    racing = {asyncio.create_task(ask(ticket)): ticket}
    failures: list[PenstockError] = []
    won = False
    try:
        done, _ = await asyncio.wait(racing, timeout=late_s)
        if not done and (second := run.second()) is not None:
            racing[asyncio.create_task(ask(second))] = second
        while racing:
            done, _ = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            task = done.pop()
            asked = racing.pop(task)
            error = task.exception()
            if error is None:
                for failure in failures:
                    run.noted(ticket, failure)
                won = True
                return asked, task.result()
            if not isinstance(error, PenstockError):
                raise error
            if asked is not ticket:
                # Whatever it is: without company, the first one would be answering still.
                run.noted(asked, error)
            elif may_fail_over(error):
                failures.append(error)
            else:
                raise error
        raise failures[0]
    finally:
        for task, asked in racing.items():
            if won:
                run.outran(asked)
            task.cancel()
        for late in await asyncio.gather(*racing, return_exceptions=True):
            if not isinstance(late, BaseException):
                await drop(late)
