"""Servers with sessions: a client that lost its connection gets the rest of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
import uvicorn
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.server.mcpserver import Context, MCPServer

from penstock.contract.options import MCPTool
from penstock.mcp import Sampling, SqliteEvents, StreamingTools, sample, stream_tool, streamed
from penstock.mcp.http import over_http
from penstock.server.http.listening import listen
from tests.mcp.streaming.raw import INITIALIZE
from tests.support.tcp_proxy import TcpProxy
from tests.unit.server.gateway_support import until

ACCEPT = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def server_at(
    path: Path, gate: asyncio.Event
) -> AsyncGenerator[tuple[TcpProxy, MCPTool, httpx.AsyncClient]]:
    """A server behind a wire that can be cut; its tools wait for the gate."""
    sampling = Sampling()
    server: MCPServer[Any] = MCPServer(
        "kept", extensions=[sampling, StreamingTools()], middleware=[sampling]
    )

    @server.tool()
    async def asks(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "asking")
        await gate.wait()
        answer = await sample(ctx, "Which colour?", max_tokens=9)
        return f"It is {answer.text}"

    @server.tool()
    @streamed
    async def counts() -> AsyncIterator[int]:
        for number in range(3):
            yield number
        await gate.wait()
        for number in range(3, 6):
            yield number

    events = SqliteEvents(path)
    app = events.over(server.streamable_http_app(event_store=events, retry_interval=50))
    listener = listen("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    task = asyncio.create_task(running.serve([listener]))
    try:
        await until(lambda: running.started)
        async with TcpProxy(port) as proxy, httpx.AsyncClient() as http:
            yield proxy, MCPTool(f"http://127.0.0.1:{proxy.port}/mcp", "kept"), http
    finally:
        running.should_exit = running.force_exit = True
        await asyncio.wait_for(task, 20)
        await events.aclose()


async def colour(
    context: ClientRequestContext, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="blue")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def test_a_sampled_call_goes_on_after_a_lost_connection(tmp_path: Path) -> None:
    gate, heard = asyncio.Event(), asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with (
        server_at(tmp_path / "events.db", gate) as (proxy, tool, _),
        Client(over_http(tool), mode="legacy", sampling_callback=colour) as client,
    ):
        call = asyncio.create_task(client.call_tool("asks", progress_callback=hear))
        await asyncio.wait_for(heard.wait(), 20)
        await proxy.cut()
        await proxy.mend()
        gate.set()
        result = await asyncio.wait_for(call, 20)
    assert result.structured_content == {"result": "It is blue"}


@pytest.mark.parametrize("opens_early", [True, False])
async def test_a_streamed_call_goes_on_after_a_lost_connection(
    tmp_path: Path, opens_early: bool
) -> None:
    gate = asyncio.Event()
    async with (
        server_at(tmp_path / "events.db", gate) as (proxy, tool, _),
        Client(over_http(tool), mode="legacy") as client,
    ):
        stream = stream_tool(client, "counts")
        found = [(await anext(stream)).data for _ in range(3)]
        accepted = proxy.accepted
        await proxy.cut()
        if opens_early:
            gate.set()
        await proxy.mend()
        if not opens_early:
            await until(lambda: proxy.accepted > accepted)
            gate.set()
        async with asyncio.timeout(20):
            found += [chunk.data async for chunk in stream]
    assert found == list(range(6))


async def test_another_session_gets_nothing_of_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    gate.set()
    async with server_at(tmp_path / "events.db", gate) as (_, tool, http):
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        call: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "counts", "arguments": {}},
        }
        sessions: list[dict[str, str]] = []
        for _ in range(2):
            opened = await http.post(tool.url, json=body, headers=ACCEPT)
            session = opened.headers["mcp-session-id"]
            version = INITIALIZE["protocolVersion"]
            headers = {**ACCEPT, "mcp-session-id": session, "mcp-protocol-version": version}
            sessions.append(headers)
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await http.post(tool.url, json=ready, headers=headers)
        # Both have a request with the same id.
        answers = [await http.post(tool.url, json=call, headers=each) for each in sessions]
        first = answers[0].text.partition("id: ")[2].split()[0]
        again = await http.get(tool.url, headers={**sessions[0], "last-event-id": first})
        stolen = await http.get(tool.url, headers={**sessions[1], "last-event-id": first})
        unknown = await http.get(tool.url, headers={**sessions[1], "last-event-id": "x"})
    assert again.text.count('"id":2') == 1
    assert "data: {" not in stolen.text
    assert "data: {" not in unknown.text


async def test_a_store_that_does_not_see_the_sessions_says_so(tmp_path: Path) -> None:
    events = SqliteEvents(tmp_path / "events.db")
    with pytest.raises(RuntimeError, match=r"events\.over"):
        await events.store_event("1", None)
    await events.aclose()
