"""Connections to MCP servers: one for all generators, closed with the engine or the loop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

import penstock
from penstock import MCPTool, ToolResult, ToolUse
from penstock.mcp.connections import ToolServers
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp.processes import HttpServer, http_server, up_to

ADD = FakeReply(tool_uses=(ToolUse("call_1", "add", {"a": 40, "b": 2}),))
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server() -> Generator[HttpServer]:
    with http_server() as running:
        yield running


def answers(provider: FakeProvider) -> list[str]:
    found = [request.messages[-1].content[0] for request in provider.requests]
    return [part.text for part in found if isinstance(part, ToolResult)]


async def test_two_hundred_generators_share_one_connection() -> None:
    model = FakeProvider([ADD] * 200)
    # It never says that it will tell of changes, after which the list is fetched once more.
    with http_server(up_to("hold")) as server:
        async with engine_with(model) as engine:
            generators = [
                engine.string_generator("Go.", mcp_tools=[server.tool()]) for _ in range(200)
            ]
            await asyncio.gather(*(generator.generate() for generator in generators))
            counted = await _counted(engine, server)
    assert answers(model)[:200] == ["42"] * 200
    assert counted["tools/call"] == 201
    assert (counted["server/discover"], counted["tools/list"]) == (1, 1)


async def _counted(engine: penstock.Engine, server: HttpServer) -> dict[str, int]:
    source: Any = engine.tool_source(server.tool())
    return json.loads((await source.call("requests", {})).text)


def test_a_server_is_known_by_all_that_is_said_of_it() -> None:
    servers = ToolServers()
    same = [MCPTool("http://h/", "a"), MCPTool("http://h/", "a", mode="adapter")]
    other = [
        MCPTool("http://h/", "b"),
        MCPTool("http://i/", "a"),
        MCPTool("http://h/", "a", {"X-Key": "1"}),
        MCPTool("http://h/", "a", allowed_tools=["x"]),
        MCPTool("http://h/", "a", allow_link_local=True),
    ]
    assert len({id(servers.source(tool)) for tool in same}) == 1
    assert len({id(servers.source(tool)) for tool in [*same, *other]}) == 6


async def test_closing_the_engine_closes_the_connections(server: HttpServer) -> None:
    before = asyncio.all_tasks()
    async with engine_with(FakeProvider([ADD])) as engine:
        await engine.string_generator("Go.", mcp_tools=[server.tool()]).generate()
        assert asyncio.all_tasks() > before
    assert asyncio.all_tasks() == before


async def test_closing_the_engine_ends_a_call_that_hangs(server: HttpServer) -> None:
    hang = FakeReply(tool_uses=(ToolUse("call_1", "hang", {"name": "x"}),))
    engine = engine_with(FakeProvider([hang, "Done."]))
    stream = engine.string_generator("Go.", mcp_tools=[server.tool()]).stream()
    async for event in stream:
        if isinstance(event, penstock.ToolProgress):
            break
    await engine.aclose()
    (ended,) = [event async for event in stream if isinstance(event, penstock.ToolEnded)]
    assert ended.is_error
    (said,) = ended.content
    assert isinstance(said, penstock.Text)
    assert "cannot be reached: " in said.text


SCRIPT = """
import asyncio, sys
import penstock

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    generator = penstock.string_generator(
        "Go.", provider="fake", mcp_tools=[penstock.MCPTool(sys.argv[1], "tests")],
        tool_choice=penstock.ToolChoice.tool("add"),
    )
    print((await generator.generate())[0])

asyncio.run(main())
asyncio.run(main())
"""


def test_a_script_ends_cleanly_without_closing_anything(server: HttpServer) -> None:
    done = _run(SCRIPT, server.url, "-W", "error", "-X", "dev")
    assert (done.stdout, done.stderr, done.returncode) == ("0\n0\n", "", 0)


WITHOUT_MCP = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mcp", "mcp_types", "httpx2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import penstock

penstock.string_generator("Go.", provider="fake")  # needs no such package
make = penstock.open().string_generator if sys.argv[1] == "engine" else penstock.string_generator
where = {} if sys.argv[1] == "engine" else {"provider": "fake"}
try:
    make("Go.", mcp_tools=[penstock.MCPTool("http://127.0.0.1:9/mcp", "docs")], **where)
except penstock.ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize("made", ["engine", "alone"])
def test_without_the_package_the_remedy_is_told_at_once(made: str) -> None:
    done = _run(WITHOUT_MCP, made)
    assert (done.stdout, done.stderr) == (
        "MCP tools need the package mcp: pip install 'penstock[mcp]'\n",
        "",
    )


def _run(script: str, argument: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", script, argument],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
