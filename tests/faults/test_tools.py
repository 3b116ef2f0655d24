"""What can go wrong with tools, each by its name, from the model's call to what becomes of it.

A fault of a tool is told to the model as a failed result, so that it can do better, and is raised
as ToolFailed by `tool_errors="raise"`. A fault of a server that has no tools to offer leaves the
server out. A fault of the model ends the run with an error, unless it can be told. None takes
longer than the limit that holds for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp import StdioServerParameters

import penstock
from penstock import (
    Config,
    Error,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    SamplingRequest,
    ToolEnded,
    ToolFailed,
    ToolProgress,
    ToolResult,
    ToolUse,
)
from penstock.config.settings import PoolConfig, ProviderConfig
from penstock.mcp import ToolAdapter
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp.processes import http_server, misbehaving_server, stdio_server
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Call, Scenario
from tests.support.wire.server import WireServer

pytestmark = pytest.mark.timeout(60)
SHORT_S = 0.5
"""A limit that is meant to be met."""
AMPLE_S = 20.0
"""A limit that is not."""


def told(request: SamplingRequest) -> ToolResult:
    """What the model is told of its call."""
    (result,) = request.messages[-1].content
    assert isinstance(result, ToolResult)
    return result


# Functions


def raises() -> str:
    """Fails."""
    raise LookupError("no such page")


async def hangs() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


def hangs_in_a_thread() -> str:
    """Ends when the test is over, as a thread cannot be stopped."""
    RELEASED.wait(AMPLE_S)
    return ""


RELEASED = threading.Event()


@contextlib.contextmanager
def released() -> Generator[None]:
    """Before the event loop ends, which waits for its threads."""
    RELEASED.clear()
    try:
        yield
    finally:
        RELEASED.set()


def hundred_megabytes() -> str:
    """Too much."""
    return "x" * 100_000_000


def hundred_megabytes_of_bytes() -> bytes:
    """Too much of what is nothing."""
    return bytes(100_000_000)


def returns_bytes() -> bytes:
    """No picture."""
    return b"\x00\x01"


def returns_itself() -> list[Any]:
    """Never ends, in its own way."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


