"""What only the legacy era has: who decides, time to live, lists, results that are waited for."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict, ValidationError

from penstock.mcp.tasks import TaskHandle, start_task
from penstock.mcp.tasks.wire import RELATED_TASK
from tests.mcp.tasks.conftest import client_of
from tests.mcp.tasks.server import CHUNK, Bench
from tests.mcp.tasks.test_tasks import started, until


class Raw(types.Result):
    model_config = ConfigDict(extra="allow")


async def sent(client: Client, method: str, **params: Any) -> dict[str, Any]:
    request = types.Request[dict[str, Any], str](method=method, params=params)
    return (await client.session.send_request(request, Raw)).model_dump(by_alias=True)


async def call_with(
    client: Client, name: str, task: Any, *, meta: dict[str, Any] | None = None, **arguments: Any
) -> TaskHandle:
    """A call with this very `task`, which the SDK's client takes for a wrong result."""
    params: dict[str, Any] = {"name": name, "arguments": arguments, "task": task, "_meta": meta}
    with pytest.raises(ValidationError) as refused:
        await sent(client, "tools/call", **params)
    created: Any = refused.value.errors()[0]["input"]
    return TaskHandle(client.session, created["task"]["taskId"], modern=False)


async def test_tasks_are_advertised(bench: Bench) -> None:
    async with client_of(bench.server, "legacy") as client:
        tasks = client.server_capabilities.tasks
        assert tasks is not None
        assert tasks.model_dump(exclude_none=True) == {
            "list": {},
            "cancel": {},
            "requests": {"tools": {"call": {}}},
        }
        tools = {tool.name: tool.execution for tool in (await client.list_tools()).tools}
        assert tools["plain"] is None
        assert tools["add"] == types.ToolExecution(task_support="optional")
        assert tools["only_task"] == types.ToolExecution(task_support="required")


