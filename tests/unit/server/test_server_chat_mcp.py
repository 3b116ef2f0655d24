"""MCP servers at the Chat Completions door, for providers of every dialect.

The servers are real, and so are the upstreams of the conformance suite. Here the answer has no word
of the calls that the gateway makes: only what the model says, and what all rounds took.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI

from penstock import Config
from penstock.config.settings import ModelConfig, PoolConfig
from penstock.contract.errors import RateLimited
from penstock.contract.messages import Message, ToolResult, ToolUse, assistant
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.conformance.subjects import (
    ANTHROPIC,
    BEDROCK,
    GEMINI,
    OLLAMA,
    OPENAI,
    OPENAI_CHAT,
    Subject,
)
from tests.support.mcp.processes import shared_server
from tests.support.wire.scenario import Call, Scenario, ServerCall, Tokens
from tests.support.wire.upstream import Upstream
from tests.unit.server.gateway_support import Gateway, running_gateway, until

pytestmark = pytest.mark.timeout(60)
SUBJECTS = [OPENAI_CHAT, ANTHROPIC, GEMINI, BEDROCK, OLLAMA, OPENAI]
ADD = FakeReply(text="Adding. ", tool_uses=(ToolUse("call_1", "add", {"a": 40, "b": 2}),))
NOW: Any = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def server(**fields: Any) -> Any:
    """The shared server, as a tool of this wire."""
    return {
        "type": "mcp",
        "server_label": "tests",
        "server_url": shared_server().url,
        "require_approval": "never",
        **fields,
    }


@dataclass
class Answer:
    """An answer, however it came."""

    text: str | None
    calls: list[tuple[str, str, str]]
    reason: str
    tokens: tuple[int, int] | None


async def ask(client: AsyncOpenAI, stream: bool, **fields: Any) -> Answer:
    """What the model says in the end; a stream is put together as the SDK does it."""
    asked: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": "40 and 2?"}],
        "max_tokens": 4000,
        "tools": [server()],
        **fields,
    }
    if stream:
        asked["stream_options"] = {"include_usage": True}
        async with cast(Any, client.chat.completions).stream(**asked) as events:
            made = await events.get_final_completion()
    else:
        made = await cast(Any, client.chat.completions).create(**asked)
    (choice,) = made.choices
    usage = made.usage
    return Answer(
        choice.message.content,
        [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()],
        choice.finish_reason,
        None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
    )


def results_in(messages: Iterable[Message]) -> list[ToolResult]:
    """What the model was told of the calls."""
    return [part for turn in messages for part in turn.content if isinstance(part, ToolResult)]


@contextlib.asynccontextmanager
async def client_of(engine: Engine) -> AsyncGenerator[tuple[AsyncOpenAI, Gateway]]:
    """A client of a gateway with this engine."""
    async with (
        running_gateway(engine) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, gateway


@pytest.fixture
async def client(fake: FakeProvider) -> AsyncGenerator[AsyncOpenAI]:
    """Of a model without a script."""
    async with client_of(engine_with(fake)) as (client, _):
        yield client


@contextlib.asynccontextmanager
async def served_by(subject: Subject) -> AsyncGenerator[tuple[AsyncOpenAI, Upstream]]:
    """A client, and the upstream behind its gateway."""
    async with subject.upstream() as upstream:
        assert upstream is not None
        config = Config(
            providers={subject.name: subject.settings(upstream)},
            models={"default": ModelConfig(targets=(f"{subject.name}/{subject.model}",))},
            pool=PoolConfig(retries=0),
        )
        async with client_of(Engine(config)) as (client, _):
            yield client, upstream


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
async def test_every_provider_has_the_tools(subject: Subject, stream: bool) -> None:
    async with served_by(subject) as (client, upstream):
        upstream.play(
            Scenario(
                text=("Adding. ",),
                calls=(Call.of("c1", "add", {"a": 40, "b": 2}),),
                stop="tool_use",
                tokens=Tokens(input=10, output=5),
            ),
            Scenario(text=("It is ", "42."), tokens=Tokens(input=20, output=3)),
        )
        answer = await ask(client, stream, tools=[server(allowed_tools=["add"]), NOW])
    assert answer == Answer("Adding. It is 42.", [], "stop", (30, 8))
    first, second = upstream.seen
    assert [tool.name for tool in first.tools] == ["now", "add"]
    (result,) = results_in(second.messages)
    assert result.text == "42"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", [OPENAI, ANTHROPIC], ids=lambda subject: subject.name)
async def test_a_server_that_the_provider_connects_to(subject: Subject, stream: bool) -> None:
    search = ServerCall("docs", Call.of("mcp_1", "search", {"query": "tides"}), "Twice a day.")
    public = server(server_label="docs", server_url="https://mcp.example.com/mcp")
    async with served_by(subject) as (client, upstream):
        upstream.play(Scenario(mcp=(search,), text=("Twice.",)))
        answer = await ask(client, stream, tools=[public, NOW])
    assert (answer.text, answer.calls, answer.reason) == ("Twice.", [], "stop")
    (seen,) = upstream.seen
    assert [tool.name for tool in seen.mcp_tools] == ["docs"]
    assert [tool.name for tool in seen.tools] == ["now"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
async def test_a_function_of_the_caller_ends_the_answer(subject: Subject, stream: bool) -> None:
    both = (
        Call.of("c1", "add", {"a": 1, "b": 2}),
        Call.of("c2", "now", {"zone": "UTC"}),
        Call.of("c3", "now", {"zone": "CET"}),
    )
    async with served_by(subject) as (client, upstream):
        upstream.play(Scenario(calls=both, stop="tool_use"), Scenario(text=("Noon.",)))
        tools = [server(allowed_tools=["add"]), NOW]
        first = await ask(client, stream, tools=tools)
        assert first.reason == "tool_calls"
        assert [(name, json.loads(given)) for _, name, given in first.calls] == [
            ("now", {"zone": "UTC"}),
            ("now", {"zone": "CET"}),
        ]
        if upstream.call_ids:
            assert [id for id, _, _ in first.calls] == ["c2", "c3"]
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": given}}
            for id, name, given in first.calls
        ]
        history = [
            {"role": "user", "content": "40 and 2?"},
            {"role": "assistant", "tool_calls": calls},
            *({"role": "tool", "tool_call_id": id, "content": "12:00"} for id, *_ in first.calls),
        ]
        second = await ask(client, stream, messages=history, tools=tools)
    assert second.text == "Noon."
    assert len(upstream.seen) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_beside_one_of_the_callers_is_not_made(stream: bool) -> None:
    # The answer could not tell what it gave, so the model would have it made twice.
    leave = FakeReply(
        text="Both.",
        tool_uses=(ToolUse("call_1", "add", {"a": 1, "b": 1}), ToolUse("call_2", "now", {})),
    )
    async with client_of(engine_with(FakeProvider([leave]))) as (client, gateway):
        source: Any = gateway.engine.tool_source(shared_server().tool())

        async def calls() -> int:
            return json.loads((await source.call("requests", {})).text)["tools/call"]

        before = await calls()
        answer = await ask(client, stream, tools=[server(), NOW])
        assert (answer.text, answer.calls) == ("Both.", [("call_2", "now", "{}")])
        assert await calls() == before + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_several_rounds(stream: bool) -> None:
    fail = FakeReply(tool_uses=(ToolUse("call_2", "fail", {}),))
    lost = FakeReply(tool_uses=(ToolUse("call_3", "lost", {}),))
    fake = FakeProvider([ADD, fail, lost, "It is 42."])
    async with client_of(engine_with(fake)) as (client, _):
        answer = await ask(client, stream)
    assert (answer.text, answer.calls, answer.reason) == ("Adding. It is 42.", [], "stop")
    told = fake.requests[-1].messages
    assert told[1] == assistant("Adding. ", ToolUse("call_1", "add", {"a": 40, "b": 2}))
    results = results_in(told)
    assert [result.is_error for result in results] == [False, True, True]
    assert results[0].text == "42"
    assert "there is no tool 'lost'" in results[2].text


async def test_a_stream_has_no_word_of_the_calls() -> None:
    async with client_of(engine_with(FakeProvider([ADD, "It is 42."]))) as (_, gateway):
        events = await gateway.stream("40 and 2?", model="default", tools=[server()])
    assert events[-1] == "[DONE]"
    assert "tool_calls" not in json.dumps(events)
    assert len({event["id"] for event in events[:-1]}) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_rounds_have_an_end(stream: bool) -> None:
    more = FakeReply(tool_uses=(ToolUse("call_1", "add", {"a": 1, "b": 1}),))
    fake = FakeProvider([*[more] * 16, "Enough."])
    async with client_of(engine_with(fake)) as (client, _):
        answer = await ask(client, stream)
    assert answer.text == "Enough."
    last = fake.requests[-1]
    assert last.tool_choice is not None
    assert last.tool_choice.mode == "none"


async def test_headers_go_to_the_server() -> None:
    look = FakeReply(tool_uses=(ToolUse("call_1", "header", {"name": "x-team"}),))
    fake = FakeProvider([look, "Done."])
    async with client_of(engine_with(fake)) as (client, _):
        await ask(client, False, tools=[server(headers={"x-team": "blue"})])
    (result,) = results_in(fake.requests[1].messages)
    assert result.text == "blue"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"require_approval": "always"}, "tools[1].require_approval"),
        ({"require_approval": None}, "tools[1].require_approval"),
        ({"connector_id": "connector_gmail"}, "tools[1].connector_id"),
        ({"tunnel_id": "t"}, "tools[1].tunnel_id"),
        ({"allowed_tools": {"read_only": True}}, "tools[1].allowed_tools.read_only"),
        ({"server_url": None}, "tools[1].server_url"),
        ({"server_label": None}, "tools[1].server_label"),
        ({"server_url": "http://169.254.169.254/x"}, "tools[1].server_url"),
        ({"type": "web_search"}, "tools[1].type"),
    ],
)
async def test_what_cannot_be_honoured_is_named(
    client: AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, False, tools=[NOW, server(**fields)])
    assert caught.value.param == param


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_is_not_there(client: AsyncOpenAI, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client, stream, tools=[server(server_url="http://127.0.0.1:9/mcp")])
    assert caught.value.code == "tool_failed"


async def test_an_error_in_a_later_round() -> None:
    fake = FakeProvider([ADD, RateLimited("slow down"), ADD, RateLimited("slow down")])
    async with client_of(engine_with(fake)) as (client, _):
        with pytest.raises(openai.APIError, match="slow down"):
            await ask(client, True)
        with pytest.raises(openai.RateLimitError):
            await ask(client, False)


async def test_a_client_that_goes_stops_the_tool() -> None:
    hang = FakeReply(tool_uses=(ToolUse("call_1", "hang", {"name": "chat door"}),))
    async with client_of(engine_with(FakeProvider([hang]))) as (client, gateway):
        source: Any = gateway.engine.tool_source(shared_server().tool())

        async def calls() -> int:
            return json.loads((await source.call("requests", {})).text)["tools/call"]

        before = await calls()
        stream: Any = await cast(Any, client.chat.completions).create(
            model="default",
            messages=[{"role": "user", "content": "Go."}],
            tools=[server()],
            stream=True,
        )
        # Each look is a call itself; one more than those is the one that hangs.
        looks = 1
        while await calls() <= before + looks:
            looks += 1
        await stream.close()
        while "chat door" not in (await source.call("stopped", {})).text:
            pass
        await until(lambda: gateway.server.running_requests == 0)
