"""MCP servers on the Gemini wire: what is refused, and parts that come in odd orders."""

from typing import Any

import msgspec
import pytest

from penstock.contract.errors import UnsupportedOption
from penstock.contract.events import ToolEnded, ToolStarted
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import MCPCall, Message, Text, ToolUse, assistant, user
from penstock.contract.options import MCPTool, OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.gemini.decode import decode
from penstock.providers.gemini.encode import encode_body
from penstock.providers.gemini.stream import GeminiStreamDecoder
from penstock.providers.profiles import ModelProfile
from penstock.streaming.sse import ServerSentEvent

DOCS = MCPTool("https://docs.example.com/mcp", "docs")
SERVERS = {
    "mcpServers": [{"name": "docs", "streamableHttpTransport": {"url": DOCS.url}}],
}


def sent(*messages: Message, **options: Any) -> dict[str, Any]:
    asked = SamplingRequest(messages=messages or (user("Hi"),), max_tokens=9, **options)
    return encode_body("gemini-x", asked, ModelProfile())


def body(*parts: dict[str, Any]) -> bytes:
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}
    return msgspec.json.encode({"candidates": [candidate], "responseId": "r"})


def call(id: str | None = "t1", **fields: Any) -> dict[str, Any]:
    named = {"id": id} if id else {}
    return {"toolCall": {**named, "args": {"q": 1}, **fields}}


def answer(response: Any, id: str | None = "t1") -> dict[str, Any]:
    return {"toolResponse": {**({"id": id} if id else {}), "response": response}}


def calls_of(*parts: dict[str, Any]) -> list[MCPCall]:
    return [part for part in decode(body(*parts)).content if isinstance(part, MCPCall)]


def test_an_allow_list_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOption, match="offers all tools of a server") as caught:
        sent(mcp_tools=(DOCS, MCPTool(DOCS.url, "wiki", allowed_tools=["search"])))
    assert caught.value.options == ("mcp_tools[1].allowed_tools",)


def test_what_tool_choice_says_of_servers() -> None:
    assert "tools" not in sent(mcp_tools=(DOCS,), tool_choice=ToolChoice("none"))
    assert sent(mcp_tools=(DOCS,), tool_choice=ToolChoice("auto"))["tools"] == [SERVERS]
    with pytest.raises(UnsupportedOption, match="functions only") as caught:
        sent(mcp_tools=(DOCS,), tool_choice=ToolChoice("required"))
    assert caught.value.options == ("tool_choice",)
    tools = (ToolDefinition("now"),)
    both = sent(tools=tools, mcp_tools=(DOCS,), tool_choice=ToolChoice("required"))
    assert both["toolConfig"] == {
        "functionCallingConfig": {"mode": "ANY"},
        "includeServerSideToolInvocations": True,
    }
    neither = sent(tools=tools, mcp_tools=(DOCS,), tool_choice=ToolChoice("none"))
    assert [list(tool) for tool in neither["tools"]] == [["functionDeclarations"]]


def test_a_schema_beside_servers_is_asked_for_in_words() -> None:
    asked = sent(mcp_tools=(DOCS,), output_schema=OutputSchema({"type": "object"}))
    assert "responseJsonSchema" not in asked["generationConfig"]
    assert "JSON Schema" in asked["systemInstruction"]["parts"][0]["text"]


@pytest.mark.parametrize(
    ("response", "failed", "content"),
    [
        ({"content": [{"type": "text", "text": "a"}], "isError": False}, False, (Text("a"),)),
        ({"content": [{"type": "text", "text": "a"}], "isError": True}, True, (Text("a"),)),
        ({"output": "a"}, False, (Text("a"),)),
        ({"result": {"t": 4}}, False, (Text('{"t":4}'),)),
        ({"error": "gone"}, True, (Text("gone"),)),
        ({"t": 4}, False, (Text('{"t":4}'),)),
        ({}, False, ()),
        (None, False, ()),
    ],
)
def test_what_a_server_answered(response: Any, failed: bool, content: tuple[Text, ...]) -> None:
    (made,) = calls_of(call(), answer(response))
    assert (made.id, made.input, made.is_error) == ("t1", {"q": 1}, failed)
    assert made.content == content


def test_names_are_read_where_the_api_tells_them() -> None:
    (made,) = calls_of(call(name="search", serverName="docs"), answer({"output": "a"}))
    assert (made.server, made.name) == ("docs", "search")


def test_parts_go_back_unchanged_and_in_their_order() -> None:
    parts: list[dict[str, Any]] = [
        {**call(toolType="SOMETHING_NEW", extra=[1]), "thoughtSignature": "c2ln"},
        answer({"output": "a", "more": {"b": None}}),
        {"text": "Yes."},
    ]
    reply = decode(body(*parts))
    assert [type(part) for part in reply.content] == [MCPCall, Text]
    history = (user("a"), Message("assistant", reply.content), user("b"))
    assert sent(*history)["contents"][1]["parts"] == parts


@pytest.mark.parametrize(
    ("parts", "answers"),
    [
        ([call("t1"), call("t2"), answer({"output": "b"}, "t2"), answer({"output": "a"})], "ab"),
        (
            [call(None), answer({"output": "a"}, None), call(None), answer({"output": "b"}, None)],
            "ab",
        ),
        ([call(), call("t2"), answer({"output": "a"})], "a"),
        ([answer({"output": "a"}, "lost")], "a"),
    ],
)
def test_answers_find_their_calls(parts: list[dict[str, Any]], answers: str) -> None:
    assert "".join(made.text for made in calls_of(*parts)) == answers


def test_a_function_beside_a_server_is_still_the_callers_to_call() -> None:
    reply = decode(body(call(), answer({}), {"functionCall": {"name": "f", "args": {}}}))
    assert [type(part) for part in reply.content] == [MCPCall, ToolUse]
    assert reply.stop_reason == "toolUse"
    assert decode(body(call(), answer({}))).stop_reason == "endTurn"


def test_a_stream_tells_of_each_part_as_it_comes() -> None:
    decoder = GeminiStreamDecoder()

    def feed(part: dict[str, Any]) -> list[Any]:
        event = {"candidates": [{"content": {"parts": [part]}, "index": 0}]}
        return decoder.feed([ServerSentEvent(msgspec.json.encode(event))])

    assert feed(call(name="search")) == [ToolStarted("t1", "search", {"q": 1})]
    failure = answer({"error": "gone"})
    assert feed(failure) == [ToolEnded("t1", "search", True, (Text("gone"),))]


def test_parts_that_are_no_objects_are_survived() -> None:
    (made,) = calls_of({"toolCall": 7}, {"toolResponse": [1]})
    assert made.input == {}


def test_a_call_of_another_wire_is_told_in_words() -> None:
    foreign = MCPCall("1", "atlas", "find", {}, (Text("Nile"),), meta={"openai_mcp": {}})
    (part,) = sent(user("a"), assistant(foreign), user("c"))["contents"][1]["parts"]
    assert "Nile" in part["text"]
