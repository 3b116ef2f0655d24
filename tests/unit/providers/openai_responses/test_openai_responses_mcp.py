"""MCP servers on the Responses wire: what goes out, and what becomes of odd items."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import ToolFailed
from penstock.contract.events import Chunk, Finished, ToolEnded, ToolStarted
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Content,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolUse,
    assistant,
    user,
)
from penstock.contract.options import MCPTool
from penstock.providers.openai_responses.decode import decode
from penstock.providers.openai_responses.encode import encode
from penstock.providers.profiles import ModelProfile
from tests.unit.providers.openai_responses import responses_wire as wire

DOCS = MCPTool("https://docs.example.com/mcp", "docs")
LISTED: dict[str, Any] = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "docs",
    "tools": [{"name": "search", "input_schema": {"type": "object"}}],
}


def made(id: str = "mcp_1", **fields: Any) -> dict[str, Any]:
    return {
        "type": "mcp_call",
        "id": id,
        "server_label": "docs",
        "name": "search",
        "arguments": '{"q":1}',
        "status": "completed",
        "output": "Found.",
        "error": None,
        **fields,
    }


def failed(error: Any, **fields: Any) -> dict[str, Any]:
    return made(output=None, error=error, status="failed", **fields)


def calls_of(*items: dict[str, Any], **fields: Any) -> list[MCPCall]:
    content = decode(wire.body(*items, **fields)).content
    return [part for part in content if isinstance(part, MCPCall)]


def sent(*content: Content, mcp_tools: tuple[MCPTool, ...] = (DOCS,)) -> list[dict[str, Any]]:
    """The assistant's items of a history."""
    request = SamplingRequest(
        messages=(user("Hi"), Message("assistant", content), user("So?")),
        max_tokens=9,
        mcp_tools=mcp_tools,
    )
    call = encode("gpt-x", request, ModelProfile(), False)
    assert call.body is not None
    return msgspec.json.decode(call.body)["input"][1:-1]


@pytest.mark.parametrize(
    ("error", "content"),
    [
        ({"type": "http_error", "code": 503, "message": "gone"}, (Text("gone"),)),
        ({"type": "mcp_protocol_error", "code": -1, "message": "no"}, (Text("no"),)),
        (
            {
                "type": "mcp_tool_execution_error",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                ],
            },
            (Text("a"), Image(data="aGk=", mime_type="image/png")),
        ),
        ("an older server's text", (Text("an older server's text"),)),
        ({"odd": 1}, (Text('{"odd":1}'),)),
    ],
)
def test_a_failed_call_says_why_and_goes_back_as_it_came(
    error: Any, content: tuple[Content, ...]
) -> None:
    (call,) = calls_of(failed(error), wire.message("Hm."))
    assert (call.is_error, call.content) == (True, content)
    (item,) = sent(call)
    assert item["error"] == error
    assert "output" not in item


def test_a_call_that_failed_without_a_word_failed() -> None:
    (call,) = calls_of(made(output=None, status="failed"))
    assert (call.is_error, call.content) == (True, ())


def test_arguments_that_are_no_json_go_back_unread() -> None:
    item = failed({"type": "mcp_protocol_error", "message": "bad"}, arguments='{"q":')
    (call,) = calls_of(item)
    assert call.input == {}
    assert sent(call)[0]["arguments"] == '{"q":'


def test_a_call_that_the_limit_broke_off_is_left_out() -> None:
    broken = made("mcp_2", output=None, status="incomplete")
    cut = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    assert [call.id for call in calls_of(made(), broken, **cut)] == ["mcp_1"]


def test_lists_of_tools_hang_on_what_follows_and_go_back_to_their_server() -> None:
    wiki = {**LISTED, "id": "mcpl_2", "server_label": "wiki"}
    reply = decode(wire.body(LISTED, wiki, wire.thought("Hm."), wire.message("Hi."), made()))
    assert [type(part) for part in reply.content] == [Reasoning, Text, MCPCall]
    types = [item["type"] for item in sent(*reply.content)]
    assert types == ["mcp_list_tools", "reasoning", "message", "mcp_call"]
    assert sent(*reply.content)[0] == LISTED
    both = (DOCS, MCPTool("https://wiki.example.com/", "wiki"))
    assert sent(*reply.content, mcp_tools=both)[:2] == [LISTED, wiki]
    assert sent(*reply.content, mcp_tools=())[0]["type"] == "reasoning"


