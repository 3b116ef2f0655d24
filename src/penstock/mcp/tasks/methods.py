"""The requests about tasks: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/update`, and cancel.

`get` and `cancel` are called the same in both eras and answer differently; of the others each is of
one era only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mcp.server.extension import MethodBinding
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    PaginatedRequestParams,
    Request,
    RequestParams,
    Result,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from penstock.mcp.tasks.board import Board
from penstock.mcp.tasks.channel import PROGRESS
from penstock.mcp.tasks.outbox import Outbox, by_request
from penstock.mcp.tasks.owners import STRANGERS, Owner
from penstock.mcp.tasks.records import JSON, TaskRecord, cancelled
from penstock.mcp.tasks.wire import (
    LEGACY_TASKS_VERSION,
    RELATED_TASK,
    RequestContext,
    declares_tasks,
    detailed_task,
    is_modern,
    legacy_result,
    legacy_task,
    missing_extension,
    nobody_known,
    read_cursor,
    unknown_task,
    write_cursor,
)

PAGE = 50
BY_REQUEST = "cancelled by request"
Cancel: TypeAlias = Callable[[str, str], None]
_LEGACY = frozenset({LEGACY_TASKS_VERSION})
_MODERN = frozenset(MODERN_PROTOCOL_VERSIONS)


class TaskParams(RequestParams):
    """What every request about one task has."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    task_id: str


class UpdateParams(TaskParams):
    """Answers to open questions, by key."""

    input_responses: dict[str, Any]


class _Answer(Result):
    """Whatever a client answers."""

    model_config = ConfigDict(extra="allow")


