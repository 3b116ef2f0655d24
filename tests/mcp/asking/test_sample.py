"""`sample` in both eras, over every transport, with hosts that sample and hosts that do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import InputRequiredRoundsExceededError
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError

from penstock.mcp import Sampling
from penstock.testing import FakeProvider, engine_with
from tests.mcp.asking.hosts import ERAS, Host, calls, said, text_of
from tests.mcp.asking.server import OWN_ANSWER, build
from tests.support.mcp.processes import HttpServer, http_server

SCRIPT = Path(__file__).with_name("server.py")
Connect = Callable[[], Any]
era = pytest.mark.parametrize("era", ERAS)


@pytest.fixture(scope="module")
def over_http() -> Generator[HttpServer]:
    with http_server(lambda port: [sys.executable, str(SCRIPT), str(port)]) as running:
        yield running


@pytest.fixture(params=["memory", "stdio", "http"])
def server(request: pytest.FixtureRequest) -> Any:
    """What a client connects to; its own model says OWN_ANSWER."""
    if request.param == "http":
        return request.getfixturevalue("over_http").url
    if request.param == "stdio":
        return StdioServerParameters(command=sys.executable, args=[str(SCRIPT), "stdio"])
    return build(engine=engine_with(FakeProvider([OWN_ANSWER] * 5)))[0]


@era
async def test_the_host_answers_where_it_samples(server: Any, era: str) -> None:
    host = Host()
    async with host.client(server, era) as client:
        result = await client.call_tool("summarise", {"text": "long"})
    assert said(result) == "mcp-host: [Summarise: long]"
    assert [params.max_tokens for params in host.asked] == [300]


@era
async def test_the_servers_own_model_answers_where_the_host_does_not(server: Any, era: str) -> None:
    async with Client(server, mode=era) as client:
        result = await client.call_tool("summarise", {"text": "long"})
    assert said(result) == f"fake: {OWN_ANSWER}"


@era
async def test_a_question_may_be_made_of_an_answer(server: Any, era: str) -> None:
    host = Host()
    async with host.client(server, era) as client:
        result = await client.call_tool("twice")
    assert said(result) == "[one] | [two after [one]]"
    assert len(host.asked) == 2


@era
async def test_questions_may_be_asked_together(server: Any, era: str) -> None:
    host = Host()
    async with host.client(server, era) as client:
        assert said(await client.call_tool("together")) == "[a] | [b]"
        assert said(await client.call_tool("gathered")) == "[a] | [b]"
    assert len(host.asked) == 4


@era
async def test_the_tool_loop_ends_and_runs_each_call_once(era: str) -> None:
    server, runs = build()
    host = Host(
        [calls("add", {"a": 1, "b": 2}, {"a": -1, "b": 0}), calls("add", {"a": 3, "b": 4}), "7"]
    )
    async with host.client(server, era, tools=True) as client:
        result = await client.call_tool("calculate", {"rounds": 2})
    assert said(result) == "7 after 2 rounds and 3 calls"
    assert runs["add"] == 3
    first, second, last = host.asked
    assert first.tools is not None
    assert [tool.name for tool in first.tools] == ["add"]
    answers = second.messages[-1].content_as_list
    assert [each.is_error or False for each in answers if each.type == "tool_result"] == [
        False,
        True,
    ]
    assert first.tool_choice is None
    assert last.tool_choice is not None
    assert last.tool_choice.mode == "none"


@era
async def test_a_host_that_never_stops_calling_tools_is_stopped(era: str) -> None:
    server, runs = build()
    host = Host(lambda _: calls("add", {"a": 1, "b": 2}))
    async with host.client(server, era, tools=True) as client:
        result = await client.call_tool("calculate", {"rounds": 3})
    assert result.is_error
    assert len(host.asked) == 4
    assert host.asked[-1].tool_choice is not None
    assert host.asked[-1].tool_choice.mode == "none"
    assert runs["add"] == 3


async def test_a_tool_loop_fits_into_the_rounds_that_a_client_takes() -> None:
    server, _ = build()

    def until_none(params: Any) -> Any:
        choice = params.tool_choice
        return "done" if choice and choice.mode == "none" else calls("add", {"a": 1, "b": 2})

    host = Host(until_none)
    async with host.client(server, ERAS[1], tools=True) as client:
        result = await client.call_tool("calculate", {"rounds": 100})
    assert said(result) == "done after 9 rounds and 9 calls"
    assert len(host.asked) == 10


@era
async def test_a_tool_that_only_the_caller_knows_is_left_to_it(era: str) -> None:
    server, _ = build()
    host = Host([calls("weather", {"day": "today"})])
    async with host.client(server, era, tools=True) as client:
        result = await client.call_tool("forecast")
    assert said(result) == "weather {'day': 'today'} toolUse"


@era
async def test_a_host_without_tools_is_not_asked_with_tools(era: str) -> None:
    server, _ = build(engine=engine_with(FakeProvider(["from here"])))
    host = Host()
    async with host.client(server, era) as client:
        result = await client.call_tool("calculate")
        with pytest.raises(MCPError) as refused:
            await client.call_tool("forecast")
    assert said(result) == "from here after 0 rounds and 0 calls"
    assert host.asked == []
    assert refused.value.code == mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"sampling": {"tools": {}}}}


@era
@pytest.mark.parametrize("tools", [True, False])
async def test_a_host_without_tools_is_not_told_of_any(era: str, tools: bool) -> None:
    server, _ = build(engine=engine_with(FakeProvider(["from here"])))
    async with Host().client(server, era, tools=tools) as client:
        result = await client.call_tool("remember")
    assert said(result) == ("mcp-host" if tools else "fake")


@era
async def test_without_sampling_and_without_an_engine_the_client_learns_what_it_lacks(
    era: str,
) -> None:
    server, _ = build()
    async with Client(server, mode=era) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("twice")
    assert refused.value.code == mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}


@era
async def test_every_option_reaches_the_host(era: str) -> None:
    server, _ = build()
    host = Host(["yes"])
    async with host.client(server, era) as client:
        result = await client.call_tool("everything")
    assert said(result) == "host-model endTurn None"
    (params,) = host.asked
    sent = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    texts = [{"type": "text", "text": "Look"}, {"type": "text", "text": "closely"}]
    expected: dict[str, Any] = {
        "messages": [{"role": "user", "content": texts}],
        "maxTokens": 7,
        "systemPrompt": "Be brief.\n\nBe kind.",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "luna"}]},
        "metadata": {"user": "u1"},
    }
    if era == "legacy":  # the modern schema has no place for it inside another result
        expected["_meta"] = {"dev.example/trace": "t1"}
    assert sent == expected


@era
async def test_context_is_asked_for_where_the_host_gathers_it(era: str) -> None:
    server, _ = build()
    host = Host(["yes"])
    capability = mcp_types.SamplingCapability(context=mcp_types.SamplingContextCapability())
    client = Client(server, mode=era, sampling_callback=host, sampling_capabilities=capability)
    async with client:
        result = await client.call_tool("contextual")
    assert said(result) == "yes "
    assert host.asked[0].include_context == "thisServer"


@era
async def test_context_is_refused_by_name_where_the_host_gathers_none(era: str) -> None:
    server, _ = build()
    host = Host(["yes"])
    async with host.client(server, era) as client:
        refused = await client.call_tool("contextual")
        dropped = await client.call_tool("contextual", {"ignore": True})
    assert said(refused) == (
        "the client has not declared sampling.context; leave include_context out, "
        "or set ignore_invalid_options=True"
    )
    assert said(dropped) == "yes include_context"
    (asked,) = host.asked
    assert asked.include_context is None


async def test_a_user_who_refuses_is_an_error_that_the_tool_can_catch() -> None:
    server, _ = build()
    host = Host([mcp_types.ErrorData(code=-1, message="User rejected sampling request")])
    async with host.client(server, "legacy") as client:
        result = await client.call_tool("careful")
    assert said(result).startswith("SamplingRejected: the user of the host refused")


async def test_a_user_who_refuses_ends_the_call_in_the_modern_era() -> None:
    server, runs = build()
    host = Host([mcp_types.ErrorData(code=-1, message="User rejected sampling request")])
    async with host.client(server, ERAS[1]) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("summarise", {"text": "x"})
    assert refused.value.code == -1
    assert runs["summarise"] == 1


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (mcp_types.INVALID_PARAMS, "InvalidRequest"),
        (mcp_types.REQUEST_TIMEOUT, "ProviderTimeout"),
        (mcp_types.INTERNAL_ERROR, "ProviderUnavailable"),
    ],
)
async def test_a_host_that_fails_is_an_error_by_its_code(code: int, name: str) -> None:
    server, _ = build()
    host = Host([mcp_types.ErrorData(code=code, message="no")])
    async with host.client(server, "legacy") as client:
        assert said(await client.call_tool("careful")).startswith(f"{name}: ")


@era
async def test_an_answer_that_calls_tools_nobody_gave_is_refused(era: str) -> None:
    server, _ = build()
    host = Host([calls("add", {"a": 1, "b": 2})])
    async with host.client(server, era) as client:
        text = said(await client.call_tool("careful"))
    assert text.startswith("MalformedResponse: ")


@era
async def test_an_effect_happens_once(era: str) -> None:
    server, runs = build()
    host = Host()
    async with host.client(server, era) as client:
        result = await client.call_tool("pay")
    assert said(result) == "[Thank for 1] 1 of 1"
    assert runs["charge"] == 1
    assert runs["pay"] == (1 if era == "legacy" else 3)


@era
async def test_the_same_question_may_get_another_answer(era: str) -> None:
    server, _ = build()
    host = Host(["heads", "tails"])
    async with host.client(server, era) as client:
        assert said(await client.call_tool("same")) == "heads | tails"


@era
async def test_the_servers_own_model_is_asked_once_however_often_the_tool_runs(era: str) -> None:
    fake = FakeProvider(["mine"])
    server, _ = build(engine=engine_with(fake))
    host = Host()
    async with host.client(server, era) as client:
        assert said(await client.call_tool("mixed")) == "fake mcp-host"
    assert len(fake.requests) == 1


async def test_a_question_that_changes_is_found_at_once() -> None:
    server, runs = build()
    host = Host()
    async with host.client(server, ERAS[1]) as client:
        result = await client.call_tool("fickle")
    assert result.is_error
    assert len(host.asked) == 1
    assert runs["fickle"] == 2


async def test_a_call_asks_as_often_as_clients_take() -> None:
    server, _ = build()
    host = Host()
    async with host.client(server, ERAS[1]) as client:
        assert said(await client.call_tool("many", {"count": 10})) == "done"
        result = await client.call_tool("many", {"count": 11})
        assert result.is_error
    assert len(host.asked) == 20


async def test_more_rounds_are_to_be_had() -> None:
    server, _ = build(sampling=Sampling(max_rounds=12))
    host = Host()
    async with host.client(server, ERAS[1], input_required_max_rounds=12) as client:
        assert said(await client.call_tool("many", {"count": 12})) == "done"
    async with host.client(server, ERAS[1]) as client:
        with pytest.raises(InputRequiredRoundsExceededError):
            await client.call_tool("many", {"count": 12})


async def test_what_a_call_remembers_has_a_limit() -> None:
    server, _ = build(sampling=Sampling(max_state_bytes=2_000))
    host = Host(lambda params: "x" * 3_000 if text_of(params) == "one" else "y")
    async with host.client(server, ERAS[1]) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("twice")
    assert "2,000 are the limit" in str(refused.value)


@era
async def test_prompts_and_resources_sample_too(server: Any, era: str) -> None:
    host = Host()
    async with host.client(server, era) as client:
        prompt = await client.get_prompt("opening")
        resource = await client.read_resource("poem://snow")
    content, (read,) = prompt.messages[0].content, resource.contents
    assert isinstance(content, mcp_types.TextContent)
    assert isinstance(read, mcp_types.TextResourceContents)
    assert (content.text, read.text) == ("[an opening]", "[a poem on snow]")


@era
async def test_without_the_extension_the_first_call_says_so(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    from penstock.mcp import sample

    server: MCPServer[Any] = MCPServer("bare")

    @server.tool()
    async def bare(ctx: Context) -> str:
        return (await sample(ctx, "x", max_tokens=1)).text

    async with Host().client(server, era) as client:
        assert (await client.call_tool("bare")).is_error
    assert "extensions=[Sampling()]" in caplog.text
    assert bare
