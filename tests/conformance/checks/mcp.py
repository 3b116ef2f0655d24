"""MCP servers that the provider itself connects to: what is declared, told, and sent back."""

from __future__ import annotations

import pytest

from penstock import (
    Chunk,
    InvalidRequest,
    MCPCall,
    MCPTool,
    Result,
    Text,
    ToolEnded,
    ToolStarted,
    assistant,
    user,
)
from tests.conformance.case import Case, collect, completed
from tests.conformance.checks.tools import PARIS, TOOLS
from tests.support.wire.scenario import Call, Scenario, ServerCall

SECRET = "docs-token-0123456789"
SERVER = MCPTool(
    "https://mcp.example.com/mcp", "docs", http_headers={"Authorization": f"Bearer {SECRET}"}
)
SEARCH = ServerCall("docs", Call.of("mcp_1", "search", {"query": "tides"}), "Twice a day.")
LOST = ServerCall("docs", Call.of("mcp_2", "open", {"page": 9}), "no such page", failed=True)
FOREIGN = MCPCall(
    "x1", "atlas", "find", {"name": "Nile"}, (Text("6650 km"),), meta={"elsewhere": 1}
)


def _made(case: Case, call: ServerCall) -> MCPCall:
    named = case.mcp_names
    return MCPCall(
        call.call.id,
        call.server if named else "",
        call.call.name if named else "",
        call.call.arguments,
        (Text(call.answer),),
        call.failed,
    )


def _bare(call: MCPCall) -> MCPCall:
    """Without `_meta`, which only the dialect that made it reads."""
    return MCPCall(call.id, call.server, call.name, call.input, call.content, call.is_error)


def _same(case: Case, result: Result) -> None:
    assert [_bare(call) for call in result.mcp_calls] == [_made(case, SEARCH), _made(case, LOST)]
    assert result.text == "Two tides."
    assert result.tool_uses == ()
    assert result.stop_reason == "endTurn"


async def ask_with_server(case: Case) -> None:
    await case.ask(mcp_tools=[SERVER])


async def native(case: Case) -> None:
    """The calls come with the answer, and go back as the wire's own."""
    case.play(Scenario(mcp=(SEARCH, LOST), text=("Two ", "tides.")), Scenario(text=("Yes.",)))
    result = await case.ask(tools=TOOLS, mcp_tools=[SERVER])
    assert case.seen.mcp_tools == (SERVER,)
    assert case.seen.tools == TOOLS
    _same(case, result)
    await case.ask([user("Hello"), result.message, user("Sure?")], mcp_tools=[SERVER])
    (turn,) = (message for message in case.seen.messages if message.role == "assistant")
    told = [_bare(part) for part in turn.content if isinstance(part, MCPCall)]
    assert told == [_made(case, SEARCH), _made(case, LOST)]
    assert turn.text == "Two tides."


async def native_stream(case: Case) -> None:
    case.play(Scenario(mcp=(SEARCH, LOST), text=("Two ", "tides.")))
    events = await collect(await case.stream(mcp_tools=[SERVER]))
    _same(case, completed(events))
    expected: list[object] = []
    for call in (_made(case, SEARCH), _made(case, LOST)):
        expected.append(ToolStarted(call.id, call.name, call.input, call.server))
        expected.append(ToolEnded(call.id, call.name, call.is_error, call.content))
    assert events[:-1] == [*expected, Chunk("Two "), Chunk("tides.")]


async def beside_functions(case: Case) -> None:
    """A call that was made for the caller, and one that the caller has to make."""
    scenario = Scenario(mcp=(SEARCH,), calls=(PARIS,), stop="tool_use")
    case.play(scenario, scenario)
    streamed = await collect(await case.stream(tools=TOOLS, mcp_tools=[SERVER]))
    for result in (await case.ask(tools=TOOLS, mcp_tools=[SERVER]), completed(streamed)):
        assert [_bare(call) for call in result.mcp_calls] == [_made(case, SEARCH)]
        assert [use.name for use in result.tool_uses] == [PARIS.name]
        assert result.stop_reason == "toolUse"


async def history(case: Case) -> None:
    """What another provider's server has answered is told in words."""
    case.play(Scenario(text=("Yes.",)))
    await case.ask([user("How long is it?"), assistant(FOREIGN, "Long."), user("Sure?")])
    told = case.seen.messages[1].text
    assert not [part for part in case.seen.messages[1].content if isinstance(part, MCPCall)]
    for words in ("atlas", "find", "Nile", "6650 km", "Long."):
        assert words in told


async def history_live(case: Case) -> None:
    turns = [user("How long is it?"), assistant("Long."), user("Sure?")]
    plain = await case.ask(turns, max_tokens=1)
    told = await case.ask([turns[0], assistant(FOREIGN, "Long."), turns[2]], max_tokens=1)
    assert plain.usage.input_tokens is not None
    assert told.usage.input_tokens is not None
    assert told.usage.input_tokens > plain.usage.input_tokens


async def refused(case: Case) -> None:
    """Before anything is sent, and without a word of the headers."""
    wrong = [
        MCPTool("http://169.254.169.254/mcp", "cloud", SERVER.http_headers),
        MCPTool(SERVER.url, "docs", SERVER.http_headers, mode="adapter"),
    ]
    with pytest.raises(InvalidRequest) as caught:
        await case.ask(mcp_tools=wrong)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["mcp_tools[0].url", "mcp_tools[1].mode"]
    assert SECRET not in str(caught.value)
    assert case.scripted is None or not case.scripted.seen
