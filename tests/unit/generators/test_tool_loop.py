"""The tool loop on an engine with a scripted provider: limits, failures and what is added up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pydantic
import pytest

import penstock
from penstock import (
    Capabilities,
    Complete,
    Image,
    InvalidRequest,
    MCPCall,
    MCPTool,
    ProviderTimeout,
    RateLimited,
    SamplingRequest,
    StringGenerator,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolEnded,
    ToolFailed,
    ToolResult,
    ToolStarted,
    ToolUse,
    Usage,
    user,
)
from penstock.contract.events import StreamEvent
from penstock.contract.tools import Report, RunnableTool
from penstock.generators.tool_loop import ToolLoop
from penstock.testing import FakeProvider, FakeReply, engine_with

DONE = "Done."
PICTURE = Image("iVBORw0KGgo=", "image/png")


def calls(*names: str, **arguments: Any) -> FakeReply:
    """An answer that calls these tools, with ids of their own."""
    uses = tuple(ToolUse(f"call_{at}", name, arguments) for at, name in enumerate(names))
    return FakeReply(tool_uses=uses, usage=Usage(10, 5))


def script(*steps: Any) -> FakeProvider:
    return FakeProvider(steps)


def results(request: SamplingRequest) -> list[ToolResult]:
    return [part for part in request.messages[-1].content if isinstance(part, ToolResult)]


def generator(
    provider: FakeProvider, *tools: Callable[..., Any], **options: Any
) -> StringGenerator:
    return engine_with(provider).string_generator("Go.", tools=tools, **options)


async def test_calls_of_one_answer_run_at_once_up_to_the_limit() -> None:
    running, most = 0, 0
    full, resume = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await resume.wait()
        running -= 1
        return "ok"

    provider = script(calls(*["work"] * 7), DONE)
    task = asyncio.create_task(generator(provider, work, max_parallel_tools=3).generate())
    async with asyncio.timeout(30):
        await full.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert running == 3
        resume.set()
        text, _ = await task
    assert (text, most) == (DONE, 3)
    assert [each.text for each in results(provider.requests[1])] == ["ok"] * 7


async def test_results_are_in_the_order_of_the_calls_whoever_ends_first() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        await second.wait()
        return "slow"

    async def fast() -> str:
        second.set()
        first.set()
        return "fast"

    provider = script(calls("slow", "fast"), DONE)
    await generator(provider, slow, fast).generate()
    assert [each.text for each in results(provider.requests[1])] == ["slow", "fast"]


async def test_calls_with_the_same_id_are_all_answered() -> None:
    """Some servers give every call the same id."""

    def number(value: int) -> int:
        return value

    twice = tuple(ToolUse("same", "number", {"value": value}) for value in (1, 2))
    provider = script(FakeReply(tool_uses=twice), DONE)
    async with asyncio.timeout(30), generator(provider, number).stream() as stream:
        seen = [event async for event in stream]
        # The pipeline does not let such a history pass: nobody could tell which answers which.
        with pytest.raises(InvalidRequest, match="same"):
            await stream.result()
    ended = [event for event in seen if isinstance(event, ToolEnded)]
    assert sorted(part.text for event in ended for part in event.content) == ["1", "2"]  # pyright: ignore


async def test_a_tool_that_hangs_ends_with_its_limit() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    slow = penstock.tool(hang, name="own", timeout=0.01)
    provider = script(calls("hang", "own"), DONE)
    text, metadata = await generator(provider, hang, slow, tool_timeout=0.02).generate()
    assert (text, metadata.tool_rounds) == (DONE, 1)
    told = results(provider.requests[1])
    assert [each.is_error for each in told] == [True, True]
    assert "0.02 s" in told[0].text
    assert "0.01 s" in told[1].text


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad city"), "ValueError: bad city"),
        (RateLimited("slow down"), "RateLimited: slow down"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (asyncio.CancelledError(), "the tool was cancelled"),
        (StopAsyncIteration(), "StopAsyncIteration"),
    ],
)
async def test_what_a_tool_raises_is_told_to_the_model_or_raised(
    error: BaseException, told: str
) -> None:
    async def fail() -> None:
        raise error

    provider = script(calls("fail"), DONE)
    async with asyncio.timeout(30):
        assert (await generator(provider, fail).generate())[0] == DONE
    (result,) = results(provider.requests[1])
    assert result.is_error
    assert told in result.text
    with pytest.raises(ToolFailed, match="'fail' failed") as caught:
        async with asyncio.timeout(30):
            await generator(script(calls("fail")), fail, tool_errors="raise").generate()
    assert caught.value.__cause__ is error or isinstance(error, StopAsyncIteration)
    assert (caught.value.provider, caught.value.model) == ("fake", "echo")
    assert caught.value.request_id


@pytest.mark.parametrize("error", [Odd("odd"), GeneratorExit()])
async def test_an_error_beyond_all_exceptions_goes_to_the_caller(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        async with asyncio.timeout(30):
            await generator(script(calls("fail")), fail).generate()


async def test_a_plain_tool_that_raises_in_its_thread_is_told_too() -> None:
    def fail() -> None:
        raise ValueError("in a thread")

    provider = script(calls("fail"), DONE)
    await generator(provider, fail).generate()
    assert "in a thread" in results(provider.requests[1])[0].text


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (calls("nowhere"), "there is no tool 'nowhere'; there are: double"),
        (calls("double", value="x"), "the arguments do not fit: value: "),
        (calls("double"), "value: Field required"),
        (calls("double", value=1, more=2), "more: "),
    ],
)
async def test_a_wrong_call_is_told_to_the_model(reply: FakeReply, told: str) -> None:
    def double(value: int) -> int:
        return 2 * value

    provider = script(reply, DONE)
    assert (await generator(provider, double).generate())[0] == DONE
    (result,) = results(provider.requests[1])
    assert result.is_error
    assert told in result.text
    with pytest.raises(ToolFailed):
        await generator(script(reply), double, tool_errors="raise").generate()


async def test_results_beyond_the_limit_and_bytes_are_told_as_failures() -> None:
    def much() -> str:
        return "x" * 11

    def raw() -> bytes:
        return b"\x00"

    provider = script(calls("much", "raw"), DONE)
    await generator(provider, much, raw, max_tool_result_bytes=10).generate()
    told = [result.text for result in results(provider.requests[1])]
    assert told[0] == "the tool gave 11 bytes, and 10 are the limit; ask for less at once"
    assert told[1].startswith("the tool gave 1 bytes that are no picture")


class Blind(FakeProvider):
    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(images=False)


def draw() -> Image:
    """A picture."""
    return PICTURE


async def test_a_model_without_eyes_is_told_of_a_picture_and_the_caller_gets_it() -> None:
    provider = Blind([calls("draw"), DONE])
    async with generator(provider, draw).stream() as stream:
        events = [event async for event in stream]
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert ended.content == (PICTURE,)
    (told,) = results(provider.requests[1])
    assert told.text == "[image/png of 8 bytes, which this model cannot be shown]"


async def test_a_picture_goes_where_some_target_sees_it() -> None:
    blind, seeing = Blind([calls("draw")], name="blind"), script(DONE)
    async with engine_with(blind, seeing) as engine:
        assert engine.takes(PICTURE)
        assert not engine.takes(PICTURE, "blind/echo")
        text, metadata = await engine.string_generator("Go.", tools=[draw]).generate()
    assert (text, metadata.provider) == (DONE, "fake")
    assert results(seeing.requests[0])[0].content == (PICTURE,)


async def test_a_model_that_calls_for_ever_must_answer_at_last() -> None:
    count = 0

    async def again() -> int:
        nonlocal count
        count += 1
        return count

    provider = script(*[calls("again")] * 100, DONE)
    before = asyncio.all_tasks()
    text, metadata = await generator(provider, again, max_tool_rounds=100).generate()
    assert (text, count, metadata.tool_rounds, metadata.api_calls) == (DONE, 100, 100, 101)
    assert asyncio.all_tasks() == before
    last = provider.requests[-1]
    assert last.tool_choice == penstock.ToolChoice("none")
    assert "no more tools" in (last.system_prompt or "")
    assert all(request.tool_choice is None for request in provider.requests[:-1])


async def test_a_model_that_calls_even_then_is_a_failure() -> None:
    async def again() -> int:
        return 1

    provider = script(*[calls("again")] * 3)
    with pytest.raises(ToolFailed, match=r"calls again .* after 2 rounds") as caught:
        await generator(provider, again, max_tool_rounds=2).generate()
    assert caught.value.provider == "fake"


async def test_a_required_call_is_required_once() -> None:
    async def look() -> int:
        return 1

    provider = script(calls("look"), calls("look"), DONE)
    await generator(provider, look, tool_choice="required").generate()
    modes = [request.tool_choice and request.tool_choice.mode for request in provider.requests]
    assert modes == ["required", None, None]


async def test_cancelling_the_caller_cancels_its_tools() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(generator(script(calls("hang")), hang).generate())
    async with asyncio.timeout(30):
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended.is_set()


async def test_closing_the_stream_in_the_middle_of_a_tool_cancels_it() -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(30):
        async with generator(script(calls("hang")), hang).stream() as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    await asyncio.sleep(0)
                    break
        assert ended.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_a_tool_that_fails_the_run_cancels_the_others() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        await started.wait()
        raise ValueError

    failing = generator(script(calls("hang", "fail")), hang, fail, tool_errors="raise")
    with pytest.raises(ToolFailed):
        async with asyncio.timeout(30):
            await failing.generate()
    assert ended.is_set()


async def test_what_the_rounds_take_is_added_up() -> None:
    async def look() -> str:
        return "x"

    first = FakeReply(
        tool_uses=(ToolUse("c", "look", {}),),
        usage=Usage(input_tokens=10, output_tokens=5, cached_input_tokens=2, reasoning_tokens=1),
    )
    last = FakeReply(text=DONE, usage=Usage(20, 7, 3))
    _, metadata = await generator(script(first, last), look).generate()
    usage = metadata.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (30, 12, 5)
    assert (metadata.api_calls, metadata.attempts, metadata.tool_rounds) == (2, 2, 1)
    assert metadata.as_dict()["total_tokens"] == "42"


async def test_the_latency_is_that_of_the_whole_run() -> None:
    async def look() -> str:
        await asyncio.sleep(0.05)
        return "x"

    _, metadata = await generator(script(calls("look"), DONE), look).generate()
    assert metadata.latency_ms >= 50


@pytest.mark.parametrize("errors", ["return", "raise"])
async def test_the_requests_own_limit_holds_for_the_tools_too(errors: Any) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    provider = script(calls("hang"), DONE)
    with pytest.raises(ProviderTimeout, match=r"limit of 2 s") as caught:
        await generator(provider, hang, timeout=2, tool_errors=errors).generate()
    assert caught.value.provider == "fake"
    assert len(provider.requests) == 1


async def test_later_rounds_get_the_time_that_is_left() -> None:
    async def look() -> str:
        return "x"

    provider = script(calls("look"), DONE)
    await generator(provider, look, timeout=30).generate()
    first, second = (request.timeout for request in provider.requests)
    assert first is not None
    assert second is not None
    assert second < first <= 30


async def test_runs_of_one_generator_share_nothing() -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        await both.wait()
        return "met"

    def answer(request: SamplingRequest) -> FakeReply:
        return FakeReply(text=DONE) if results(request) else calls("meet")

    provider = script(*[answer] * 4)
    shared = generator(provider, meet)
    async with asyncio.timeout(30):
        done = await asyncio.gather(shared.generate(), shared.generate())
    assert [(text, metadata.tool_rounds) for text, metadata in done] == [(DONE, 1)] * 2
    assert sorted(len(request.messages) for request in provider.requests) == [1, 1, 3, 3]


async def test_an_error_of_a_later_round_names_its_place() -> None:
    async def look() -> str:
        return "x"

    failed = RateLimited("slow down", retryable=False)
    with pytest.raises(RateLimited) as caught:
        await generator(script(calls("look"), failed), look).generate()
    assert (caught.value.provider, caught.value.model) == ("fake", "echo")
    assert caught.value.request_id


async def test_tools_see_the_context_variables_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    def plain() -> str:
        return variable.get()

    async def waiting() -> str:
        return variable.get()

    variable.set("set")
    provider = script(calls("plain", "waiting"), DONE)
    await generator(provider, plain, waiting).generate()
    assert [each.text for each in results(provider.requests[1])] == ["set", "set"]


class Point(pydantic.BaseModel):
    x: int


async def test_a_typed_answer_is_mended_without_tools() -> None:
    async def look() -> int:
        return 1

    provider = script(calls("look"), "{}", '{"x": 1}')
    engine = engine_with(provider)
    value, metadata = await engine.structured_generator(Point, "Go.", tools=[look]).generate()
    assert (value, metadata.api_calls) == (Point(x=1), 3)
    assert provider.requests[-1].tool_choice == penstock.ToolChoice("none")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"max_tool_rounds": 0}, "max_tool_rounds"),
        ({"max_tool_rounds": 1.5}, "max_tool_rounds"),
        ({"max_tool_rounds": True}, "max_tool_rounds"),
        ({"max_parallel_tools": "3"}, "max_parallel_tools"),
        ({"max_tool_result_bytes": -1}, "max_tool_result_bytes"),
        ({"tool_timeout": 0}, "tool_timeout"),
        ({"tool_timeout": None}, "tool_timeout"),
        ({"context_timeout": float("nan")}, "context_timeout"),
        ({"tool_errors": "ignore"}, "tool_errors"),
        ({"tools": 3}, "tools"),
        ({"tools": [3]}, "tools"),
        ({"tools": [len, len]}, "tools"),
        ({"tools": "len"}, "tools"),
        ({"mcp_tools": MCPTool("https://x/mcp", "docs")}, "mcp_tools"),
        ({"mcp_tools": ["https://x/mcp"]}, "mcp_tools[0]"),
        ({"mcp_tools": [MCPTool("ftp://x", "docs", mode="adapter")]}, "mcp_tools[0].url"),
        ({"mcp_tools": [MCPTool("http://169.254.169.254/", "docs")]}, "mcp_tools[0].url"),
        ({"mcp_tools": [MCPTool("https://x", "the docs")]}, "mcp_tools[0].name"),
        (
            {"mcp_tools": [MCPTool("https://x", "a"), MCPTool("https://y", "a")]},
            "mcp_tools[1].name",
        ),
        ({"mcp_tools": [MCPTool("https://x", "a", {"a b": "c"})]}, "mcp_tools[0].http_headers"),
        (
            {"mcp_tools": [MCPTool("https://x", "a", allowed_tools="search")]},
            "mcp_tools[0].allowed_tools",
        ),
        ({"mcp_tools": [MCPTool("https://x", "a", mode=cast(Any, "here"))]}, "mcp_tools[0].mode"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_bad_options_are_refused_at_once(options: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine_with(script()).string_generator("Go.", **options)
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize("prompt", ["", " \n", [], ["", " "], 3, [3]])
def test_a_prompt_that_says_nothing_is_refused_at_once(prompt: Any) -> None:
    with pytest.raises(InvalidRequest, match="prompt"):
        engine_with(script()).string_generator(prompt)


def test_all_that_is_wrong_with_the_limits_is_said_together() -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine_with(script()).string_generator("Go.", max_tool_rounds=0, tool_timeout=-1)
    assert {problem.path for problem in caught.value.problems} == {
        "max_tool_rounds",
        "tool_timeout",
    }


class Remote:
    """A tool of a server that says its name and the name that it was given."""

    timeout = None
    server = "docs"

    def __init__(self, name: str) -> None:
        self.definition = ToolDefinition(name)

    async def run(self, arguments: dict[str, Any], report: Report, /) -> str:
        return f"{self.definition.name} {arguments}"


async def looped(
    provider: FakeProvider, *tools: RunnableTool, **options: Any
) -> tuple[ToolLoop, list[str]]:
    """A loop that has run, with a tool `now` that is the caller's."""
    engine = engine_with(provider)

    async def ask(request: SamplingRequest) -> AsyncGenerator[StreamEvent]:
        yield Complete(await engine.create_message(request))

    tool_loop = ToolLoop(
        ask,
        SamplingRequest(messages=(user("Go."),), max_tokens=9, **options),
        tools,
        theirs=[ToolDefinition("now")],
    )
    started = [event.name async for event in tool_loop.run() if isinstance(event, ToolStarted)]
    return tool_loop, started


