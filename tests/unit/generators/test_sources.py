"""MCP servers of a generator: what is refused, who connects, and one bad server among good ones."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Any

import pytest

import penstock
from penstock import Config, Engine, InvalidRequest, MCPTool, ToolFailed, ToolResult, ToolUse
from penstock.config.settings import ModelConfig, ProviderConfig
from penstock.contract.tools import RunnableTool
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp.processes import HttpServer, http_server
from tests.support.services import free_port
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.scenario import Scenario
from tests.support.wire.server import WireServer

URL = "https://mcp.example.com/mcp"
PLAIN = MCPTool(URL, "docs")
BEARER = MCPTool(URL, "docs", {"Authorization": "Bearer x"})
KEYED = MCPTool(URL, "docs", {"X-Key": "x"})
NARROW = MCPTool(URL, "docs", allowed_tools=["search"])
NEAR = MCPTool("https://10.0.0.8/mcp", "docs")
BARE = MCPTool("http://mcp.example.com/mcp", "docs")
ADD = FakeReply(tool_uses=(ToolUse("call_1", "add", {"a": 40, "b": 2}),))


@pytest.fixture(scope="module")
def server() -> Generator[HttpServer]:
    with http_server() as running:
        yield running


def gone(name: str = "gone") -> MCPTool:
    return MCPTool(f"http://127.0.0.1:{free_port()}/mcp", name)


class Broken:
    name = "broken"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def tools(self) -> Sequence[RunnableTool]:
        raise self._error


def engine_of(*targets: str) -> Engine:
    kinds = {target.partition("/")[0] for target in targets}
    settings = {"auth_token": "k", "url": "http://127.0.0.1:9"}
    local = {"embedded": {}, "fake": {}, "bedrock": {"auth_token": "k", "region": "us-east-1"}}
    return Engine(
        Config(
            providers={
                kind: ProviderConfig.model_validate(local.get(kind, settings)) for kind in kinds
            },
            models={"default": ModelConfig(targets=targets)},
        )
    )


@pytest.mark.parametrize(
    ("targets", "natively"),
    [
        (("openai/gpt-6-luna",), "plain bearer keyed narrow"),
        (("anthropic/claude-sonnet-5-5",), "plain bearer narrow"),
        (("gemini/gemini-3.1-pro",), "plain bearer keyed"),
        (("openai-chat/m",), ""),
        (("ollama/m",), ""),
        (("bedrock/anthropic.claude-sonnet-5-5",), ""),
        (("embedded/smollm2",), ""),
        (("fake/echo",), ""),
        # All that may answer must be able to.
        (("openai/gpt-6-luna", "anthropic/claude-sonnet-5-5"), "plain bearer narrow"),
        (("openai/gpt-6-luna", "ollama/m"), ""),
    ],
)
def test_who_connects_is_decided_by_what_the_providers_can(
    targets: tuple[str, ...], natively: str
) -> None:
    tools = {"plain": PLAIN, "bearer": BEARER, "keyed": KEYED, "narrow": NARROW}
    tools |= {"near": NEAR, "bare": BARE}
    engine = engine_of(*targets)
    chosen = [name for name, tool in tools.items() if engine.connects_natively(tool)]
    assert chosen == natively.split()


async def test_a_provider_that_can_connects_to_what_it_can_reach(server: HttpServer) -> None:
    """By itself to a public server, and not to one of ours, unless it is told to."""
    near = MCPTool(server.url, "near")
    told = MCPTool(server.url, "told", mode="native")
    async with WireServer(OpenAIResponses()) as upstream:
        upstream.play(Scenario(text=("Hello.",)))
        provider = ProviderConfig.model_validate({"url": upstream.url, "auth_token": "k"})
        async with penstock.open(Config(providers={"openai": provider})) as engine:
            generator = engine.string_generator(
                "Go.", model="openai/gpt-6-luna", mcp_tools=[PLAIN, near, told]
            )
            await generator.generate()
        (seen,) = upstream.seen
    assert [tool.name for tool in seen.mcp_tools] == ["docs", "told"]
    assert "add" in [tool.name for tool in seen.tools]


async def test_a_provider_that_cannot_is_not_told_to() -> None:
    async with engine_with(FakeProvider()) as engine:
        tool = MCPTool(URL, "docs", mode="native")
        with pytest.raises(penstock.UnsupportedOption, match="mcp_tools"):
            await engine.string_generator("Go.", mcp_tools=[tool]).generate()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (7, "mcp_tools: is 7; give a list"),
        (["https://host/mcp?key=s3cret"], "mcp_tools[0]: is a str; give an MCPTool"),
        ("https://host/mcp?key=s3cret", "mcp_tools[0]: is a str; give an MCPTool"),
        ([FakeProvider], "mcp_tools[0]: is a type; give an MCPTool"),
        ([PLAIN, None], "mcp_tools[1]: is a NoneType; give an MCPTool"),
        ([MCPTool("ftp://host/", "docs", mode="adapter")], "mcp_tools[0].url: ftp://host"),
        ([MCPTool("http://169.254.169.254/mcp", "docs")], "mcp_tools[0].url: 169.254.169.254 is"),
        ([MCPTool(URL, "")], "mcp_tools[0].name: "),
        ([MCPTool(URL, "docs", {"a b": "c"})], "mcp_tools[0].http_headers: "),
        ([MCPTool(URL, "docs", allowed_tools=[])], "mcp_tools[0].allowed_tools: is empty"),
        ([PLAIN, NEAR], "mcp_tools[1].name: 'docs' is the name of another server"),
    ],
)
def test_what_is_no_server_is_refused_at_once(given: Any, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine_with(FakeProvider()).string_generator("Go.", mcp_tools=given)
    assert problem in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_all_that_is_wrong_is_said_together() -> None:
    wrong: Any = [MCPTool("x", "a"), MCPTool("y", "b"), 3]
    with pytest.raises(InvalidRequest) as caught:
        engine_with(FakeProvider()).string_generator("Go.", mcp_tools=wrong)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["mcp_tools[0].url", "mcp_tools[1].url", "mcp_tools[2]"]


@pytest.mark.parametrize("good_first", [True, False])
async def test_one_bad_server_does_not_take_the_others_down(
    server: HttpServer, good_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    tools = [server.tool(), gone()]
    model = FakeProvider([ADD, "Done."])
    async with engine_with(model) as engine:
        generator = engine.string_generator(
            "Go.", mcp_tools=tools if good_first else tools[::-1], tools=[len_of]
        )
        text, metadata = await generator.generate()
    assert (text, metadata.dropped_options) == ("Done.", ("mcp_tools[gone]",))
    assert metadata.as_dict()["dropped_options"] == "mcp_tools[gone]"
    (result,) = model.requests[1].messages[-1].content
    assert isinstance(result, ToolResult)
    assert result.text == "42"
    (logged,) = [each for each in caplog.records if each.name.startswith("penstock")]
    assert "going on without these tools: the MCP server 'gone'" in logged.getMessage()


def len_of(text: str) -> int:
    """Its length."""
    return len(text)


async def test_when_all_are_bad_it_is_an_error() -> None:
    model = FakeProvider()
    async with engine_with(model) as engine:
        generator = engine.string_generator("Go.", mcp_tools=[gone("a"), gone("b")], tools=[len_of])
        with pytest.raises(ToolFailed, match="the MCP server 'a' cannot be reached"):
            await generator.generate()
        with pytest.raises(ToolFailed, match="the MCP server 'a' cannot be reached"):
            await anext(generator.stream())
    assert model.requests == []


async def test_an_error_that_is_no_servers_fault_is_raised(server: HttpServer) -> None:
    async with engine_with(FakeProvider()) as engine:
        sources = [server.tool(), Broken(ZeroDivisionError("oops"))]
        with pytest.raises(ZeroDivisionError, match="oops"):
            await engine.string_generator("Go.", mcp_tools=sources).generate()