async def cancels_itself() -> str:
    """As a library might that gives up."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "limit_s", "reason"),
    [
        (raises, AMPLE_S, "LookupError: no such page"),
        (hangs, SHORT_S, "the tool took longer than 0.5 s"),
        (hangs_in_a_thread, SHORT_S, "the tool took longer than 0.5 s"),
        (hundred_megabytes, AMPLE_S, "100,000,000 bytes, and 1,000,000 are the limit"),
        (hundred_megabytes_of_bytes, AMPLE_S, "100,000,000 bytes that are no picture"),
        (returns_bytes, AMPLE_S, "2 bytes that are no picture"),
        (returns_itself, AMPLE_S, "has no JSON form"),
        (cancels_itself, AMPLE_S, "the tool was cancelled"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_function_that(function: Callable[[], Any], limit_s: float, reason: str) -> None:
    call = FakeReply(tool_uses=(ToolUse("call_1", function.__name__, {}),))
    model = FakeProvider([call, "Done.", call])
    with released():
        async with engine_with(model) as engine, asyncio.timeout(AMPLE_S):
            text, metadata = await engine.string_generator(
                "Go.", tools=[function], tool_timeout=limit_s
            ).generate()
            assert (text, metadata.tool_rounds) == ("Done.", 1)
            raising = engine.string_generator(
                "Go.", tools=[function], tool_timeout=limit_s, tool_errors="raise"
            )
            with pytest.raises(ToolFailed) as caught:
                await raising.generate()
    result = told(model.requests[1])
    assert result.is_error
    assert reason in result.text
    assert reason in str(caught.value)
    assert function.__name__ in str(caught.value)


# Servers whose call goes wrong


@pytest.mark.parametrize(
    ("what", "limit_s", "reason"),
    [
        ("never-answers", SHORT_S, "the tool took longer than 0.5 s"),
        ("answers-somebody-else", SHORT_S, "the tool took longer than 0.5 s"),
        ("hundred-megabytes", SHORT_S, "the tool took longer than 0.5 s"),
        ("dies-in-mid-call", AMPLE_S, "the MCP server 'bad' cannot be reached: "),
        ("answers-with-an-error", AMPLE_S, "the MCP server 'bad' refuses: I would rather not"),
        ("no-result-at-all", AMPLE_S, "the MCP server 'bad' breaks the protocol in content: "),
        ("unknown-content", AMPLE_S, "the MCP server 'bad' breaks the protocol in content.0"),
    ],
)
async def test_a_server_that_in_a_call(what: str, limit_s: float, reason: str) -> None:
    call = FakeReply(tool_uses=(ToolUse("call_1", "look", {}),))
    model = FakeProvider([call, "Done."])
    async with (
        ToolAdapter(misbehaving_server(what), name="bad", timeout=AMPLE_S) as adapter,
        engine_with(model) as engine,
        asyncio.timeout(AMPLE_S),
    ):
        text, _ = await engine.string_generator(
            "Go.", mcp_tools=[adapter], tool_timeout=limit_s
        ).generate()
    assert text == "Done."
    assert told(model.requests[1]).is_error
    assert reason in told(model.requests[1]).text


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("garbage-between-messages", "fine"),
        ("nothing-that-it-calls-a-picture", "[image/png of 0 bytes, which this model"),
    ],
)
async def test_a_server_that_is_understood_all_the_same(what: str, said: str) -> None:
    call = FakeReply(tool_uses=(ToolUse("call_1", "look", {}),))
    model = FakeProvider([call, "Done."])
    async with (
        ToolAdapter(misbehaving_server(what), name="odd") as adapter,
        engine_with(model) as engine,
    ):
        await engine.string_generator("Go.", mcp_tools=[adapter]).generate()
    assert not told(model.requests[1]).is_error
    assert said in told(model.requests[1]).text


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (2_000_000, "2,000,000 bytes, and 1,000,000 are the limit"),
        (100_000_000, "the MCP server 'tests' cannot be reached: "),
    ],
)
async def test_a_server_over_http_that_answers_too_much(era: str, size: int, reason: str) -> None:
    call = FakeReply(tool_uses=(ToolUse("call_1", "much", {"size": size}),))
    model = FakeProvider([call, "Done."])
    with http_server() as server:
        async with ToolAdapter(server.tool(), era=era) as adapter, engine_with(model) as engine:
            await engine.string_generator("Go.", mcp_tools=[adapter]).generate()
            assert reason in told(model.requests[1]).text
            assert (await adapter.call("add", {"a": 1, "b": 2})).text == "3"


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_that_is_killed_in_mid_call(era: str) -> None:
    """The call that was under way is not repeated, for it may have had effects."""
    call = FakeReply(tool_uses=(ToolUse("call_1", "hang", {"name": "x"}),))
    model = FakeProvider([call, "Done."])
    with http_server() as server:
        async with ToolAdapter(server.tool(), era=era) as adapter, engine_with(model) as engine:
            async with engine.string_generator("Go.", mcp_tools=[adapter]).stream() as stream:
                async for event in stream:
                    if isinstance(event, ToolProgress):
                        server.kill()
                    elif isinstance(event, ToolEnded):
                        server.start()
                        assert event.is_error
                text, _ = await stream.result()
            assert text == "Done."
            assert "'tests' cannot be reached" in told(model.requests[1]).text
            stopped = await adapter.call("stopped", {})
            assert stopped.structured_content == {"result": []}


# Servers that have no proper list


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("thousand-tools", 1000),
        ("endless-pages", 101),
        ("same-page-for-ever", 1),
        ("same-tool-twice", 1),
        ("no-tools", 0),
        ("garbage-between-messages", 1),
    ],
)
async def test_a_list_that_can_be_used(what: str, count: int) -> None:
    model = FakeProvider(["Done."])
    async with (
        ToolAdapter(misbehaving_server(what), name="odd", timeout=AMPLE_S) as adapter,
        engine_with(model) as engine,
    ):
        await engine.string_generator("Go.", mcp_tools=[adapter]).generate()
    names = [tool.name for tool in model.requests[0].tools]
    assert (len(names), len(set(names))) == (count, count)


@pytest.mark.parametrize(
    ("server", "limit_s", "reason"),
    [
        (misbehaving_server("never-lists"), SHORT_S, "'bad' lists no tools within 0.5 s"),
        (misbehaving_server("a-tool-without-a-schema"), AMPLE_S, "protocol in tools.1.inputSchema"),
        (
            misbehaving_server("arguments-that-are-no-object"),
            AMPLE_S,
            "protocol in tools.1.inputSchema.type: Input should be 'object'",
        ),
        (misbehaving_server("no-list-at-all"), AMPLE_S, "protocol in tools: "),
        (StdioServerParameters(command="sleep", args=["60"]), SHORT_S, "no connection within"),
        (StdioServerParameters(command="yes"), SHORT_S, "no connection within"),
        (StdioServerParameters(command="false"), AMPLE_S, "'bad' "),
    ],
    ids=["never", "no-schema", "no-object", "no-list", "mute", "noise", "ends"],
)
async def test_a_list_that_cannot(
    server: StdioServerParameters, limit_s: float, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That server is left out, and nobody else."""
    model = FakeProvider([FakeReply(tool_uses=(ToolUse("c", "add", {"a": 1, "b": 2}),)), "Done."])
    bad = ToolAdapter(server, name="bad", timeout=limit_s)
    async with (
        ToolAdapter(stdio_server(), name="good", timeout=AMPLE_S) as good,
        engine_with(model) as engine,
        asyncio.timeout(AMPLE_S),
    ):
        generator = engine.string_generator("Go.", mcp_tools=[bad, good])
        _, metadata = await generator.generate()
        with pytest.raises(ToolFailed) as caught:
            await engine.string_generator("Go.", mcp_tools=[bad]).generate()
    await bad.aclose()
    assert metadata.dropped_options == ("mcp_tools[bad]",)
    assert told(model.requests[1]).text == "3"
    assert reason in str(caught.value)
    assert reason in caplog.text