class TaskMethods:
    """Answers requests about the tasks of a board, each to its owner alone."""

    def __init__(self, board: Board, owner: Owner, cancel: Cancel) -> None:
        """`cancel` stops the work, if it is done in this process."""
        self._board = board
        self._owner = owner
        self._cancel = cancel
        self._asking: set[tuple[str, str]] = set()

    def bindings(self) -> Sequence[MethodBinding]:
        """One for each method."""
        both = _LEGACY | _MODERN
        return (
            MethodBinding("tasks/get", TaskParams, self._get, both),
            MethodBinding("tasks/cancel", TaskParams, self._cancelled, both),
            MethodBinding("tasks/result", TaskParams, self._result, _LEGACY),
            MethodBinding("tasks/list", PaginatedRequestParams, self._list, _LEGACY),
            MethodBinding("tasks/update", UpdateParams, self._update, _MODERN),
        )

    async def _get(self, ctx: RequestContext, params: TaskParams) -> JSON:
        task = await self._own(ctx, params.task_id)
        return detailed_task(task) if is_modern(ctx) else legacy_task(task)

    async def _cancelled(self, ctx: RequestContext, params: TaskParams) -> JSON:
        task = await self._own(ctx, params.task_id)
        if not is_modern(ctx) and not task.is_open:
            raise _already_ended(task)
        done: list[bool] = []

        def cancel(task: TaskRecord, now: int) -> TaskRecord | None:
            changed = cancelled(task, now, BY_REQUEST)
            done[:] = [changed is not None]
            return changed

        changed = await self._board.change(task.id, cancel)
        self._cancel(task.id, BY_REQUEST)
        if is_modern(ctx):
            return {}
        if changed is None:
            raise unknown_task(task.id)
        if done != [True]:
            raise _already_ended(changed)
        return legacy_task(changed)

    async def _update(self, ctx: RequestContext, params: UpdateParams) -> JSON:
        task = await self._own(ctx, params.task_id)
        answers = {key: {"result": answer} for key, answer in params.input_responses.items()}
        await self._board.answer(task.id, answers)
        return {}

    async def _list(self, ctx: RequestContext, params: PaginatedRequestParams) -> JSON:
        after = read_cursor(params.cursor)
        owner = self._owner(ctx)
        if owner == STRANGERS:
            raise nobody_known()
        found = await self._board.store.page(owner, after, PAGE + 1)
        page = found[:PAGE]
        shown = [legacy_task(await self._board.get(task.id) or task) for task in page]
        more = {"nextCursor": write_cursor(page[-1])} if len(found) > PAGE else {}
        return {"tasks": shown, **more}

    async def _result(self, ctx: RequestContext, params: TaskParams) -> JSON:
        """Wait for the end; meanwhile the client is asked what the task wants to know."""
        task = await self._own(ctx, params.task_id)
        questions: dict[str, asyncio.Task[None]] = {}
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_stop, questions)
            if (outbox := self._progress_of(ctx, task)) is not None:
                stack.push_async_callback(outbox.aclose)
                stack.enter_context(
                    self._board.listening(task.id, lambda told: outbox.put(PROGRESS, told))
                )
            while task.is_open:
                for key, question in task.questions.items():
                    if key not in questions and ctx.session.can_send_request:
                        work = self._ask(ctx, task.id, key, question)
                        questions[key] = asyncio.create_task(work)
                seen = task.questions.keys()
                changed = await self._board.until(
                    task.id, lambda now, seen=seen: not now.is_open or now.questions.keys() != seen
                )
                if changed is None:
                    raise unknown_task(task.id)
                task = changed
        return legacy_result(task)

    def _progress_of(self, ctx: RequestContext, task: TaskRecord) -> Outbox | None:
        """Progress under the token of the request that waits, beside that of the call itself."""
        token = progress_token_from_params(ctx.params)
        if token is None:
            return None
        send = by_request(ctx)

        async def with_token(method: str, params: JSON) -> None:
            meta: JSON = params.get("_meta") or {}
            related = {**meta, RELATED_TASK: {"taskId": task.id}}
            await send(method, {"progressToken": token, **params, "_meta": related})

        return Outbox(with_token)

    async def _ask(self, ctx: RequestContext, id: str, key: str, question: JSON) -> None:
        """Ask by the stream of this request; a client that goes can be asked again."""
        if (id, key) in self._asking:
            return
        self._asking.add((id, key))
        try:
            params: JSON = question.get("params") or {}
            meta: JSON = params.get("_meta") or {}
            related = {**meta, RELATED_TASK: {"taskId": id}}
            request = Request[JSON, str](
                method=question["method"], params={**params, "_meta": related}
            )
            where = ServerMessageMetadata(related_request_id=ctx.request_id)
            try:
                told = await ctx.session.send_request(request, _Answer, metadata=where)  # pyright: ignore[reportArgumentType]
            except MCPError as error:
                refused = error.error.model_dump(mode="json", exclude_none=True)
                await self._board.answer(id, {key: {"error": refused}})
            else:
                result = told.model_dump(mode="json", by_alias=True, exclude_none=True)
                await self._board.answer(id, {key: {"result": result}})
        finally:
            self._asking.discard((id, key))

    async def _own(self, ctx: RequestContext, id: str) -> TaskRecord:
        """The task, for whoever it belongs to; for anybody else there is none."""
        if is_modern(ctx):
            if not declares_tasks(ctx):
                raise missing_extension(ctx.method)
            _check_name(ctx, id)
        task = await self._board.get(id)
        if task is None or task.owner != self._owner(ctx):
            raise unknown_task(id)
        return task


def _check_name(ctx: RequestContext, id: str) -> None:
    """Those who route by the header must have routed the task that the body means.

    Clients must send it, and some do not; where nobody routes by it, nothing is lost.
    """
    headers = getattr(ctx.request, "headers", None)
    name = None if headers is None else headers.get(MCP_NAME_HEADER)
    if name is not None and decode_header_value(name) != id:
        raise MCPError(
            HEADER_MISMATCH,
            f"the header {MCP_NAME_HEADER} is not the taskId {id!r}: send the same in both",
        )


def _already_ended(task: TaskRecord) -> MCPError:
    status = legacy_task(task)["status"]
    return MCPError(INVALID_PARAMS, f"taskId {task.id!r} is {status} already: nothing to cancel")


async def _stop(works: dict[str, asyncio.Task[None]]) -> None:
    for work in works.values():
        work.cancel()
    await asyncio.gather(*works.values(), return_exceptions=True)
