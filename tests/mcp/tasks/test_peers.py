"""Tasks of a server that others wrote, driven by our helper."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from penstock.mcp.tasks import TaskHandle, TaskState, run_task, start_task
from tests.mcp.tasks.conftest import client_of
from tests.mcp.tasks.test_tasks import until
from tests.support.mcp import foreign

RESEARCH = "simulate-research-query"


@pytest.fixture(scope="session")
def everything() -> StdioServerParameters:
    return foreign.everything()


async def pick_first(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The first of what there is to choose from."""
    assert isinstance(params, types.ElicitRequestFormParams)
    fields: dict[str, Any] = params.requested_schema["properties"]
    content = {
        name: field["oneOf"][0]["const"] if "oneOf" in field else field["enum"][0]
        for name, field in fields.items()
    }
    return types.ElicitResult(action="accept", content=content)


def connect(everything: StdioServerParameters) -> Client:
    return client_of(everything, "legacy", elicitation_callback=pick_first)


async def test_research_is_done_as_a_task(everything: StdioServerParameters) -> None:
    seen: list[tuple[str, str | None]] = []

    async def heard(state: TaskState) -> None:
        seen.append((state.status, state.status_message))

    async with connect(everything) as client:
        result = await run_task(client, RESEARCH, {"topic": "tides"}, ttl=60, on_status=heard)
    assert not result.is_error
    assert "tides" in str(result.content)
    assert seen[0][0] == "working"
    assert seen[-1][0] == "completed"
    assert len({message for _, message in seen}) > 2


async def test_what_the_task_asks_is_answered(everything: StdioServerParameters) -> None:
    async with connect(everything) as client:
        asked = {"topic": "python", "ambiguous": True}
        result = await run_task(client, RESEARCH, asked, ttl=60)
    assert not result.is_error
    assert "python" in str(result.content)


async def test_research_is_cancelled(everything: StdioServerParameters) -> None:
    async with connect(everything) as client:
        task = await start_task(client, RESEARCH, {"topic": "tides"}, ttl=60)
        assert isinstance(task, TaskHandle)
        waiting = asyncio.create_task(task.result())
        await until(task, "working")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await task.state()).status == "cancelled"