# Models


def weather(city: str) -> str:
    """The sky over a city."""
    return f"blue over {city}"


@dataclass
class ModelFault:
    """What a model does, and how it ends."""

    answers: tuple[Scenario, ...]
    said: str = ""
    """What it is told; else the run ends with `error`."""
    error: type[PenstockError] | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def _calls(name: str, *fragments: str) -> Scenario:
    return Scenario(calls=(Call("call_1", name, fragments),), stop="tool_use")


AGAIN = _calls("weather", '{"city": "Oslo"}')
OK = Scenario(text=("Done.",))
MODEL_FAULTS = {
    "calls-an-unknown-tool": ModelFault(
        (_calls("whether", "{}"), OK), "there is no tool 'whether'; there are: weather"
    ),
    "sends-arguments-that-do-not-fit": ModelFault(
        (_calls("weather", '{"town": "Oslo"}'), OK), "the arguments do not fit: "
    ),
    "sends-broken-json": ModelFault((_calls("weather", '{"city": "Os'),), error=MalformedResponse),
    "repeats-a-call-for-ever": ModelFault(
        (AGAIN, AGAIN, AGAIN, OK), "blue over Oslo", options={"max_tool_rounds": 3}
    ),
    "repeats-it-even-when-forbidden": ModelFault(
        (AGAIN, AGAIN, AGAIN), error=ToolFailed, options={"max_tool_rounds": 2}
    ),
}


@pytest.mark.parametrize("name", MODEL_FAULTS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_model_that(name: str, streamed: bool) -> None:
    fault = MODEL_FAULTS[name]
    async with WireServer(OpenAIChat()) as upstream:
        upstream.play(*fault.answers)
        provider = ProviderConfig.model_validate(
            {"kind": "openai-chat", "url": upstream.url, "auth_token": "k"}
        )
        async with (
            penstock.open(Config(providers={"up": provider}, pool=PoolConfig(retries=0))) as engine,
            asyncio.timeout(AMPLE_S),
        ):
            generator = engine.string_generator(
                "Go.", tools=[weather], model="up/m", **fault.options
            )
            if fault.error is not None:
                with pytest.raises(fault.error):
                    await (generator.stream().result() if streamed else generator.generate())
                return
            text, _ = await (generator.stream().result() if streamed else generator.generate())
        (result,) = upstream.seen[-1].messages[-1].content
    assert text == "Done."
    assert isinstance(result, ToolResult)
    assert fault.said in result.text


# The run


async def test_a_run_whose_time_is_over_in_the_middle_of_a_tool() -> None:
    call = FakeReply(tool_uses=(ToolUse("call_1", "hang", {"name": "run"}),))
    async with (
        ToolAdapter(stdio_server(), name="tests") as adapter,
        engine_with(FakeProvider([call])) as engine,
        asyncio.timeout(AMPLE_S),
    ):
        generator = engine.string_generator("Go.", mcp_tools=[adapter], timeout=SHORT_S)
        events = [event async for event in generator.stream()]
        end = events[-1]
        assert isinstance(end, Error)
        assert isinstance(end.error, ProviderTimeout)
        while "run" not in (await adapter.call("stopped", {})).text:
            pass  # the server learns of it too


async def test_a_failure_in_one_call_leaves_those_beside_it_alone() -> None:
    calls = (
        ToolUse("c1", "fail", {}),
        ToolUse("c2", "add", {"a": 1, "b": 2}),
        ToolUse("c3", "raises", {}),
        ToolUse("c4", "nothing", {}),
    )
    model = FakeProvider([FakeReply(tool_uses=calls), "Done."])
    async with (
        ToolAdapter(stdio_server(), name="tests") as adapter,
        engine_with(model) as engine,
    ):
        await engine.string_generator("Go.", mcp_tools=[adapter], tools=[raises]).generate()
    results = model.requests[1].messages[-1].content
    failed = {part.tool_use_id: part.is_error for part in results if isinstance(part, ToolResult)}
    assert failed == {"c1": True, "c2": False, "c3": True, "c4": True}
