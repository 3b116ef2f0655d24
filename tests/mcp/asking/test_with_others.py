"""`sample` in tools that stream, and in tools that run as tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.server.extension import Extension
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError

from penstock import SamplingRejected
from penstock.mcp import Sampling, StreamingTools, sample, stream_tool, streamed
from penstock.mcp.tasks import SqliteTasks, TaskClient, Tasks, run_task
from tests.mcp.asking.hosts import ERAS, Host, said

era = pytest.mark.parametrize("era", ERAS)


def build(tasks: Tasks, extensions: Sequence[Extension]) -> tuple[MCPServer[Any], Counter[str]]:
    runs: Counter[str] = Counter()
    server: MCPServer[Any] = MCPServer("both", extensions=list(extensions), middleware=[tasks])

    @server.tool()
    async def research(ctx: Context) -> str:
        """Two questions, one after the other."""
        runs["research"] += 1
        first = await sample(ctx, "one", max_tokens=9)
        await ctx.report_progress(1, 2, "half")
        second = await sample(ctx, f"two after {first.text}", max_tokens=9)
        return f"{first.text} | {second.text}"

    @server.tool()
    async def refused(ctx: Context) -> str:
        """Says what becomes of a question."""
        try:
            return (await sample(ctx, "May I?", max_tokens=9)).text
        except SamplingRejected:
            return "rejected"

    @server.tool()
    @streamed
    async def tell(ctx: Context) -> AsyncIterator[str]:
        """Pieces, and a question before them."""
        answer = await sample(ctx, "begin", max_tokens=9)
        yield answer.text
        yield " end"

    _ = research, refused, tell
    return server, runs


@pytest.fixture(params=["sampling first", "sampling last"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The order in which a server names its extensions makes no difference."""
    store = SqliteTasks(tmp_path / "tasks.db")
    tasks = Tasks(store, tools={"research": "optional", "refused": "optional"})
    extensions: list[Extension] = [StreamingTools(), tasks]
    at = 0 if request.param == "sampling first" else len(extensions)
    extensions.insert(at, Sampling())
    async with tasks:
        yield build(tasks, extensions)


@era
async def test_a_task_asks_and_waits(served: Any, era: str) -> None:
    server, runs = served
    host = Host()
    async with host.client(server, era, extensions=[TaskClient()]) as client:
        result = await run_task(client, "research")
    assert said(result) == "[one] | [two after [one]]"
    assert len(host.asked) == 2
    # Unlike a call, a task has a way to ask, and so need not run again.
    assert runs["research"] == 1


@era
async def test_the_same_tool_is_called_without_a_task(served: Any, era: str) -> None:
    server, _ = served
    async with Host().client(server, era) as client:
        assert said(await client.call_tool("research")) == "[one] | [two after [one]]"


@era
async def test_a_refusal_ends_a_task(served: Any, era: str) -> None:
    server, _ = served
    host = Host([mcp_types.ErrorData(code=-1, message="no")])
    async with host.client(server, era, extensions=[TaskClient()]) as client:
        if era == "legacy":
            assert said(await run_task(client, "refused")) == "rejected"
        else:
            with pytest.raises(MCPError):
                await run_task(client, "refused")


@era
async def test_a_tool_that_streams_samples(served: Any, era: str) -> None:
    server, _ = served
    async with Host().client(server, era) as client:
        stream = stream_tool(client, "tell")
        assert [chunk.text async for chunk in stream] == ["[begin]", " end"]
