"""Long work as a task: an extension of the official server, for both eras on one store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolRequestParams

from penstock.contract.errors import PenstockError
from penstock.mcp.tasks.board import Board
from penstock.mcp.tasks.jobs import Job
from penstock.mcp.tasks.listening import listen
from penstock.mcp.tasks.methods import TaskMethods
from penstock.mcp.tasks.owners import Owner, default_owner
from penstock.mcp.tasks.ports import TaskStore
from penstock.mcp.tasks.records import JSON, TaskLimits, TaskRecord, new_id
from penstock.mcp.tasks.wire import (
    EXTENSION,
    LEGACY_CAPABILITY,
    LEGACY_TASKS_VERSION,
    RequestContext,
    declares_tasks,
    is_modern,
    leaves_no_room,
    legacy_task,
    missing_extension,
    modern_task,
    read_ttl,
    store_failed,
    wrong_use,
)

logger = logging.getLogger(__name__)
Support: TypeAlias = Literal["optional", "required"]
_SHORT_S = 1.0
"""A call that takes no longer is answered as any other."""
_GONE = "the client had gone before it was told of the task"
_through: ContextVar[bool] = ContextVar("through", default=False)


class Tasks(Extension):
    """Runs calls of tools as tasks.

        tasks = Tasks(SqliteTasks("tasks.db"), tools={"research": "optional"})
        server = MCPServer("name", extensions=[tasks], middleware=[tasks])

    It is both an extension and a middleware. As an extension alone it serves modern clients: the
    SDK gives an extension no say in `initialize` and `tools/list`, where legacy clients look for
    tasks. The tools need no change: a tool that asks the client or reports progress does so as in
    any other call.
    """

    identifier = EXTENSION

    def __init__(
        self,
        store: TaskStore,
        *,
        tools: Mapping[str, Support] | None = None,
        asks_first: Collection[str] = (),
        limits: TaskLimits | None = None,
        owner: Owner = default_owner,
    ) -> None:
        """`tools` says which tools may, or must, be called as a task; no other can.

        Without it all may. For a modern client, which has no say in it, a call is then a task when
        it has taken a second, reports progress or asks something: not each small one.

        A legacy client decides for itself which calls are tasks. For a modern client that declares
        the extension every call of such a tool is one, from its beginning; only tools that
        `asks_first` names run in the request until they first report progress or ask by their
        context, so that what their resolvers ask is asked before there is a task. `owner` tells
        clients apart: no one sees the tasks of another.
        """
        self._tools = None if tools is None else dict(tools)
        self._asks_first = frozenset(asks_first)
        self._limits = limits or TaskLimits()
        self._owner = owner
        self._board = Board(store)
        self._jobs: dict[str, tuple[Job, asyncio.Task[HandlerResult]]] = {}
        self._beginning: set[asyncio.Task[TaskRecord]] = set()
        self._methods = TaskMethods(self._board, owner, self._cancel)

    async def __aenter__(self) -> Self:
        """Nothing is opened: the block says how long the tasks may run."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See `aclose`."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all work and close the store; a task that has not ended fails, and says why."""
        await asyncio.gather(*self._beginning, return_exceptions=True)
        running = list(self._jobs.values())
        for job, _ in running:
            job.stop()
        await asyncio.gather(*(work for _, work in running), return_exceptions=True)
        await self._board.store.aclose()

    # What the SDK asks of an extension and of a middleware

    def methods(self) -> Sequence[MethodBinding]:
        """The requests about tasks, of both eras."""
        return self._methods.bindings()

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: RequestContext, call_next: CallNext
    ) -> HandlerResult:
        """Pass on what the middleware has let through, and do its work where there is none."""
        if _through.get():
            return await call_next(ctx)
        if is_modern(ctx):
            return await self._call(ctx, call_next)
        if self._support(params.name) == "required":
            raise MCPError(
                INTERNAL_ERROR,
                f"the tool {params.name!r} is called as a task only, and legacy clients see none, "
                "for Tasks is no middleware of this server: "
                "MCPServer(..., extensions=[tasks], middleware=[tasks])",
            )
        return await call_next(ctx)

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Around each message that comes in."""
        if ctx.request_id is None:
            return await call_next(ctx)
        _through.set(True)
        match ctx.method:
            case "initialize":
                return _with_capability(await call_next(ctx))
            case "tools/list" if ctx.protocol_version == LEGACY_TASKS_VERSION:
                return self._with_support(await call_next(ctx))
            case "tools/call":
                return await self._call(ctx, call_next)
            case "subscriptions/listen" if is_modern(ctx):
                return await listen(self._board, self._owner, ctx, call_next)
            case method if method.startswith("tasks/"):
                return await self._about_tasks(ctx, call_next)
            case _:
                return await call_next(ctx)

    async def _about_tasks(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        try:
            return await call_next(ctx)
        except PenstockError as error:
            logger.exception("%s failed", ctx.method)
            raise store_failed() from error

    # Calls

    async def _call(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        params: Mapping[str, Any] = ctx.params or {}
        name = str(params.get("name"))
        support = self._support(name)
        if is_modern(ctx):
            if support is None:
                return await call_next(ctx)
            if not declares_tasks(ctx):
                if support == "required":
                    raise missing_extension(f"the tool {name!r}")
                return await call_next(ctx)
            job = self._job(ctx, call_next, name, self._limits.ttl_ms)
            if self._tools is None or name in self._asks_first:
                return await self._in_request(job, None if name in self._asks_first else _SHORT_S)
            try:
                return {"resultType": "task", **modern_task(await self._launch(job))}
            except MCPError as error:
                if support == "required" or not leaves_no_room(error):
                    raise
                # Nothing that this client could do would make room: it did not ask for a task.
                return await call_next(ctx)
        asked: Any = params.get("task") if ctx.protocol_version == LEGACY_TASKS_VERSION else None
        if asked is None:
            if support == "required":
                raise wrong_use(name, "required")
            return await call_next(ctx)
        if support is None:
            raise wrong_use(name, "forbidden")
        ttl_ms = read_ttl(asked, self._limits)
        job = self._job(ctx, call_next, name, ttl_ms)
        return {"task": legacy_task(await self._launch(job))}

    def _job(self, ctx: RequestContext, call_next: CallNext, name: str, ttl_ms: int) -> Job:
        now = int(time.time() * 1000)
        draft = TaskRecord(
            id=new_id(),
            owner=self._owner(ctx),
            tool=name,
            runner=self._board.store.runner,
            created=now,
            updated=now,
            ttl_ms=ttl_ms,
            poll_ms=self._limits.poll_ms,
        )
        return Job(self._board, draft, self._limits, ctx, call_next)

    async def _launch(self, job: Job) -> TaskRecord:
        """Keep it and let it run; a client that goes meanwhile leaves nothing that seems to run."""

        async def begin() -> TaskRecord:
            task = await job.begin()
            self._start(job)
            return task

        beginning = asyncio.create_task(begin())
        self._beginning.add(beginning)
        beginning.add_done_callback(self._beginning.discard)
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            job.stop(_GONE)
            raise

    def _start(self, job: Job) -> asyncio.Task[HandlerResult]:
        work = asyncio.create_task(job.run())
        self._jobs[job.task.id] = (job, work)
        work.add_done_callback(lambda _: self._jobs.pop(job.task.id, None))
        return work

    async def _in_request(self, job: Job, seconds: float | None) -> HandlerResult:
        """Run it for the client that waits, until it has ended or has become a task."""
        work = self._start(job)
        begun = asyncio.create_task(job.begun.wait())
        both = {work, begun}
        try:
            done, _ = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                # Where there is no room for a task, the client waits for the answer.
                with contextlib.suppress(MCPError):
                    await job.begin()
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            job.stop(_GONE)
            raise
        finally:
            begun.cancel()
        if job.begun.is_set():
            return {"resultType": "task", **modern_task(job.task)}
        return work.result()

    def _cancel(self, id: str, reason: str) -> None:
        if id in self._jobs:
            self._jobs[id][0].stop(reason)

    def _with_support(self, result: HandlerResult) -> HandlerResult:
        if not isinstance(result, dict):
            return result
        tools: list[JSON] = result.get("tools", [])
        return {**result, "tools": [self._declared(tool) for tool in tools]}

    def _support(self, tool: str) -> Support | None:
        return "optional" if self._tools is None else self._tools.get(tool)

    def _declared(self, tool: JSON) -> JSON:
        support = self._support(str(tool.get("name")))
        return tool if support is None else {**tool, "execution": {"taskSupport": support}}


def _with_capability(result: HandlerResult) -> HandlerResult:
    if not isinstance(result, dict) or result.get("protocolVersion") != LEGACY_TASKS_VERSION:
        return result
    return {**result, "capabilities": {**result["capabilities"], "tasks": LEGACY_CAPABILITY}}
