"""A client whose requests about a task are refused for a while, by a server that names a pause."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from penstock.mcp import SqliteTasks, TaskClient, TaskError, Tasks, run_task, start_task
from penstock.mcp.tasks import TaskHandle
from tests.mcp.tasks.conftest import ERAS

era = pytest.mark.parametrize("era", ERAS)


class Refusing:
    """Refuses the first requests of a method, as a gateway does whose limit is used up."""

    def __init__(self, refuse: dict[str, int], data: Any) -> None:
        self.left = dict(refuse)
        self.data = data
        self.asked: Counter[str] = Counter()

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        self.asked[ctx.method] += 1
        if self.left.get(ctx.method, 0) > 0:
            self.left[ctx.method] -= 1
            raise MCPError(-32000, "too many requests", self.data)
        return await call_next(ctx)


@asynccontextmanager
async def connected(folder: Path, era: str, refusing: Refusing) -> AsyncGenerator[Client]:
    tasks = Tasks(SqliteTasks(folder / "tasks.db"), tools={"count": "optional"})
    server: MCPServer[Any] = MCPServer(
        "refusing", extensions=[tasks], middleware=[refusing, tasks], log_level="ERROR"
    )

    async def count() -> int:
        return 42

    server.add_tool(count)
    async with tasks, Client(server, mode=era, extensions=[TaskClient()]) as client:
        yield client


def method_of(era: str) -> str:
    """What waits for the result."""
    return "tasks/result" if era == "legacy" else "tasks/get"


@era
@pytest.mark.parametrize("pause", [0, 0.01, 1])
async def test_a_pause_is_waited_for_and_the_result_comes(
    tmp_path: Path, era: str, pause: float
) -> None:
    refusing = Refusing({method_of(era): 1}, {"retryAfter": pause})
    async with connected(tmp_path, era, refusing) as client:
        result = await run_task(client, "count")
    assert result.structured_content == {"result": 42}
    assert refusing.asked[method_of(era)] == 2


@era
@pytest.mark.parametrize(
    "data", [None, {}, {"retryAfter": "1"}, {"retryAfter": True}, {"retryAfter": 1e9}]
)
async def test_without_a_pause_the_error_has_the_id(tmp_path: Path, era: str, data: Any) -> None:
    refusing = Refusing({method_of(era): 1}, data)
    async with connected(tmp_path, era, refusing) as client:
        with pytest.raises(TaskError, match="too many requests") as refused:
            await run_task(client, "count")
        error = refused.value
        assert error.task_id in "".join(error.__notes__)
        again = TaskHandle(client.session, error.task_id, modern=era != "legacy")
        assert (await again.result()).structured_content == {"result": 42}
    assert (error.code, error.data) == (-32000, data)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (twin.task_id, twin.message) == (error.task_id, error.message)


@era
async def test_a_server_that_never_stops_refusing_is_left(tmp_path: Path, era: str) -> None:
    refusing = Refusing({"tasks/cancel": 1_000}, {"retryAfter": 0})
    async with connected(tmp_path, era, refusing) as client:
        started = await start_task(client, "count")
        assert isinstance(started, TaskHandle)
        with pytest.raises(TaskError) as refused:
            await started.cancel()
    assert refused.value.task_id == started.id
    assert refusing.asked["tasks/cancel"] == 11


@era
async def test_an_answer_that_is_none_is_an_error_with_the_id(tmp_path: Path, era: str) -> None:
    async def nonsense(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        return {"status": "sleeping"} if ctx.method == "tasks/get" else result

    async with connected(tmp_path, era, nonsense) as client:  # pyright: ignore[reportArgumentType]
        started = await start_task(client, "count")
        assert isinstance(started, TaskHandle)
        with pytest.raises(TaskError, match="tasks/get breaks the protocol") as wrong:
            await started.state()
    assert wrong.value.task_id == started.id
    assert "pydantic" not in str(wrong.value)
