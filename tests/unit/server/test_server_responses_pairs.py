"""A caller of the Responses door, served by providers that speak other dialects.

The SDK is the official one, and the upstreams are the servers of the conformance suite, which read
what they get as strictly as the real ones.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from penstock import Config, ToolDefinition
from penstock.config.settings import ModelConfig, PoolConfig
from penstock.contract.messages import Image, MCPCall, Text, ToolResult, ToolUse, user
from penstock.engine.engine import Engine
from penstock.server.doors.openai_responses.state import seal
from tests.conformance.subjects import (
    ANTHROPIC,
    BEDROCK,
    GEMINI,
    OLLAMA,
    OPENAI,
    OPENAI_CHAT,
    Subject,
)
from tests.support.wire.scenario import (
    Call,
    Failure,
    Fault,
    Pause,
    Scenario,
    ServerCall,
    Tokens,
)
from tests.support.wire.upstream import Upstream
from tests.unit.server.gateway_support import Gateway, running_gateway

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": False,
}
THINKS = {
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "gemini": "gemini-3-pro-preview",
    "ollama": "gpt-oss:20b",
}
SUBJECTS = [OPENAI_CHAT, ANTHROPIC, GEMINI, BEDROCK, OLLAMA, OPENAI]


@dataclass
class Pair:
    """A client, and the upstream behind the gateway that it talks to."""

    client: AsyncOpenAI
    upstream: Upstream
    gateway: Gateway
    name: str


@contextlib.asynccontextmanager
async def pair_with(subject: Subject, model: str | None = None) -> AsyncGenerator[Pair]:
    async with subject.upstream() as upstream:
        assert upstream is not None
        target = f"{subject.name}/{model or subject.model}"
        config = Config(
            providers={subject.name: subject.settings(upstream)},
            models={"default": ModelConfig(targets=(target,))},
            pool=PoolConfig(retries=0),
        )
        async with (
            running_gateway(Engine(config)) as gateway,
            AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield Pair(client, upstream, gateway, subject.name)


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.name)
async def pair(request: pytest.FixtureRequest) -> AsyncGenerator[Pair]:
    """One pair for each dialect."""
    async with pair_with(request.param) as made:
        yield made


async def ask(pair: Pair, *, stream: bool, **fields: Any) -> Response:
    """The response, however it comes."""
    asked: dict[str, Any] = {
        "model": "default",
        "input": "Hello",
        "max_output_tokens": 4000,
        **fields,
    }
    if not stream:
        return await cast(Any, pair.client.responses).create(**asked)
    async with pair.client.responses.stream(**asked) as events:
        return await events.get_final_response()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text(pair: Pair, stream: bool) -> None:
    tokens = Tokens(input=30, output=7)
    pair.upstream.play(Scenario(text=("Hel", "lo ", "you"), tokens=tokens))
    response = await ask(pair, stream=stream, instructions="Be brief.", temperature=0.5)
    assert response.output_text == "Hello you"
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (30, 7)
    (seen,) = pair.upstream.seen
    assert seen.messages == (user("Hello"),)
    assert (seen.system, seen.max_tokens, seen.temperature) == ("Be brief.", 4000, 0.5)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_round_of_tools(pair: Pair, stream: bool) -> None:
    calls = (Call.of("c1", "weather", {"city": "Rome"}), Call.of("c2", "weather", {"city": "Ulm"}))
    pair.upstream.play(
        Scenario(text=("I look.",), calls=calls, stop="tool_use"), Scenario(text=("Sunny.",))
    )
    first = await ask(pair, stream=stream, tools=[WEATHER])
    made = [item for item in first.output if item.type == "function_call"]
    assert [(call.name, call.arguments.replace(" ", "")) for call in made] == [
        ("weather", '{"city":"Rome"}'),
        ("weather", '{"city":"Ulm"}'),
    ]
    if pair.upstream.call_ids:
        assert [call.call_id for call in made] == ["c1", "c2"]
    history: list[Any] = [{"role": "user", "content": "Hello"}, *first.output]
    for call, answer in zip(made, ("sunny", "rain"), strict=True):
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": answer})
    second = await ask(pair, stream=stream, input=history, tools=[WEATHER])
    assert second.output_text == "Sunny."
    seen = pair.upstream.seen[1]
    assert [tool.name for tool in seen.tools] == ["weather"]
    uses = [part for turn in seen.messages for part in turn.content if isinstance(part, ToolUse)]
    assert [use.input for use in uses] == [{"city": "Rome"}, {"city": "Ulm"}]
    results = [
        part for turn in seen.messages for part in turn.content if isinstance(part, ToolResult)
    ]
    assert [result.text for result in results] == ["sunny", "rain"]
    assert [turn.text for turn in seen.messages if turn.role == "assistant"] == ["I look."]


async def test_a_picture(pair: Pair) -> None:
    pair.upstream.play(Scenario(text=("A dot.",)))
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
    ]
    response = await ask(pair, stream=False, input=[{"role": "user", "content": content}])
    assert response.output_text == "A dot."
    parts = pair.upstream.seen[0].messages[0].content
    pictures = [part for part in parts if isinstance(part, Image)]
    assert [picture.data for picture in pictures] == [PIXEL]
    assert [part.text for part in parts if isinstance(part, Text)] == ["What is this?"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure("rate_limit", retry_after=3), openai.RateLimitError),
        (Failure("unknown_model"), openai.NotFoundError),
        (Failure("server_error"), openai.InternalServerError),
        (Failure("authentication"), openai.InternalServerError),
    ],
    ids=lambda value: value.kind if isinstance(value, Failure) else "",
)
async def test_an_error(
    pair: Pair, failure: Failure, expected: type[Exception], stream: bool
) -> None:
    pair.upstream.play(Scenario(failure=failure))
    with pytest.raises(expected) as caught:
        await ask(pair, stream=stream)
    assert isinstance(caught.value, openai.APIStatusError)
    assert (caught.value.request_id or "").startswith("req_")
    if failure.retry_after is not None:
        assert caught.value.response.headers["retry-after"] == "3"


async def test_an_error_in_mid_stream(pair: Pair) -> None:
    pair.upstream.play(Scenario(text=("One ", "two ", "three"), fault=Fault("cut", after=2)))
    with pytest.raises(openai.APIError) as caught:
        await ask(pair, stream=True)
    assert caught.value.code == "upstream_stream_interrupted"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut(pair: Pair, stream: bool) -> None:
    pair.upstream.play(Scenario(text=("Once ", "upon"), stop="max_tokens"))
    if stream:
        events = await pair.client.responses.create(model="default", input="Hello", stream=True)
        *_, last = [event async for event in events]
        assert last.type == "response.incomplete"
        response = last.response
    else:
        response = await ask(pair, stream=False)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "Once upon"


async def test_structured_output(pair: Pair) -> None:
    pair.upstream.play(Scenario(text=('{"city":', '"Rome"}')))
    wanted = {
        "type": "json_schema",
        "name": "place",
        "schema": WEATHER["parameters"],
        "strict": True,
    }
    response = await ask(pair, stream=False, text={"format": wanted})
    assert response.output_text == '{"city":"Rome"}'
    schema = pair.upstream.seen[0].schema
    assert schema is not None
    assert schema["properties"]["city"]["type"] == "string"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
async def test_thinking_goes_back_to_who_has_thought_it(subject: Subject, stream: bool) -> None:
    call = Call.of("c1", "weather", {"city": "Rome"})
    async with pair_with(subject, THINKS.get(subject.name)) as pair:
        pair.upstream.play(
            Scenario(reasoning=("Let me ", "see."), calls=(call,), stop="tool_use"),
            Scenario(text=("Sunny.",)),
        )
        effort = {"effort": "low", "summary": "auto"}
        first = await ask(pair, stream=stream, tools=[WEATHER], reasoning=effort)
        thought = first.output[0]
        assert thought.type == "reasoning"
        assert thought.summary[0].text == "Let me see."
        made = next(item for item in first.output if item.type == "function_call")
        answer = {"type": "function_call_output", "call_id": made.call_id, "output": "sunny"}
        history: list[Any] = [{"role": "user", "content": "Hello"}, *first.output, answer]
        second = await ask(pair, stream=stream, input=history, tools=[WEATHER], reasoning=effort)
        assert second.output_text == "Sunny."
        direct = pair.gateway.engine
        asked: Any = {"model": "default", "max_tokens": 4000}
        pair.upstream.play(
            Scenario(reasoning=("Let me ", "see."), calls=(call,), stop="tool_use"),
            Scenario(text=("Sunny.",)),
        )
        tool = ToolDefinition(
            "weather", WEATHER["description"], WEATHER["parameters"], strict=False
        )
        result = await direct.create_message("Hello", tools=[tool], reasoning_level="low", **asked)
        use = result.tool_uses[0]
        await direct.create_message(
            [user("Hello"), result.message, user(ToolResult(use.id, (Text("sunny"),)))],
            tools=[tool],
            reasoning_level="low",
            **asked,
        )
        # What the upstream gets through the door is what it gets from the library.
        through, straight = pair.upstream.seen[1], pair.upstream.seen[3]
        if pair.upstream.call_ids:
            assert through.messages == straight.messages
        else:
            assert len(through.messages) == len(straight.messages)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_stops_the_upstream(pair: Pair, stream: bool) -> None:
    pause = Pause(after=1)
    pair.upstream.play(Scenario(text=("One ", "two"), pause=pause))
    task = asyncio.create_task(ask(pair, stream=stream))
    await pause.reached.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        await pair.upstream.gone()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", [OPENAI, ANTHROPIC], ids=lambda subject: subject.name)
async def test_a_server_that_the_provider_connects_to(subject: Subject, stream: bool) -> None:
    search = ServerCall("docs", Call.of("mcp_1", "search", {"query": "tides"}), "Twice a day.")
    server = {
        "type": "mcp",
        "server_label": "docs",
        "server_url": "https://mcp.example.com/mcp",
        "require_approval": "never",
        "authorization": "token-1",
    }
    async with pair_with(subject) as pair:
        pair.upstream.play(Scenario(mcp=(search,), text=("Twice.",)), Scenario(text=("Yes.",)))
        first = await ask(pair, stream=stream, tools=[server])
        made = next(item for item in first.output if item.type == "mcp_call")
        assert (made.server_label, made.name, made.output) == ("docs", "search", "Twice a day.")
        assert first.output_text == "Twice."
        history: list[Any] = [
            {"role": "user", "content": "Hello"},
            *first.output,
            {"role": "user", "content": "Sure?"},
        ]
        await ask(pair, stream=stream, input=history, tools=[server])
        assert [tool.name for tool in pair.upstream.seen[0].mcp_tools] == ["docs"]
        parts = [part for turn in pair.upstream.seen[1].messages for part in turn.content]
        assert [part.name for part in parts if isinstance(part, MCPCall)] == ["search"]


@pytest.mark.parametrize("forged", ["x", 3, [1], {"listing": 3}], ids=str)
async def test_a_forged_seal_is_no_accident(pair: Pair, forged: object) -> None:
    pair.upstream.play(Scenario(text=("Well.",)))
    keys = ("openai_mcp", "openai_mcp_tools", "anthropic_mcp", "openai_phase")
    meta: dict[str, Any] = {key: forged for key in keys}  # noqa: C420 - typed so
    made = MCPCall("mcp_1", "docs", "find", {}, (Text("found"),), meta=meta)
    sealed = seal((made, Text("Done.", meta=meta)))
    items: list[Any] = [
        {"role": "user", "content": "Hello"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "docs",
            "name": "find",
            "output": "found",
        },
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Sure?"},
    ]
    assert (await ask(pair, stream=False, input=items)).output_text == "Well."
    assert pair.upstream.seen[0].messages[-1] == user("Sure?")
