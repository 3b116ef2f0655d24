"""Tasks from their beginning to their end, in both eras, in memory, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import secrets

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from penstock.mcp.tasks import TaskHandle, TaskState, resume_task, run_task, start_task
from tests.mcp.tasks.conftest import Link
from tests.mcp.tasks.server import BROKEN


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def started(client: Client, name: str, **arguments: object) -> TaskHandle:
    task = await start_task(client, name, arguments)
    assert isinstance(task, TaskHandle)
    return task


async def until(task: TaskHandle, status: str) -> TaskState:
    while (state := await task.state()).status != status:
        assert state.is_open, f"{state.status}, not {status}"
        await asyncio.sleep(0.01)
    return state


async def test_the_result_of_a_task_is_that_of_the_call(link: Link) -> None:
    async with link.open() as client:
        states: list[TaskState] = []

        async def heard(state: TaskState) -> None:
            states.append(state)

        result = await run_task(client, "add", {"a": 1, "b": 41}, ttl=60, on_status=heard)
        assert text_of(result) == "42"
        assert result.structured_content == {"result": 42}
        assert not result.is_error
        assert states[-1].status == "completed"
        assert states[-1].task_id == states[0].task_id


async def test_a_tool_that_knows_no_tasks_is_simply_called(link: Link) -> None:
    async with link.open() as client:
        result = await start_task(client, "plain", {"word": "ebb"})
        assert isinstance(result, types.CallToolResult)
        assert text_of(result) == "ebb"


async def test_a_task_asks_the_user(link: Link) -> None:
    async with link.open() as client:
        assert text_of(await run_task(client, "ask_word")) == "tide"


async def test_a_task_asks_the_model(link: Link) -> None:
    async with link.open() as client:
        assert text_of(await run_task(client, "ask_model")) == "hello"


@pytest.mark.parametrize("tool", ["resolve_word", "resolve_first"])
async def test_what_resolvers_ask_is_answered(link: Link, tool: str) -> None:
    async with link.open() as client:
        assert text_of(await run_task(client, tool)) == "tide"


async def test_progress_is_told(link: Link) -> None:
    async with link.open() as client:
        said: list[tuple[float, float | None, str | None]] = []
        messages: list[str | None] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            said.append((progress, total, message))

        async def heard(state: TaskState) -> None:
            messages.append(state.status_message)

        task = await started(client, "steps", count=100)
        result = await task.result(on_status=heard, on_progress=progressed)
        assert text_of(result) == "finished"
        if link.era == "legacy":
            # Those of before the client listened are not repeated.
            assert (100, 100, "step 100") in said
            assert [each[0] for each in said] == sorted(each[0] for each in said)
        assert any(message and message.startswith("step ") for message in messages)


async def test_a_cancelled_task_stops_its_tool(link: Link) -> None:
    async with link.open() as client:
        label = secrets.token_hex(8)
        task = await started(client, "hang", label=label)
        await task.cancel()
        state = await until(task, "cancelled")
        assert state.status_message == "cancelled by request"
        with pytest.raises(MCPError, match="cancelled by request"):
            await task.result()
        while True:
            seen = await client.call_tool("seen")
            assert seen.structured_content is not None
            if label in seen.structured_content["result"]:
                break
            await asyncio.sleep(0.01)


async def test_whoever_stops_waiting_cancels_the_task(link: Link) -> None:
    async with link.open() as client:
        task = await started(client, "hang", label="one")
        waiting = asyncio.create_task(task.result())
        await until(task, "working")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(task, "cancelled")


async def test_an_error_of_the_tool_is_its_result(link: Link) -> None:
    async with link.open() as client:
        task = await started(client, "fail")
        result = await task.result()
        assert result.is_error
        assert "no luck" in text_of(result)
        # The modern era keeps the word `failed` for errors of the protocol.
        assert (await task.state()).status == ("failed" if link.era == "legacy" else "completed")


async def test_an_error_of_the_protocol_fails_the_task(link: Link) -> None:
    async with link.open() as client:
        task = await started(client, "break_off")
        with pytest.raises(MCPError) as raised:
            await task.result()
        assert (raised.value.code, raised.value.message) == (BROKEN, "broken off")
        assert raised.value.data == {"why": "a test"}
        state = await task.state()
        assert (state.status, state.status_message) == ("failed", "broken off")


async def test_a_task_is_taken_up_again_by_its_id(link: Link) -> None:
    async with link.open() as client:
        task = await started(client, "add", a=1, b=2)
        assert text_of(await resume_task(client, task.id).result()) == "3"
        assert text_of(await resume_task(client, task.id).result()) == "3"


async def test_an_unknown_task_is_an_invalid_parameter(link: Link) -> None:
    async with link.open() as client:
        for ask in (resume_task(client, "nothing").state, resume_task(client, "nothing").cancel):
            with pytest.raises(MCPError, match="'nothing' is unknown here") as raised:
                await ask()
            assert raised.value.code == types.INVALID_PARAMS


async def test_ids_cannot_be_guessed(link: Link) -> None:
    async with link.open() as client:
        ids = [(await started(client, "add", a=1, b=2)).id for _ in range(3)]
        assert len(set(ids)) == 3
        assert all(len(id) >= 32 for id in ids)
