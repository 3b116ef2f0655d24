"""Tasks from a client's side, whichever era the server speaks.

    async with Client(url, extensions=[TaskClient()]) as client:
        result = await run_task(client, "research", {"topic": "tides"}, ttl=600)

`start_task` gives a handle at once; its id can be kept and taken up again with `resume_task`, also
by another process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mcp import Client
from mcp.client import ClientRequestContext, ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CreateTaskResult,
    ErrorData,
    InputRequest,
    PaginatedRequestParams,
    Request,
    Result,
    TaskMetadata,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from penstock.mcp.tasks.records import JSON, Status
from penstock.mcp.tasks.wire import EXTENSION
from penstock.mcp.tools import MOST_PAGES

LEAVE_S = 5.0
"""How long a server has to hear that a task is cancelled."""
_SHORTEST_PAUSE_S, _PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5, 30.0
_MOST_REFUSALS, _LONGEST_REFUSAL_S = 10, 600.0
"""How often in a row a server may ask for a pause, and for how long."""
_QUESTION: TypeAdapter[InputRequest] = TypeAdapter(InputRequest)
_OPEN = ("working", "input_required")


class TaskState(Result):
    """How a task is, as far as its server tells."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    result: JSON | None = None
    error: JSON | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can still change."""
        return self.status in _OPEN


class CreatedTask(TaskState):
    """A task in place of the result of a call, in the modern era."""

    result_type: Literal["task"] = "task"


OnStatus: TypeAlias = Callable[[TaskState], Awaitable[None]]


class _Request(Request[JSON, str]):
    """A request about one task: its id goes into the header that routes."""

    name_param = "taskId"


class _Raw(Result):
    model_config = ConfigDict(extra="allow")


@dataclass
class _Catch:
    """Takes a task that a call becomes, instead of waiting for it."""

    task: CreatedTask | None = None


_catching: ContextVar[_Catch | None] = ContextVar("catching", default=None)


class TaskClient(ClientExtension):
    """Lets a modern server answer with tasks: `Client(server, extensions=[TaskClient()])`.

    `client.call_tool` then waits for a task by itself, and answers what it asks.
    """

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Results that are tasks."""
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve),)

    async def _resolve(self, task: CreatedTask, ctx: ClaimContext) -> CallToolResult:
        if (catch := _catching.get()) is not None:
            catch.task = task
            return CallToolResult(content=[], is_error=True)  # nobody looks at it
        return await TaskHandle(ctx.session, task.task_id, modern=True).result()


class TaskError(MCPError):
    """A request about a task failed; `task_id` is all that `resume_task` needs to go on."""

    def __init__(self, task_id: str, code: int, message: str, data: Any = None) -> None:
        """Keep the error of the server next to the task that it is about."""
        super().__init__(code, message, data)
        self.task_id = task_id
        self.add_note(f"the id of the task is {task_id!r}; resume_task takes it up again")

    def __reduce__(self) -> tuple[Any, ...]:
        """Its own arguments are not those of its parent."""
        return TaskError, (self.task_id, self.code, self.message, self.data)


