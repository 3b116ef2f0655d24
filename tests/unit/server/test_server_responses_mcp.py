"""MCP servers at the Responses door, for providers that cannot connect to any."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI

from penstock.contract.errors import RateLimited
from penstock.contract.messages import MCPCall, Text, ToolResult, ToolUse, assistant, user
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp.processes import shared_server
from tests.unit.server.gateway_support import Gateway, running_gateway, until

pytestmark = pytest.mark.timeout(60)
ADD = FakeReply(text="Adding. ", tool_uses=(ToolUse("call_1", "add", {"a": 40, "b": 2}),))
FAIL = FakeReply(tool_uses=(ToolUse("call_2", "fail", {}),))
NOW: Any = {"type": "function", "name": "now", "parameters": {"type": "object"}, "strict": False}
BOTH = FakeReply(
    tool_uses=(ToolUse("call_1", "add", {"a": 1, "b": 2}), ToolUse("call_2", "now", {}))
)


def server(**fields: Any) -> Any:
    return {
        "type": "mcp",
        "server_label": "tests",
        "server_url": shared_server().url,
        "require_approval": "never",
        **fields,
    }


@contextlib.asynccontextmanager
async def talking_to(fake: FakeProvider) -> AsyncGenerator[tuple[AsyncOpenAI, Gateway]]:
    """A client of a gateway whose model connects to nobody."""
    async with (
        running_gateway(engine_with(fake)) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, gateway


@pytest.fixture
async def client(fake: FakeProvider) -> AsyncGenerator[AsyncOpenAI]:
    """The same for a model without a script."""
    async with talking_to(fake) as (client, _):
        yield client


async def ask(client: AsyncOpenAI, stream: bool, **fields: Any) -> Any:
    asked: dict[str, Any] = {
        "model": "default",
        "input": "40 and 2?",
        "tools": [server()],
        **fields,
    }
    if not stream:
        return await cast(Any, client.responses).create(**asked)
    async with client.responses.stream(**asked) as events:
        return await events.get_final_response()


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_called_from_here(stream: bool) -> None:
    fake = FakeProvider([ADD, FAIL, "It is 42."])
    async with talking_to(fake) as (client, _):
        response = await ask(client, stream)
        said, added, failed, last = response.output
        assert said.content[0].text == "Adding. "
        assert (added.type, added.server_label, added.name) == ("mcp_call", "tests", "add")
        assert (added.arguments, added.output, added.error) == ('{"a":40,"b":2}', "42", None)
        assert failed.status == "failed"
        assert failed.output is None
        assert failed.error.type == "mcp_tool_execution_error"
        assert last.content[0].text == "It is 42."
        assert response.usage.output_tokens == 4
        history = [{"role": "user", "content": "40 and 2?"}, *response.output]
        await ask(client, stream, input=[*history, {"role": "user", "content": "Sure?"}])
    told = fake.requests[1].messages
    assert told[1] == assistant("Adding. ", ToolUse("call_1", "add", {"a": 40, "b": 2}))
    (result,) = told[2].content
    assert isinstance(result, ToolResult)
    assert result.text == "42"
    again = fake.requests[3].messages[1].content
    assert again[0] == Text("Adding. ")
    assert again[1] == MCPCall("call_1", "tests", "add", {"a": 40, "b": 2}, (Text("42"),))
    assert isinstance(again[2], MCPCall)
    assert again[2].is_error


@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_of_the_caller_ends_the_answer(stream: bool) -> None:
    fake = FakeProvider([ADD, BOTH, "Noon."])
    async with talking_to(fake) as (client, _):
        tools = [server(allowed_tools=["add"]), NOW]
        first = await ask(client, stream, tools=tools)
        kinds = [item.type for item in first.output]
        assert sorted(kinds) == ["function_call", "mcp_call", "mcp_call", "message"]
        call = next(item for item in first.output if item.type == "function_call")
        assert (call.call_id, call.name, call.arguments) == ("call_2", "now", "{}")
        answer = {"type": "function_call_output", "call_id": "call_2", "output": "12:00"}
        history = [{"role": "user", "content": "40 and 2?"}, *first.output, answer]
        second = await ask(client, stream, input=history, tools=tools)
    assert second.output_text == "Noon."
    assert [tool.name for tool in fake.requests[0].tools] == ["now", "add"]
    assert fake.requests[2].messages[-1] == user(ToolResult("call_2", (Text("12:00"),)))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_nobody_has(stream: bool) -> None:
    lost = FakeReply(tool_uses=(ToolUse("call_1", "lost", {}),))
    async with talking_to(FakeProvider([lost, "Well."])) as (client, _):
        response = await ask(client, stream)
    called, _ = response.output
    assert (called.type, called.name, called.status) == ("mcp_call", "lost", "failed")
    assert "there is no tool 'lost'" in str(called.error.content)
    assert response.output_text == "Well."


async def test_only_tools_that_are_allowed(client: AsyncOpenAI, fake: FakeProvider) -> None:
    await ask(client, False, tools=[server(allowed_tools={"tool_names": ["add", "fail"]})])
    assert sorted(tool.name for tool in fake.requests[0].tools) == ["add", "fail"]


async def test_headers_go_to_the_server_and_nowhere_else() -> None:
    look = FakeReply(tool_uses=(ToolUse("call_1", "header", {"name": "x-team"}),))
    fake = FakeProvider([look, "Done."])
    async with talking_to(fake) as (client, _):
        response = await ask(client, False, tools=[server(headers={"x-team": "blue"})])
    assert response.output[0].output == "blue"
    assert response.tools[0].headers is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_is_not_there(client: AsyncOpenAI, stream: bool) -> None:
    gone = server(server_url="http://127.0.0.1:9/mcp")
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client, stream, tools=[gone])
    assert caught.value.code == "tool_failed"


async def test_a_wrong_server_is_named_by_the_callers_path(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, False, tools=[NOW, server(server_url="http://169.254.169.254/x")])
    assert caught.value.param == "tools[1].server_url"


async def test_an_error_in_a_later_round() -> None:
    fake = FakeProvider([ADD, RateLimited("slow down"), ADD, RateLimited("slow down")])
    async with talking_to(fake) as (client, _):
        with pytest.raises(openai.APIError, match="slow down"):
            await ask(client, True)
        with pytest.raises(openai.RateLimitError):
            await ask(client, False)


async def test_a_client_that_goes_stops_the_tool() -> None:
    hang = FakeReply(tool_uses=(ToolUse("call_1", "hang", {"name": "door"}),))
    async with talking_to(FakeProvider([hang])) as (client, gateway):
        source: Any = gateway.engine.tool_source(shared_server().tool())

        async def calls() -> int:
            return json.loads((await source.call("requests", {})).text)["tools/call"]

        before = await calls()
        stream = await client.responses.create(
            model="default", input="Go.", tools=[server()], stream=True
        )
        # Each look is a call itself; one more than those is the one that hangs.
        looks = 1
        while await calls() <= before + looks:
            looks += 1
        await stream.close()
        while "door" not in (await source.call("stopped", {})).text:
            pass
        await until(lambda: gateway.server.running_requests == 0)
