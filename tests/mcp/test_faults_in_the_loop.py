"""What docs/tools.md says of MCP servers and models that fail in the middle of a run."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock import (
    Chunk,
    Complete,
    Error,
    MalformedResponse,
    MCPTool,
    ToolEnded,
    ToolFailed,
    ToolProgress,
    ToolResult,
    ToolUse,
)
from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp.processes import http_server
from tests.support.services import free_port
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Call, Scenario
from tests.support.wire.server import WireServer

DONE = "Done."
LIMIT_S = 30


def _calls(name: str, /, **arguments: object) -> FakeReply:
    return FakeReply(tool_uses=(ToolUse("call", name, arguments),))


def _gone(name: str = "gone") -> MCPTool:
    return MCPTool(f"http://127.0.0.1:{free_port()}/mcp", name)


async def test_a_server_killed_in_mid_call_is_told_to_the_model_and_connected_anew() -> None:
    fake = FakeProvider([_calls("hang", name="x"), _calls("add", a=1, b=2), DONE])
    ended: list[ToolEnded] = []
    with http_server() as server:
        async with engine_with(fake) as engine, asyncio.timeout(LIMIT_S):
            generator = engine.string_generator("Go.", mcp_tools=[server.tool()])
            async with generator.stream() as stream:
                async for event in stream:
                    if isinstance(event, ToolProgress):
                        assert event.message == "hanging"
                        server.kill()
                    elif isinstance(event, ToolEnded):
                        ended.append(event)
                        if event.is_error:
                            await asyncio.to_thread(server.start)
                assert (await stream.result())[0] == DONE
    assert [(event.name, event.is_error) for event in ended] == [("hang", True), ("add", False)]
    (told,) = fake.requests[1].messages[-1].content
    assert isinstance(told, ToolResult)
    assert told.text.startswith("ToolFailed: the MCP server 'tests' cannot be reached: ")


async def test_a_tool_that_answers_as_failed_is_told_or_raised() -> None:
    fake = FakeProvider([_calls("fail"), DONE, _calls("fail")])
    with http_server() as server:
        async with engine_with(fake) as engine, asyncio.timeout(LIMIT_S):
            generator = engine.string_generator("Go.", mcp_tools=[server.tool()])
            assert (await generator.generate())[0] == DONE
            raising = engine.string_generator("Go.", mcp_tools=[server.tool()], tool_errors="raise")
            with pytest.raises(ToolFailed, match="no luck"):
                await raising.generate()
    (told,) = fake.requests[1].messages[-1].content
    assert isinstance(told, ToolResult)
    assert told.is_error
    assert "no luck" in told.text


async def test_a_server_that_is_not_there_takes_no_other_down() -> None:
    with http_server() as server:
        async with engine_with(FakeProvider([_calls("add", a=1, b=2)])) as engine:
            generator = engine.string_generator("Go.", mcp_tools=[_gone(), server.tool()])
            async with asyncio.timeout(LIMIT_S):
                text, metadata = await generator.generate()
    assert (text, metadata.tool_rounds) == ("3", 1)
    assert metadata.dropped_options == ("mcp_tools[gone]",)


async def test_no_server_at_all_is_a_failure_of_the_run() -> None:
    fake = FakeProvider()
    async with engine_with(fake) as engine, asyncio.timeout(LIMIT_S):
        generator = engine.string_generator("Go.", mcp_tools=[_gone("one"), _gone("two")])
        with pytest.raises(ToolFailed, match="'one' cannot be reached"):
            await generator.generate()
    assert fake.requests == []


def level(lake: str) -> float:
    """The water level of a lake."""
    return 318.0


BROKEN = Scenario(calls=(Call("1", "level", ('{"la',)),), stop="tool_use")


async def test_arguments_that_are_no_json_are_left_to_the_next_target() -> None:
    async with WireServer(OpenAIChat()) as first, WireServer(OpenAIChat()) as second:
        config = Config(
            providers={
                "first": ProviderConfig(kind="openai-chat", url=first.url),
                "second": ProviderConfig(kind="openai-chat", url=second.url),
            },
            models={"default": ModelConfig(targets=("first/m", "second/m"))},
            pool=PoolConfig(retries=0),
        )
        async with penstock.open(config) as engine, asyncio.timeout(LIMIT_S):
            generator = engine.string_generator("Go.", tools=[level])
            first.play(BROKEN)
            second.play(Scenario(text=(DONE,)))
            text, metadata = await generator.generate()
            assert (text, metadata.provider, metadata.attempts) == (DONE, "second", 2)
            # A stream that has begun cannot go on elsewhere.
            first.play(BROKEN)
            async with generator.stream() as stream:
                events = [event async for event in stream]
    assert not any(isinstance(event, Chunk | Complete) for event in events)
    assert isinstance(events[-1], Error)
    assert isinstance(events[-1].error, MalformedResponse)
    assert "'level' are not JSON" in str(events[-1].error)