async def test_modern_clients_see_no_slot_of_the_legacy_era(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        assert client.server_capabilities.tasks is None
        tools = (await client.list_tools()).tools
        assert all(tool.execution is None for tool in tools)


@pytest.mark.parametrize(
    ("name", "task", "told"),
    [
        ("plain", {}, "'plain' cannot be called as a task"),
        ("only_task", None, "'only_task' can only be called as a task"),
    ],
)
async def test_wrong_use_is_a_method_that_is_not_there(
    bench: Bench, name: str, task: Any, told: str
) -> None:
    async with client_of(bench.server, "legacy") as client:
        with pytest.raises(MCPError, match=told) as raised:
            await sent(client, "tools/call", name=name, arguments={"word": ""}, task=task)
        assert raised.value.code == types.METHOD_NOT_FOUND


@pytest.mark.parametrize("ttl", [0, -1, -(10**30)])
async def test_a_time_to_live_that_is_none_is_refused(bench: Bench, ttl: int) -> None:
    async with client_of(bench.server, "legacy") as client:
        with pytest.raises(MCPError, match=f"task.ttl is {ttl}") as raised:
            await sent(client, "tools/call", name="add", arguments={}, task={"ttl": ttl})
        assert raised.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize(
    ("asked", "given"), [(None, 3_600_000), (5000, 5000), (10**30, 86_400_000)]
)
async def test_the_time_to_live_that_holds_is_told(
    bench: Bench, asked: int | None, given: int
) -> None:
    async with client_of(bench.server, "legacy") as client:
        task = {} if asked is None else {"ttl": asked}
        created = await call_with(client, "add", task, a=1, b=2)
        assert (await sent(client, "tasks/get", taskId=created.id))["ttl"] == given


async def test_a_task_that_has_ended_cannot_be_cancelled(bench: Bench) -> None:
    async with client_of(bench.server, "legacy") as client:
        task = await started(client, "add", a=1, b=2)
        await until(task, "completed")
        with pytest.raises(MCPError, match="is completed already") as raised:
            await task.cancel()
        assert raised.value.code == types.INVALID_PARAMS


async def test_the_modern_era_acknowledges_any_cancel(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        task = await started(client, "add", a=1, b=2)
        await until(task, "completed")
        await task.cancel()
        assert (await task.state()).status == "completed"


async def test_the_list_comes_in_pages(bench: Bench) -> None:
    async with client_of(bench.server, "legacy") as client:
        ids = [(await started(client, "add", a=1, b=2)).id for _ in range(52)]
        first = await sent(client, "tasks/list")
        second = await sent(client, "tasks/list", cursor=first["nextCursor"])
        listed = [task["taskId"] for page in (first, second) for task in page["tasks"]]
        assert sorted(listed) == sorted(ids)
        assert len(first["tasks"]) == 50
        assert "nextCursor" not in second


LATER = base64.urlsafe_b64encode(b'[9223372036854775808, "x"]').decode()


@pytest.mark.parametrize("cursor", ["", "nothing", "AAAA", "eyJhIjoxfQ==", "é", LATER])
async def test_a_cursor_of_nobody_is_refused(bench: Bench, cursor: str) -> None:
    async with client_of(bench.server, "legacy") as client:
        with pytest.raises(MCPError, match="cursor") as raised:
            await sent(client, "tasks/list", cursor=cursor)
        assert raised.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_the_modern_era_has_neither_list_nor_result(bench: Bench, method: str) -> None:
    async with client_of(bench.server, "auto") as client:
        with pytest.raises(MCPError) as raised:
            await sent(client, method, taskId="any")
        assert raised.value.code == types.METHOD_NOT_FOUND


async def test_a_result_says_which_task_it_is_of(bench: Bench) -> None:
    async with client_of(bench.server, "legacy") as client:
        task = await started(client, "add", a=1, b=2)
        result = await task.result()
        assert (result.meta or {})[RELATED_TASK] == {"taskId": task.id}


async def test_a_question_says_which_task_it_is_of(bench: Bench) -> None:
    asked: list[Any] = []

    async def decline(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.meta)
        return types.ElicitResult(action="decline")

    async with client_of(bench.server, "legacy", elicitation_callback=decline) as client:
        task = await started(client, "ask_word")
        await until(task, "input_required")
        assert asked == []  # nobody is asked before somebody waits for the result
        result = await task.result()
        assert result.structured_content == {"result": "decline"}
        assert [dict(meta)[RELATED_TASK] for meta in asked] == [{"taskId": task.id}]


async def test_a_refusal_reaches_the_tool(bench: Bench) -> None:
    async def refuse(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=-1, message="rejected")

    async with client_of(bench.server, "legacy", sampling_callback=refuse) as client:
        task = await started(client, "ask_model")
        with pytest.raises(MCPError, match="rejected") as raised:
            await task.result()
        assert raised.value.code == -1


async def test_a_client_that_goes_while_it_waits_harms_nothing(bench: Bench) -> None:
    async with client_of(bench.server, "legacy") as client:
        task = await started(client, "held")
        waiting = asyncio.create_task(sent(client, "tasks/result", taskId=task.id))
        await until(task, "working")
    with pytest.raises(MCPError):
        await waiting
    bench.release.set()
    async with client_of(bench.server, "legacy") as client:
        again = TaskHandle(client.session, task.id, modern=False)
        assert (await again.result()).structured_content == {"result": "released"}


async def test_chunks_flow_under_the_token_of_the_call(bench: Bench) -> None:
    heard: list[types.ProgressNotificationParams] = []
    statuses: list[str] = []

    async def listen(message: Any) -> None:
        if isinstance(message, types.ProgressNotification):
            heard.append(message.params)
            if len(heard) == 3:
                bench.release.set()

    async with client_of(bench.server, "legacy", message_handler=listen) as client:
        task = await call_with(client, "tell", {}, meta={"progressToken": "mine"})
        result = await task.result()
        statuses.append((await task.state()).status)
    assert [params.progress_token for params in heard] == ["mine"] * 3
    metas = [dict(params.meta or {}) for params in heard]
    assert [meta[CHUNK] for meta in metas] == [{"seq": 0}, {"seq": 1}, {"seq": 2}]
    assert all(meta[RELATED_TASK] == {"taskId": task.id} for meta in metas)
    assert result.structured_content == {"result": "0 1 2"}
    assert statuses == ["completed"]


async def test_status_notifications_are_sent(bench: Bench) -> None:
    class StatusParams(types.TaskStatusNotificationParams):
        pass

    heard: asyncio.Queue[str] = asyncio.Queue()

    async def status(params: StatusParams) -> None:
        heard.put_nowait(params.status)

    class Ear(ClientExtension):
        identifier = "dev.example/ear"

        def notifications(self) -> Any:
            method = "notifications/tasks/status"
            return (NotificationBinding(method=method, params_type=StatusParams, handler=status),)

    async with client_of(bench.server, "legacy", extensions=[Ear()]) as client:
        task = await start_task(client, "ask_word")
        assert isinstance(task, TaskHandle)
        assert await heard.get() == "input_required"
        await task.result()
        assert [await heard.get(), await heard.get()] == ["working", "completed"]
