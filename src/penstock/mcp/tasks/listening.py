"""Status notifications of the modern era: `subscriptions/listen` with `taskIds`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, ProgressToken

from penstock.mcp.tasks.board import Board
from penstock.mcp.tasks.channel import TaskChannel, session_on
from penstock.mcp.tasks.outbox import by_request
from penstock.mcp.tasks.owners import Owner
from penstock.mcp.tasks.records import JSON, TaskRecord
from penstock.mcp.tasks.wire import (
    RequestContext,
    declares_tasks,
    detailed_task,
    missing_extension,
)

MOST_TASKS = 1_000
"""So many are looked up for one stream: the store has one thread, which everybody waits for."""
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_STATUS = "notifications/tasks"


async def listen(
    board: Board, owner: Owner, ctx: RequestContext, call_next: CallNext
) -> HandlerResult:
    """Serve a stream of notifications, with those of the tasks that it asks for.

    A task that is not the client's is left out of the acknowledgement, as one that never was.
    """
    wanted = _task_ids(ctx)
    if not wanted:
        return await call_next(ctx)
    if not declares_tasks(ctx):
        raise missing_extension("subscriptions/listen with taskIds")
    if len(wanted) > MOST_TASKS:
        raise MCPError(
            INVALID_PARAMS,
            f"notifications.taskIds has {len(wanted):,} ids, and {MOST_TASKS:,} is the most for "
            "one stream: open several",
        )
    who = owner(ctx)
    found = [task for id in dict.fromkeys(wanted) if (task := await board.get(id)) is not None]
    own = [task for task in found if task.owner == who]
    stream = _Stream(ctx, [task.id for task in own])
    async with contextlib.AsyncExitStack() as stack:
        for task in own:
            # Only the newest state of each is worth telling.
            stack.enter_context(board.watching(task.id, stream.put))
        teller = asyncio.create_task(stream.tell(board))
        stack.push_async_callback(_stopped, teller)
        session = session_on(TaskChannel(ctx, stream), ctx)
        return await call_next(replace(ctx, session=session))


def _task_ids(ctx: RequestContext) -> list[str]:
    match ctx.params:
        case {"notifications": {"taskIds": [*ids]}}:
            return [id for id in ids if isinstance(id, str)]
        case _:
            return []


class _Stream:
    """What the SDK's own handler says goes by here, and the status of tasks between it."""

    def __init__(self, ctx: RequestContext, ids: list[str]) -> None:
        self._send = by_request(ctx)
        self._meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        self._ids = ids
        self._acknowledged = asyncio.Event()
        self._changed = asyncio.Event()
        self._news: dict[str, TaskRecord] = {}

    def put(self, task: TaskRecord) -> None:
        self._news[task.id] = task
        self._changed.set()

    async def tell(self, board: Board) -> None:
        """First how each task is now: what happened before the stream was open is not lost."""
        await self._acknowledged.wait()
        for id in self._ids:
            if (task := await board.get(id)) is not None:
                self.put(task)
        while True:
            await self._changed.wait()
            self._changed.clear()
            news, self._news = self._news, {}
            for task in news.values():
                await self._send(_STATUS, {**detailed_task(task), "_meta": self._meta})

    async def told(self, method: str, params: JSON) -> None:
        if method != _ACKNOWLEDGED:
            await self._send(method, params)
            return
        honoured = {**params.get("notifications", {}), "taskIds": self._ids}
        await self._send(method, {**params, "notifications": honoured})
        self._acknowledged.set()

    async def progressed(self, progress: JSON, token: ProgressToken | None = None) -> None:
        """Nothing of a stream of notifications reports progress."""

    async def ask(self, questions: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """A stream of notifications has no way back."""
        raise MCPError(INVALID_REQUEST, "a client that listens cannot be asked anything")


async def _stopped(teller: asyncio.Task[None]) -> None:
    teller.cancel()
    await asyncio.gather(teller, return_exceptions=True)