async def test_a_tool_of_the_caller_ends_the_run() -> None:
    provider = script(calls("find"), calls("find", "now"), DONE)
    tool_loop, started = await looped(provider, Remote("find"))
    assert started == ["find", "find"]
    assert len(provider.requests) == 2
    assert tool_loop.said == (
        MCPCall("call_0", "docs", "find", {}, (Text("find {}"),)),
        MCPCall("call_0", "docs", "find", {}, (Text("find {}"),)),
        ToolUse("call_1", "now", {}),
    )
    assert tool_loop.result.metadata.tool_rounds == 2


async def test_a_tool_of_the_caller_alone_runs_nothing() -> None:
    tool_loop, started = await looped(script(calls("now"), DONE), Remote("find"))
    assert started == []
    assert tool_loop.said == (ToolUse("call_0", "now", {}),)


async def test_a_tool_of_a_server_makes_way_for_one_of_the_caller() -> None:
    provider = script(calls("docs_now"), DONE)
    tool_loop, started = await looped(provider, Remote("now"), tool_choice=ToolChoice.tool("now"))
    assert [tool.name for tool in provider.requests[0].tools] == ["now", "docs_now"]
    assert provider.requests[0].tool_choice == ToolChoice.tool("now")
    assert started == ["now"]
    assert tool_loop.said == (
        MCPCall("call_0", "docs", "now", {}, (Text("now {}"),)),
        Text(DONE),
    )