def test_a_list_that_nothing_follows_is_forgotten() -> None:
    assert decode(wire.body(wire.message("Hi."), LISTED)).content == (Text("Hi."),)


def test_a_server_that_lists_nothing_is_a_failure_that_does_not_go_back() -> None:
    (call,) = calls_of({**LISTED, "tools": [], "error": "401 from the server"}, wire.message("a"))
    assert (call.server, call.name, call.is_error) == ("docs", "tools/list", True)
    assert call.text == "401 from the server"
    assert sent(call) == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_wish_for_approval_is_a_failed_tool(stream: bool) -> None:
    item = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "docs",
        "name": "delete",
        "arguments": "{}",
    }
    events = (wire.created(), wire.added(0, item), wire.done(0, item), wire.end(item))
    with pytest.raises(ToolFailed, match=r"an approval for the tool 'delete' .* 'docs'") as caught:
        wire.run(*events) if stream else decode(wire.body(item))
    assert not caught.value.retryable


def test_a_text_before_a_wish_for_approval_is_told_first() -> None:
    item = {"type": "mcp_approval_request", "id": "a", "server_label": "d", "name": "n"}
    said = wire.message("So.")
    frames = [wire.frame(wire.text(0, "So.")), wire.frame(wire.end(said, item))]
    decoder = wire.ResponseStreamDecoder()
    assert decoder.feed(frames) == [Chunk("So.")]
    with pytest.raises(ToolFailed):
        decoder.finish()


def arguments_done(index: int, text: str) -> dict[str, Any]:
    return {
        "type": "response.mcp_call_arguments.done",
        "output_index": index,
        "item_id": "mcp_1",
        "arguments": text,
    }


STARTED = ToolStarted("mcp_1", "search", {"q": 1}, "docs")
ENDED = ToolEnded("mcp_1", "search", content=(Text("Found."),))


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((wire.added(0, made()), arguments_done(0, '{"q":1}')), id="as documented"),
        pytest.param((wire.added(0, made()),), id="arguments only in the whole"),
        pytest.param((), id="the whole only"),
        pytest.param((arguments_done(0, '{"q":1}'),), id="the beginning is lost"),
        pytest.param((wire.added(0, made()), arguments_done(0, '{"q"')), id="broken arguments"),
        pytest.param(
            (wire.added(0, made()), *[arguments_done(0, '{"q":1}')] * 2), id="arguments twice"
        ),
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_a_stream_tells_once_of_a_beginning_and_an_end(
    events: tuple[dict[str, Any], ...], done: bool
) -> None:
    whole = [wire.done(0, made())] if done else []
    told = wire.run(wire.created(), *events, *whole, wire.end(made()))
    assert told[:-1] == [STARTED, ENDED]
    assert isinstance(told[-1], Finished)
    (call,) = wire.reply_of(told).content
    assert isinstance(call, MCPCall)
    assert wire.reply_of(told).stop_reason == "endTurn"


def test_the_beginning_is_told_before_the_server_has_answered() -> None:
    decoder = wire.ResponseStreamDecoder()
    assert decoder.feed([wire.frame(wire.added(0, made(output=None, status="in_progress")))]) == []
    assert decoder.feed([wire.frame(arguments_done(0, '{"q":1}'))]) == [STARTED]


def test_calls_of_other_wires_go_back_in_words() -> None:
    foreign = MCPCall("x", "atlas", "find", {}, (Text("Nile"),), meta={"anthropic_mcp": "answered"})
    (item,) = sent(foreign)
    assert item["type"] == "message"
    assert "Nile" in item["content"][0]["text"]


def test_a_function_beside_a_server_is_still_the_callers_to_call() -> None:
    reply = decode(wire.body(made(), wire.call("f")))
    assert [type(part) for part in reply.content] == [MCPCall, ToolUse]
    assert reply.stop_reason == "toolUse"
    assert sent(assistant("a").content[0], mcp_tools=())[0]["type"] == "message"
