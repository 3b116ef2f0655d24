"""Servers and clients that others wrote: server-everything, and fastmcp in both roles."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp_types import TextContent

from penstock.mcp import SamplingHost, SamplingPolicy, ServerRule, ToolAdapter
from penstock.testing import FakeProvider, engine_with
from tests.mcp.host.connections import shared_server
from tests.mcp.sampling.checks.support import Asked
from tests.support.environment import INSTALL_SECONDS, required_python
from tests.support.mcp import foreign

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LOCK = ROOT / "requirements" / "client-fastmcp.txt"
# The first test of a process may have to install the packages.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 60)


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Before a test hides the proxies that pip and npm may need."""
    foreign.everything()
    required_python(LOCK)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_server_everything_is_answered(transport: str) -> None:
    """`trigger-sampling-request` is offered only to clients that declare sampling."""
    asked, model = Asked(), FakeProvider(["The tide is out."])
    async with engine_with(model) as engine:
        host = SamplingHost(engine, approval=asked)
        if transport == "stdio":
            text = await _triggered(host, foreign.everything())
        else:
            with foreign.everything_over_http() as server:
                text = await _triggered(host, server.url)
    assert "The tide is out." in text
    (seen,) = model.requests
    assert "How is the tide?" in seen.messages[0].text
    assert (seen.max_tokens, seen.temperature) == (40, 0.7)
    assert [review.stage for review in asked.shown] == ["request", "answer"]
    assert asked.shown[0].server == "everything"


async def test_server_everything_hears_a_no() -> None:
    model = FakeProvider()
    async with engine_with(model) as engine:
        host = SamplingHost(engine, approval=Asked([False]))
        text = await _triggered(host, foreign.everything())
    assert "rejected" in text
    assert model.requests == []


async def _triggered(host: SamplingHost, target: object) -> str:
    async with host.client("everything", target) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "trigger-sampling-request" in names
        arguments = {"prompt": "How is the tide?", "maxTokens": 40}
        result = await client.call_tool("trigger-sampling-request", arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_fastmcps_client_takes_the_callback(mode: str) -> None:
    server = await asyncio.to_thread(shared_server)
    process = await asyncio.create_subprocess_exec(
        *(str(required_python(LOCK)), str(HERE / "fastmcp_host.py"), server.url, mode),
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    ends = json.loads(said)
    assert ends["declared"] == {"tools": {}}
    assert ends["text"]["result"]["content"] == {"type": "text", "text": "Hi there."}
    calls = ends["tools"]["result"]
    assert calls["stopReason"] == "toolUse"
    assert [block["id"] for block in calls["content"]] == ["1", "2"]
    assert ends["denied"]["error"]["code"] == -1


async def test_fastmcps_server_is_answered() -> None:
    script = str(HERE / "fastmcp_server.py")
    target = StdioServerParameters(
        command=str(required_python(LOCK)), args=[script], env=get_default_environment()
    )
    model = FakeProvider(["Short."])
    policy = SamplingPolicy(servers={"fast": ServerRule(max_tokens=20)})
    async with engine_with(model) as engine:
        host = SamplingHost(engine, policy=policy)
        async with host.client("fast", target, mode="legacy") as client:
            result = await client.call_tool("summarise", {"text": "A long story."})
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert block.text == "Short."
    (seen,) = model.requests
    assert (seen.system_prompt, seen.temperature, seen.max_tokens) == ("Be brief.", 0.2, 20)
    assert seen.messages[0].text == "Summarise: A long story."


async def test_a_tool_of_a_generator_may_sample() -> None:
    model = FakeProvider(["The tide is out."])
    async with engine_with(model) as engine:
        options = SamplingHost(engine, approval="always").callback("everything").options
        async with ToolAdapter(foreign.everything(), name="everything", sampling=options) as tools:
            arguments = {"prompt": "How is the tide?", "maxTokens": 40}
            result = await tools.call("trigger-sampling-request", arguments)
    assert "The tide is out." in result.text
    assert len(model.requests) == 1
