"""What only the modern era has: the server decides, notifications by a stream that is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.extension import NotificationBinding
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from penstock.mcp import SqliteTasks, StreamingTools, Tasks
from penstock.mcp.tasks import TaskClient, TaskHandle, start_task
from penstock.mcp.tasks.listening import MOST_TASKS
from penstock.mcp.tasks.wire import EXTENSION
from tests.mcp.tasks.conftest import client_of
from tests.mcp.tasks.server import Bench
from tests.mcp.tasks.test_legacy import sent
from tests.mcp.tasks.test_tasks import started, until
from tests.support.mcp.processes import HttpServer

NEEDED: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_a_call_waits_for_its_task_by_itself(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        result = await client.call_tool("ask_word")
        assert result.structured_content == {"result": "tide"}


async def test_a_client_that_knows_no_tasks_gets_the_result(bench: Bench) -> None:
    async with client_of(bench.server, "auto", extensions=[]) as client:
        result = await start_task(client, "add", {"a": 1, "b": 2})
        assert isinstance(result, types.CallToolResult)
        assert result.structured_content == {"result": 3}


async def test_a_client_that_knows_no_tasks_is_told_what_it_lacks(bench: Bench) -> None:
    async with client_of(bench.server, "auto", extensions=[]) as client:
        requests: list[tuple[str, dict[str, Any]]] = [
            ("tools/call", {"name": "only_task", "arguments": {}}),
            ("tasks/get", {"taskId": "any"}),
            ("tasks/cancel", {"taskId": "any"}),
            ("tasks/update", {"taskId": "any", "inputResponses": {}}),
            ("subscriptions/listen", {"notifications": {"taskIds": ["any"]}}),
        ]
        for method, params in requests:
            with pytest.raises(MCPError) as raised:
                await sent(client, method, **params)
            assert raised.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert raised.value.data == NEEDED


async def test_a_task_shows_what_it_asks_until_it_is_answered(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        task = await started(client, "ask_word")
        state = await until(task, "input_required")
        ((key, question),) = (state.model_extra or {})["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "Which word?"
        nonsense = {"other": {"action": "accept"}}
        await sent(client, "tasks/update", taskId=task.id, inputResponses=nonsense)
        assert (await task.state()).status == "input_required"
        answers = {key: {"action": "accept", "content": {"word": "ebb"}}}
        await sent(client, "tasks/update", taskId=task.id, inputResponses=answers)
        done = await until(task, "completed")
        assert done.result is not None
        assert done.result["structuredContent"] == {"result": "ebb"}
        await sent(client, "tasks/update", taskId=task.id, inputResponses=answers)


async def test_a_refusal_ends_the_task(bench: Bench) -> None:
    async def refuse(context: Any, params: Any) -> types.ErrorData:
        return types.ErrorData(code=-1, message="rejected")

    async with client_of(bench.server, "auto", sampling_callback=refuse) as client:
        task = await started(client, "ask_model")
        with pytest.raises(MCPError, match="rejected"):
            await task.result()
        await until(task, "cancelled")


async def test_a_tool_that_asks_first_is_no_task_before_it_works(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        first = await client.session.call_tool("resolve_first", allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        task = await started(client, "resolve_first")
        assert (await task.result()).structured_content == {"result": "tide"}


async def test_one_stream_tells_of_so_many_tasks(bench: Bench) -> None:
    ids = [str(each) for each in range(MOST_TASKS + 1)]
    async with client_of(bench.server, "auto") as client:
        with pytest.raises(MCPError, match="has 1,001 ids") as refused:
            await sent(client, "subscriptions/listen", notifications={"taskIds": ids})
    assert refused.value.code == types.INVALID_PARAMS


async def test_status_is_told_to_those_who_listen(bench: Bench) -> None:
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    class Params(types.NotificationParams):
        model_config = ConfigDict(extra="allow")

    async def status(params: Params) -> None:
        heard.put_nowait(params.model_extra or {})

    class Ear(TaskClient):
        def notifications(self) -> Any:
            method = "notifications/tasks"
            return (NotificationBinding(method=method, params_type=Params, handler=status),)

    async with client_of(bench.server, "auto", extensions=[Ear()]) as client:
        task = await started(client, "held")
        listening = asyncio.create_task(
            sent(client, "subscriptions/listen", notifications={"taskIds": [task.id, "other"]})
        )
        first = await heard.get()
        assert (first["taskId"], first["status"]) == (task.id, "working")
        bench.release.set()
        while (news := await heard.get())["status"] == "working":
            pass
        assert news["status"] == "completed"
        assert news["result"]["structuredContent"] == {"result": "released"}
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_an_extension_alone_serves_modern_clients(bench: Bench) -> None:
    bench.server.middleware.remove(bench.tasks)
    async with client_of(bench.server, "auto") as client:
        task = await started(client, "ask_word")
        state = await until(task, "input_required")
        assert state.task_id == task.id
        assert (await client.call_tool("ask_word")).structured_content == {"result": "tide"}
    async with client_of(bench.server, "legacy") as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        with pytest.raises(MCPError, match=r"middleware=\[tasks\]"):
            await client.call_tool("only_task")


async def test_without_a_list_of_tools_long_calls_are_tasks(tmp_path: Path) -> None:
    release = asyncio.Event()
    tasks = Tasks(SqliteTasks(tmp_path / "tasks.db"))
    server: MCPServer[Any] = MCPServer("all", extensions=[StreamingTools(), tasks])

    @server.tool()
    async def quick() -> str:
        return "at once"

    @server.tool()
    async def wait() -> str:
        await release.wait()
        return "late"

    @server.tool()
    async def break_off() -> str:
        raise ToolError("broken")

    async with tasks, client_of(server, "auto") as client:
        answer = await start_task(client, "quick")
        assert isinstance(answer, types.CallToolResult)
        assert answer.structured_content == {"result": "at once"}
        broken = await start_task(client, "break_off")
        assert isinstance(broken, types.CallToolResult)
        assert broken.is_error
        task = await started(client, "wait")
        release.set()
        assert (await task.result()).structured_content == {"result": "late"}


async def test_a_modern_task_is_seen_by_a_legacy_client(bench: Bench) -> None:
    async with client_of(bench.server, "auto") as client:
        task = await started(client, "add", a=1, b=2)
    async with client_of(bench.server, "legacy") as client:
        same = TaskHandle(client.session, task.id, modern=False)
        assert (await same.result()).structured_content == {"result": 3}


class Misrouted(types.Request[dict[str, Any], str]):
    """Its header names another task than its body."""

    name_param = "other"


async def test_a_header_that_names_another_task_is_refused(shared: HttpServer) -> None:
    async with client_of(shared.url, "auto") as client:
        task = await started(client, "add", a=1, b=2)
        params = {"taskId": task.id, "other": "another"}
        with pytest.raises(MCPError, match="send the same in both") as raised:
            await client.session.send_request(
                Misrouted(method="tasks/get", params=params), types.EmptyResult
            )
        assert raised.value.code == types.HEADER_MISMATCH
        # Clients must send the header; fastmcp's does not.
        assert (await sent(client, "tasks/get", taskId=task.id))["taskId"] == task.id
