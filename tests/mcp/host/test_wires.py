"""From a server's question to a provider's wire and back: nothing on the way is scripted away."""

from __future__ import annotations

import asyncio

import pytest

from penstock import ToolChoice
from penstock.mcp import SamplingHost
from tests.mcp.host.connections import RefusedError, connected, params
from tests.mcp.sampling.checks.support import WEATHER, call, results
from tests.mcp.sampling.requirement import Way
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Call, Failure, Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.sampling_support import wire_engine

WAYS: list[Way] = [("memory", "legacy"), ("http", "modern")]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("dialect", [OpenAIChat, Anthropic])
async def test_every_parameter_is_on_the_wire(
    way: Way, dialect: type[OpenAIChat | Anthropic]
) -> None:
    kind = "anthropic" if dialect is Anthropic else "openai-chat"
    async with WireServer(dialect()) as upstream:
        asked = params(
            "Weather?",
            call("1"),
            results("1"),
            systemPrompt="Be brief.",
            temperature=0.5,
            stopSequences=["END"],
            tools=[WEATHER],
            toolChoice={"mode": "required"},
        )
        upstream.play(Scenario(calls=(Call.of("2", "weather", {"city": "Kiel"}),), stop="tool_use"))
        async with wire_engine(upstream.url, kind) as engine:
            host = SamplingHost(engine, approval="always")
            async with connected(host, way) as server:
                result = await server.ask(asked)
        (seen,) = upstream.seen
    assert (seen.system, seen.temperature, seen.stop) == ("Be brief.", 0.5, ("END",))
    assert (seen.max_tokens, seen.tool_choice) == (100, ToolChoice("required"))
    assert [tool.name for tool in seen.tools] == ["weather"]
    assert [message.role for message in seen.messages] == ["user", "assistant", "user"]
    assert result["stopReason"] == "toolUse"
    assert result["content"]["input"] == {"city": "Kiel"}


async def test_what_a_provider_says_stays_with_the_host() -> None:
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(failure=Failure("authentication")))
        async with wire_engine(upstream.url) as engine:
            host = SamplingHost(engine, approval="always")
            async with connected(host) as server:
                with pytest.raises(RefusedError) as caught:
                    await server.ask()
    assert (caught.value.code, caught.value.message) == (
        -32000,
        "the host's model could not answer",
    )


async def test_a_client_that_leaves_stops_the_provider() -> None:
    pause = Pause(after=0)
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(Scenario(text=("never",), pause=pause))
        async with wire_engine(upstream.url) as engine:
            host = SamplingHost(engine, approval="always")
            async with connected(host, ("memory", "modern")) as server:
                asking = asyncio.create_task(server.ask())
                await pause.reached.wait()
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                assert host.limits("asking").running == 0