@dataclass(frozen=True)
class TaskHandle:
    """A task on a server.

    A server that refuses a request for now and names a pause (`retryAfter`) is asked again after
    it. Every other refusal, and one that is repeated ten times, raises TaskError.
    """

    session: ClientSession
    id: str
    modern: bool
    _answered: set[str] = field(default_factory=set[str], compare=False)

    async def state(self) -> TaskState:
        """How it is now; raises -32602 when the server does not know it, or no more."""
        raw = await self._send("tasks/get")
        if not self.modern:
            raw = _from_legacy(raw)
        try:
            return TaskState.model_validate(raw)
        except ValidationError as error:
            raise self._malformed("tasks/get", error) from error

    async def cancel(self) -> None:
        """Ask for its end; raises -32602 when it has ended and the server is of the legacy era."""
        await self._send("tasks/cancel")

    async def result(
        self, *, on_status: OnStatus | None = None, on_progress: ProgressFnT | None = None
    ) -> CallToolResult:
        """Wait for the end, and answer what the task asks by the callbacks of the client.

        Raises TaskError with what the call ended with. Cancelling this cancels the task; to leave
        the task running, keep its id instead. Of progress a legacy server tells by
        notifications; a modern one tells by the message of the status.
        """
        try:
            if self.modern:
                return await self._modern_result(on_status)
            return await self._legacy_result(on_status, on_progress)
        except asyncio.CancelledError:
            with contextlib.suppress(MCPError, TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.cancel()), LEAVE_S)
            raise

    async def _modern_result(self, on_status: OnStatus | None) -> CallToolResult:
        said: tuple[str, str | None] | None = None
        while True:
            state = await self.state()
            if on_status is not None and said != (state.status, state.status_message):
                said = (state.status, state.status_message)
                await on_status(state)
            if not state.is_open:
                return self._ended(state)
            await self._answer((state.model_extra or {}).get("inputRequests") or {})
            await asyncio.sleep(_pause(state))

    async def _answer(self, questions: dict[str, Any]) -> None:
        new = {key: asked for key, asked in questions.items() if key not in self._answered}
        if not new:
            return
        answers: JSON = {}
        for key, asked in new.items():
            request = _QUESTION.validate_python(asked)
            meta = request.params.meta if request.params else None
            ctx = ClientRequestContext(session=self.session, request_id=key, meta=meta)
            answer = await self.session.dispatch_input_request(ctx, request)
            if isinstance(answer, ErrorData):
                # The standard has no way to say no to a task but to end it.
                await self.cancel()
                raise TaskError(self.id, answer.code, answer.message, answer.data)
            answers[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        await self._send("tasks/update", {"inputResponses": answers})
        self._answered.update(answers)

    async def _legacy_result(
        self, on_status: OnStatus | None, on_progress: ProgressFnT | None
    ) -> CallToolResult:
        async def follow() -> None:
            said: tuple[str, str | None] | None = None
            while on_status is not None:
                state = await self.state()
                if said != (state.status, state.status_message):
                    said = (state.status, state.status_message)
                    await on_status(state)
                if not state.is_open:
                    return
                await asyncio.sleep(_pause(state))

        following = asyncio.create_task(follow())
        try:
            raw = await self._waited(on_progress)
            await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return self._result(raw, "tasks/result")

    async def _waited(self, on_progress: ProgressFnT | None) -> JSON:
        ended = False
        while True:
            try:
                # While it waits, the server asks on its stream what the task wants to know.
                return await self._send("tasks/result", progress=on_progress, most_refusals=0)
            except TaskError as error:
                if error.code == REQUEST_TIMEOUT:
                    continue
                pause = _asked_pause(error.data)
                if pause is None or ended:
                    raise
                await asyncio.sleep(max(pause, _PAUSE_S))
                # The error of a task that has ended may name a pause too, and stays the same.
                ended = not (await self.state()).is_open

    async def _send(
        self,
        method: str,
        more: JSON | None = None,
        *,
        progress: ProgressFnT | None = None,
        most_refusals: int = _MOST_REFUSALS,
    ) -> JSON:
        request = _Request(method=method, params={"taskId": self.id, **(more or {})})
        for refusals in range(most_refusals + 1):
            try:
                raw = await self.session.send_request(request, _Raw, progress_callback=progress)
            except MCPError as error:
                pause = _asked_pause(error.data)
                if pause is None or refusals == most_refusals:
                    raise TaskError(self.id, error.code, error.message, error.data) from error
                await asyncio.sleep(max(pause, _SHORTEST_PAUSE_S * 2**refusals))
            else:
                return raw.model_dump(mode="json", by_alias=True)
        raise AssertionError

    def _ended(self, state: TaskState) -> CallToolResult:
        if state.status == "completed":
            return self._result(state.result, "tasks/get")
        error = state.error or {}
        code, message = error.get("code"), error.get("message")
        raise TaskError(
            self.id,
            code if isinstance(code, int) else -32000,
            str(message or state.status_message or f"the task was {state.status}"),
            error.get("data"),
        )

    def _result(self, raw: JSON | None, method: str) -> CallToolResult:
        try:
            return CallToolResult.model_validate(raw)
        except ValidationError as error:
            raise self._malformed(method, error) from error

    def _malformed(self, method: str, error: ValidationError) -> TaskError:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "its top level"
        words = f"the server's answer to {method} breaks the protocol in {place}: {first['msg']}"
        return TaskError(self.id, INTERNAL_ERROR, words)


async def start_task(
    client: Client,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    ttl: float | None = None,
) -> TaskHandle | CallToolResult:
    """Call a tool as a task; the result itself, where server or tool know no tasks.

    `ttl` is for how many seconds the server is asked to keep the task; modern servers decide that
    by themselves. A modern server answers with tasks only to clients that have a `TaskClient`.
    """
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        catch = _Catch()
        token = _catching.set(catch)
        try:
            result = await client.call_tool(name, arguments)
        finally:
            _catching.reset(token)
        if catch.task is None:
            return result
        return TaskHandle(client.session, catch.task.task_id, modern=True)
    if not await _takes_tasks(client, name):
        return await client.call_tool(name, arguments)
    asked = TaskMetadata(ttl=None if ttl is None else int(ttl * 1000))
    params = CallToolRequestParams(name=name, arguments=arguments, task=asked)
    try:
        return await client.session.send_request(CallToolRequest(params=params), CallToolResult)
    except ValidationError as error:
        # The SDK's client knows one result of `tools/call`; another comes with its complaint.
        created = _created(error)
        if created is None:
            raise
    return TaskHandle(client.session, created.task.task_id, modern=False)


async def run_task(
    client: Client,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    ttl: float | None = None,
    on_status: OnStatus | None = None,
    on_progress: ProgressFnT | None = None,
) -> CallToolResult:
    """Call a tool as a task and wait for its result; see `start_task` and `TaskHandle.result`.

    Once there is a task, every error of the server is a TaskError with its id.
    """
    started = await start_task(client, name, arguments, ttl=ttl)
    if isinstance(started, CallToolResult):
        return started
    return await started.result(on_status=on_status, on_progress=on_progress)


def resume_task(client: Client, id: str) -> TaskHandle:
    """A task that was started before, perhaps by another process."""
    modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    return TaskHandle(client.session, id, modern=modern)


async def _takes_tasks(client: Client, name: str) -> bool:
    tasks = client.server_capabilities.tasks
    if tasks is None or tasks.requests is None or tasks.requests.tools is None:
        return False
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        params = PaginatedRequestParams(cursor=cursor)
        page = await client.session.list_tools(params=params)
        for tool in page.tools:
            if tool.name == name:
                support = tool.execution.task_support if tool.execution else None
                return support in ("optional", "required")
        if (cursor := page.next_cursor) is None:
            break
    return False


def _from_legacy(raw: JSON) -> JSON:
    names = {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"}
    return {names.get(key, key): value for key, value in raw.items()}


def _pause(state: TaskState) -> float:
    asked = _PAUSE_S if state.poll_interval_ms is None else state.poll_interval_ms / 1000
    return min(max(asked, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)


def _asked_pause(data: object) -> float | None:
    """The seconds to wait that an error asks for; None where it asks for none, or for too many."""
    match data:
        case {"retryAfter": bool()}:
            return None
        case {"retryAfter": int() | float() as pause} if 0 <= pause <= _LONGEST_REFUSAL_S:
            return float(pause)
        case _:
            return None


def _created(error: ValidationError) -> CreateTaskResult | None:
    for problem in error.errors(include_url=False, include_context=False):
        with contextlib.suppress(ValidationError):
            return CreateTaskResult.model_validate(problem["input"], by_name=False)
    return None
