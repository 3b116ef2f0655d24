"""A streaming tool that is called as a task: its chunks are the task's progress."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.mcp.streaming.connections import SECONDS
from tests.mcp.streaming.raw import JSON, process, tool_call

SERVER = """
import sys
from collections.abc import AsyncIterator
from mcp.server.mcpserver import MCPServer
from penstock.mcp import StreamingTools, streamed
from penstock.mcp.tasks import SqliteTasks, Tasks

tasks = Tasks(SqliteTasks(sys.argv[1]), tools={"tell": "optional"})
extensions = [StreamingTools(), tasks]
server = MCPServer("both", extensions=extensions[::int(sys.argv[2])], middleware=[tasks])

@server.tool()
@streamed
async def tell(count: int) -> AsyncIterator[str]:
    for at in range(count):
        yield f"w{at} "

server.run("stdio")
"""


@pytest.mark.parametrize("order", ["1", "-1"], ids=["streaming-first", "tasks-first"])
async def test_chunks_are_the_progress_of_the_task_and_the_whole_is_its_result(
    order: str, tmp_path: Path
) -> None:
    async with process("-c", SERVER, str(tmp_path / "tasks.db"), order) as server:
        body = tool_call("legacy", "tell", {"count": 3}, token="its", task={"ttl": 300_000})
        await server.send(body)
        id, chunks = "", list[JSON]()
        # The task's end and its last chunks are told on different ways, and in either order.
        result: JSON | None = None
        async with asyncio.timeout(SECONDS):
            while result is None or len(chunks) < 3:
                message = await server.next()
                if message.get("id") == body["id"]:
                    id = message["result"]["task"]["taskId"]
                    wait = {"jsonrpc": "2.0", "id": "wait", "method": "tasks/result"}
                    await server.send({**wait, "params": {"taskId": id}})
                elif message.get("id") == "wait":
                    result = message["result"]
                elif message["method"] == "notifications/progress" and (
                    "dev.penstock/chunk" in message["params"]["_meta"]
                ):
                    chunks.append(message["params"])
    assert result["structuredContent"] == {"result": "w0 w1 w2 "}
    assert [(it["progressToken"], it["progress"], it["message"]) for it in chunks] == [
        ("its", 1, "w0 "),
        ("its", 2, "w1 "),
        ("its", 3, "w2 "),
    ]
    metas = [chunk["_meta"] for chunk in chunks]
    assert [meta["dev.penstock/chunk"]["seq"] for meta in metas] == [0, 1, 2]
    related = [meta["io.modelcontextprotocol/related-task"] for meta in metas]
    assert related == [{"taskId": id}] * 3
