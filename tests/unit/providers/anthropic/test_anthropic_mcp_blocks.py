"""MCP servers on Anthropic's Messages: what is refused, and answers that come in two parts."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import MalformedResponse, UnsupportedOption
from penstock.contract.events import ProviderEvent, ToolEnded, ToolStarted
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import MCPCall, Message, Text, assistant, user
from penstock.contract.options import MCPTool
from penstock.providers.anthropic.count import encode as encode_count
from penstock.providers.anthropic.decode import decode
from penstock.providers.anthropic.encode import encode
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.profiles import ModelProfile
from penstock.providers.registry import ProviderSettings, build
from penstock.providers.wire.dialect import WireCall
from tests.support.raw import RawServer, answering, whole
from tests.unit.providers.anthropic.message_wire import (
    START,
    STOP,
    begin,
    body,
    ending,
    reply_of,
    run,
    says,
    stop,
    text,
    wire_bytes,
    writes,
)

URL = "https://docs.example.com/mcp"
BETA = "mcp-client-2025-11-20"
MADE: dict[str, Any] = {
    "type": "mcp_tool_use",
    "id": "m1",
    "name": "search",
    "server_name": "docs",
    "input": {"q": 1},
}
ANSWER: dict[str, Any] = {
    "type": "mcp_tool_result",
    "tool_use_id": "m1",
    "is_error": False,
    "content": [{"type": "text", "text": "Found."}],
}
CALL = MCPCall(
    "m1", "docs", "search", {"q": 1}, (Text("Found."),), meta={"anthropic_mcp": "answered"}
)
PENDING = MCPCall("m1", "docs", "search", {"q": 1}, meta={"anthropic_mcp": "pending"})
JSON = "content-type: application/json\r\n"
SSE = "content-type: text/event-stream\r\n"


def wire_call(*messages: Message, **options: Any) -> WireCall:
    asked = SamplingRequest(messages=messages or (user("Hi"),), max_tokens=9, **options)
    return encode("claude-x", asked, ModelProfile(), False)


def sent(call: WireCall) -> Any:
    assert call.body is not None
    return msgspec.json.decode(call.body)


@pytest.mark.parametrize(
    ("tool", "field", "words"),
    [
        (MCPTool("http://host/mcp", "docs"), "mcp_tools[0].url", "https addresses only"),
        (
            MCPTool(URL, "docs", {"X-Team": "s3cr3t", "Authorization": "Bearer t"}),
            "mcp_tools[0].http_headers",
            "only, not X-Team",
        ),
        (
            MCPTool(URL, "docs", {"Authorization": "Basic s3cr3t"}),
            "mcp_tools[0].http_headers",
            "only, not Authorization",
        ),
    ],
)
def test_what_the_api_cannot_be_told_is_refused_by_name(
    tool: MCPTool, field: str, words: str
) -> None:
    with pytest.raises(UnsupportedOption, match=words) as caught:
        wire_call(mcp_tools=(tool,))
    assert caught.value.options == (field,)
    assert "s3cr3t" not in f"{caught.value} {caught.value.problems}"


def test_the_beta_is_named_only_where_it_is_needed() -> None:
    docs = (MCPTool(URL, "docs"),)
    assert wire_call(mcp_tools=docs).headers["anthropic-beta"] == BETA
    history = (user("a"), assistant(CALL, "b"), user("c"))
    assert wire_call(*history).headers["anthropic-beta"] == BETA
    foreign = MCPCall("1", "docs", "search", {}, meta={"openai_mcp": {}})
    for messages in ((user("a"),), (user("a"), assistant(foreign, "b"), user("c"))):
        assert "anthropic-beta" not in wire_call(*messages).headers
    asked = SamplingRequest(messages=(user("a"),), max_tokens=9, mcp_tools=docs)
    assert encode_count("claude-x", asked, ModelProfile()).headers["anthropic-beta"] == BETA


def test_a_call_of_another_wire_is_told_in_words() -> None:
    foreign = MCPCall("1", "atlas", "find", {}, (Text("Nile"),), meta={"openai_mcp": {}})
    (block,) = sent(wire_call(user("a"), assistant(foreign), user("c")))["messages"][1]["content"]
    assert block["type"] == "text"
    assert "Nile" in block["text"]


def test_a_text_after_a_list_of_tools_takes_it_back() -> None:
    listing: dict[str, Any] = {"type": "mcp_tool_listing", "mcp_server_name": "docs", "tools": []}
    reply = decode(body(listing, text("a"), text("b")))
    assert reply.content == (Text("ab", meta={"anthropic_mcp_tools": [listing]}),)
    call = wire_call(user("a"), Message("assistant", reply.content), user("c"))
    assert sent(call)["messages"][1]["content"] == [listing, text("ab")]
    assert call.headers["anthropic-beta"] == BETA


@pytest.mark.parametrize("pieces", [False, True])
def test_a_call_that_the_limit_left_unanswered_is_left_out(pieces: bool) -> None:
    if pieces:
        begun: dict[str, Any] = {**MADE, "input": {}}
        events = (START, begin(0, text("")), says(0, "a"), stop(0), begin(1, begun))
        reply = reply_of(run(*events, writes(1, '{"q'), stop(1), ending("max_tokens"), STOP)[-1:])
    else:
        reply = decode(body(text("a"), MADE, stop="max_tokens"))
    assert reply.content == (Text("a"),)


def test_a_call_without_a_name_is_no_call() -> None:
    with pytest.raises(MalformedResponse, match="no id or no name"):
        decode(body({**MADE, "name": ""}))


def test_an_answer_begins_what_no_end_of_a_block_has_begun() -> None:
    events = run(START, begin(0, MADE), begin(1, ANSWER), ending(), STOP)
    assert events[:-1] == [
        ToolStarted("m1", "search", {"q": 1}, "docs"),
        ToolEnded("m1", "search", content=(Text("Found."),)),
    ]
    assert reply_of(events).content == (CALL,)


def paused_answers(*, stream: bool) -> list[bytes]:
    """The call is made before two pauses, and answered after the second."""
    if not stream:
        bodies = (
            body(text("So"), MADE, stop="pause_turn"),
            body(stop="pause_turn"),
            body(ANSWER, text("Yes.")),
        )
        return [whole(each, headers=JSON) for each in bodies]
    streams = (
        (*(START, begin(0, text("")), says(0, "So"), stop(0)), begin(1, MADE), stop(1)),
        (START,),
        (START, begin(0, ANSWER), stop(0), begin(1, text("")), says(1, "Yes."), stop(1)),
    )
    ends = ("pause_turn", "pause_turn", "end_turn")
    return [
        whole(wire_bytes((*events, ending(reason), STOP)), headers=SSE)
        for events, reason in zip(streams, ends, strict=True)
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_may_be_answered_after_a_pause(stream: bool) -> None:
    asked = SamplingRequest(messages=(user("Hi"),), max_tokens=9, mcp_tools=(MCPTool(URL, "docs"),))
    async with (
        RawServer(answering(*paused_answers(stream=stream))) as server,
        HttpTransport() as transport,
    ):
        provider = build(ProviderSettings("a", "anthropic", server.url, Secret("k")), transport)
        events: list[ProviderEvent] = []
        if stream:
            async for batch in provider.stream("claude-x", asked):
                events += batch
            reply = reply_of(events)
        else:
            reply = await provider.generate("claude-x", asked)
        turns = [msgspec.json.decode(request.body)["messages"][1:] for request in server.requests]
    assert reply.content == (Text("So"), CALL, Text("Yes."))
    assert (reply.stop_reason, reply.api_calls) == ("endTurn", 3)
    resumed = [{"role": "assistant", "content": [text("So"), MADE]}]
    assert turns == [[], resumed, resumed]
    if stream:
        told = [event for event in events if isinstance(event, ToolStarted | ToolEnded)]
        assert told == [
            ToolStarted("m1", "search", {"q": 1}, "docs"),
            ToolEnded("m1", "search", content=(Text("Found."),)),
        ]


def test_an_answer_that_says_nothing_goes_back_without_an_empty_text() -> None:
    reply = decode(body(MADE, {**ANSWER, "content": [text("")]}, text("Hm.")))
    call = wire_call(user("a"), Message("assistant", reply.content), user("c"))
    assert sent(call)["messages"][1]["content"][1] == {**ANSWER, "content": []}


def test_an_answer_of_an_earlier_round_goes_back_after_its_call() -> None:
    """A third pause: the history of one turn holds the call and its answer as two parts."""
    answer = MCPCall("m1", "", "", {}, (Text("Found."),), meta={"anthropic_mcp": "answered"})
    call = wire_call(user("a"), assistant(PENDING, answer), user("c"))
    assert sent(call)["messages"][1]["content"] == [MADE, ANSWER]
