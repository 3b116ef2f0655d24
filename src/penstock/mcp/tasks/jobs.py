"""A call that runs as a task: from its beginning to what is kept of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ProgressToken
from mcp_types.methods import is_input_required
from pydantic import BaseModel, ValidationError

from penstock.contract.errors import PenstockError
from penstock.mcp.tasks.board import Board
from penstock.mcp.tasks.channel import PROGRESS, TaskChannel, answer_of, session_on
from penstock.mcp.tasks.outbox import Outbox, by_connection
from penstock.mcp.tasks.ports import Change
from penstock.mcp.tasks.records import (
    JSON,
    TaskLimits,
    TaskRecord,
    TooManyTasks,
    asked,
    cancelled,
    completed,
    failed,
    stopped,
    withdrawn,
)
from penstock.mcp.tasks.wire import (
    RELATED_TASK,
    TASK_CANCELLED,
    RequestContext,
    is_modern,
    legacy_task,
    store_failed,
    too_many,
)

logger = logging.getLogger(__name__)


class Job:
    """One call; it is a task from the moment at which it `begin`s to be one."""

    def __init__(
        self,
        board: Board,
        draft: TaskRecord,
        limits: TaskLimits,
        ctx: RequestContext,
        call_next: CallNext,
    ) -> None:
        """Nothing runs and nothing is kept yet."""
        self._board = board
        self._limits = limits
        self._call_next = call_next
        self._legacy = not is_modern(ctx)
        self._token = progress_token_from_params(ctx.params)
        self._ctx = replace(ctx, session=session_on(TaskChannel(ctx, self), ctx))
        self._outbox = Outbox(by_connection(ctx))
        self._gate = asyncio.Lock()
        self._work: asyncio.Task[Any] | None = None
        self._stopping = self._over = False
        self._reason = ""
        self.task = draft
        self.begun = asyncio.Event()
        """Set when the call is a task, and its client has to be told so."""

    async def begin(self) -> TaskRecord:
        """Keep it as a task, once: it is durable when this returns, unless the call is over."""
        async with self._gate:
            if not (self._over or self.begun.is_set()):
                try:
                    await self._board.store.create(self.task, self._limits)
                except TooManyTasks as error:
                    raise too_many(error) from error
                except PenstockError as error:
                    logger.exception("a task of the tool %r could not be kept", self.task.tool)
                    raise store_failed() from error
                logger.info("task %s of the tool %r began", _short(self.task), self.task.tool)
                self.begun.set()
        return self.task

    async def run(self) -> HandlerResult:
        """Do the work; a task keeps what comes of it, a call that never became one returns it."""
        expiry = asyncio.get_running_loop().call_later(
            self.task.ttl_ms / 1000, self.stop, "its time was over"
        )
        self._work = asyncio.current_task()
        watching = asyncio.create_task(self._watch())
        try:
            if self._stopping:
                raise asyncio.CancelledError
            result = await self._rounds()
            if await self._never_began():
                return result
            outcome = self._kept(result)
        except asyncio.CancelledError:
            if await self._never_began():
                raise
            outcome = _cancelled(self._reason) if self._reason else stopped
        except Exception as error:
            if await self._never_began():
                raise
            outcome = _failed(_error_of(error, self.task.tool))
        finally:
            expiry.cancel()
            watching.cancel()
            # From here on nothing is stopped: what came of it is being kept.
            self._work = None
        await self._end(outcome)
        return None

    async def _never_began(self) -> bool:
        """Whether the call has ended as a call; from then on it does not become a task."""
        async with self._gate:
            self._over = not self.begun.is_set()
        return self._over

    def stop(self, reason: str = "") -> None:
        """Stop the work as far as it lets itself be stopped; for this reason it is cancelled.

        Without a reason the server stops, and the task has failed. What has not begun yet ends when
        it begins, for a coroutine that is cancelled before keeps nothing.
        """
        self._stopping = True
        self._reason = self._reason or reason
        if self._work is not None:
            self._work.cancel()

    async def _watch(self) -> None:
        """Stop the work when the task is ended elsewhere: a cancel may reach another process."""
        await self.begun.wait()
        try:
            task = await self._board.until(self.task.id, lambda task: not task.is_open)
        except PenstockError:
            # The work itself will tell, when its end cannot be kept.
            logger.exception("nobody watches task %s", _short(self.task))
            return
        if not self._stopping:
            self.stop("its time was over" if task is None else task.message)

    # What the tool's channel hears

    async def ask(self, questions: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Put these questions to the client, and wait until all are answered."""
        await self.begin()
        keys = frozenset(questions)
        task = await self._change(lambda task, now: asked(task, now, questions))
        try:
            if task is not None and task.is_open:
                task = await self._board.until(
                    self.task.id, lambda task: not task.is_open or keys <= task.answers.keys()
                )
            if task is None or not task.is_open:
                raise MCPError(TASK_CANCELLED, "the task has ended: nobody will answer")
            return {key: task.answers[key] for key in keys}
        finally:
            await self._change(lambda task, now: withdrawn(task, now, keys))

    async def progressed(self, progress: JSON, token: ProgressToken | None = None) -> None:
        """Make it the task's message, and tell those who listen."""
        await self.begin()
        self._board.say(self.task, _message_of(progress))
        self._board.hear(self.task.id, progress)
        if (token := self._token if token is None else token) is not None:
            await self.told(PROGRESS, {"progressToken": token, **progress})

    async def told(self, method: str, params: JSON) -> None:
        """Pass it on; the modern era has no notifications of a task but those of its status."""
        await self.begin()
        if self._legacy:
            meta: JSON = params.get("_meta") or {}
            related = {**meta, RELATED_TASK: {"taskId": self.task.id}}
            self._outbox.put(method, {**params, "_meta": related})

    # The work

    async def _rounds(self) -> HandlerResult:
        """The call, again and again as long as it answers that it needs input."""
        params = {key: value for key, value in (self._ctx.params or {}).items() if key != "task"}
        number = 0
        while True:
            result = await self._call_next(replace(self._ctx, params=params))
            if not self.begun.is_set() or not is_input_required(result):
                return result
            number += 1
            wanted = _wire(result)
            requests: dict[str, JSON] = wanted.get("inputRequests") or {}
            # A key is never used twice in a task's life, and tools use the same in each round.
            keys = {f"round-{number}/{key}": key for key in requests}
            answers = await self.ask({long: requests[key] for long, key in keys.items()})
            params |= {
                "inputResponses": {keys[long]: answer_of(it) for long, it in answers.items()},
                "requestState": wanted.get("requestState"),
            }

    def _kept(self, result: HandlerResult) -> Change:
        wire = _wire(result)
        size = len(msgspec.json.encode(wire))
        if size > self._limits.result_bytes:
            most = self._limits.result_bytes
            message = f"the result has {size:,} bytes, and {most:,} is the most that is kept"
            return _failed({"code": INTERNAL_ERROR, "message": message})
        return lambda task, now: completed(task, now, wire)

    async def _end(self, outcome: Change) -> None:
        try:
            await self._change(outcome)
        except PenstockError as error:
            # Nobody waits for a task for ever: this process remembers what the store cannot.
            logger.exception("the end of task %s could not be kept", _short(self.task))
            message = f"the result could not be kept: {error}"
            self._board.remember(self.task, _failed({"code": INTERNAL_ERROR, "message": message}))
        await self._outbox.aclose()

    async def _change(self, change: Change) -> TaskRecord | None:
        before = self.task.status
        task = await self._board.change(self.task.id, change)
        if task is None:
            return None
        self.task = task
        if task.status != before:
            logger.info("task %s is %s", _short(task), task.status)
            if self._legacy:
                self._outbox.put("notifications/tasks/status", legacy_task(task))
        return task


def _short(task: TaskRecord) -> str:
    """Enough to find it by, and too little to get at it: the id may be all that protects it."""
    return f"{task.id[:8]}..."


def _wire(result: HandlerResult) -> JSON:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return result or {}


def _message_of(progress: JSON) -> str:
    if message := progress.get("message"):
        return str(message)
    done, total = progress.get("progress", 0), progress.get("total")
    return f"{done:g}" if total is None else f"{done:g} of {total:g}"


def _error_of(error: Exception, tool: str) -> JSON:
    match error:
        case MCPError():
            return error.error.model_dump(mode="json", by_alias=True, exclude_none=True)
        case ValidationError():
            return {"code": INVALID_PARAMS, "message": "Invalid request parameters"}
        case _:
            logger.error("the tool %r failed as a task", tool, exc_info=error)
            return {"code": INTERNAL_ERROR, "message": "Internal server error"}


def _failed(error: JSON) -> Change:
    return lambda task, now: failed(task, now, error)


def _cancelled(reason: str) -> Change:
    return lambda task, now: cancelled(task, now, reason)
