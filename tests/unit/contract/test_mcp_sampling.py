"""MCP's params become a request and a result becomes MCP's JSON."""

import json
from types import MappingProxyType
from typing import Any

import mcp_types
import pytest
from mcp_types import CreateMessageRequestParams, CreateMessageResult

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.mcp.sampling import spelled_for_mcp
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    user,
)
from penstock.contract.metadata import Metadata, Usage
from penstock.contract.options import ModelPreferences, ToolChoice, ToolDefinition

EVERYTHING: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "Hi", "_meta": {"a": 1}}},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "now", "input": {"zone": "utc"}}],
            "_meta": {"turn": 2},
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "toolUseId": "c1",
                    "content": [
                        {"type": "text", "text": "noon"},
                        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                        {"type": "audio", "data": "BBBB", "mimeType": "audio/wav"},
                    ],
                    "structuredContent": {"hour": 12},
                    "isError": True,
                    "_meta": {"cache": "x"},
                }
            ],
        },
    ],
    "modelPreferences": {
        "hints": [{"name": "claude"}, {"family": "unknown"}, {"name": "gpt"}],
        "costPriority": 0.1,
        "speedPriority": 0,
        "intelligencePriority": 1,
    },
    "systemPrompt": "Be brief.",
    "includeContext": "thisServer",
    "temperature": 0.5,
    "maxTokens": 100,
    "stopSequences": ["END"],
    "metadata": {"user": "u1", "deep": {"list": [1, None]}},
    "tools": [
        {
            "name": "now",
            "title": "Now",
            "description": "The time.",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "_meta": {"t": 1},
        }
    ],
    "toolChoice": {"mode": "required"},
    "task": {"ttl": 5},
    "_meta": {"progressToken": 7, "io.modelcontextprotocol/protocolVersion": "2026-07-28"},
    "somethingNew": {"of": "a later revision"},
}
REQUEST = SamplingRequest(
    messages=(
        Message("user", (Text("Hi", meta={"a": 1}),)),
        Message("assistant", (ToolUse("c1", "now", {"zone": "utc"}),), {"turn": 2}),
        Message(
            "user",
            (
                ToolResult(
                    "c1",
                    (Text("noon"), Image("AAAA", "image/png"), Audio("BBBB", "audio/wav")),
                    {"hour": 12},
                    True,
                    meta={"cache": "x"},
                ),
            ),
        ),
    ),
    max_tokens=100,
    system_prompt="Be brief.",
    temperature=0.5,
    stop_sequences=("END",),
    model_preferences=ModelPreferences(("claude", "gpt"), 0.1, 0, 1),
    include_context="thisServer",
    tools=(ToolDefinition("now", "The time.", {"type": "object"}, meta={"t": 1}),),
    tool_choice=ToolChoice("required"),
    metadata={"user": "u1", "deep": {"list": [1, None]}},
    meta={"progressToken": 7, "io.modelcontextprotocol/protocolVersion": "2026-07-28"},
)


def minimal(**more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": {"type": "text", "text": "Hi"}}
    return {"messages": [message], "maxTokens": 9, **more}


def problems_of(params: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        SamplingRequest.from_mcp(params)
    return {problem.path: problem.message for problem in caught.value.problems}


# Reading


@pytest.mark.parametrize(
    "params",
    [
        EVERYTHING,
        MappingProxyType(EVERYTHING),
        json.dumps(EVERYTHING),
        json.dumps(EVERYTHING).encode(),
    ],
    ids=["dict", "mapping", "text", "bytes"],
)
def test_every_parameter_finds_its_field(params: Any) -> None:
    assert SamplingRequest.from_mcp(params) == REQUEST


def test_the_sdk_takes_the_same_params_for_valid() -> None:
    CreateMessageRequestParams.model_validate(EVERYTHING)


def test_two_parameters_are_enough() -> None:
    assert SamplingRequest.from_mcp(minimal()) == SamplingRequest(
        messages=(user("Hi"),), max_tokens=9
    )


def test_null_stands_for_a_key_that_is_not_there() -> None:
    optional = [key for key in EVERYTHING if key not in ("messages", "maxTokens")]
    assert SamplingRequest.from_mcp(minimal(**dict.fromkeys(optional))) == SamplingRequest.from_mcp(
        minimal()
    )


def test_a_system_message_and_plain_text_are_taken_too() -> None:
    request = SamplingRequest.from_mcp(
        minimal(messages=[{"role": "system", "content": "Be brief."}])
    )
    assert request.messages == (Message("system", (Text("Be brief."),)),)


@pytest.mark.parametrize(("choice", "mode"), [({}, "auto"), ({"mode": "none"}, "none")])
def test_a_tool_choice_without_a_mode_is_automatic(choice: dict[str, str], mode: Any) -> None:
    assert SamplingRequest.from_mcp(minimal(toolChoice=choice)).tool_choice == ToolChoice(mode)


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "resource", "resource": {"uri": "file:///a", "text": "words"}},
            Text("words"),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "x:a", "blob": "AAAA", "mimeType": "image/png"},
            },
            Image("AAAA", "image/png"),
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "x:a", "blob": "AAAA", "mimeType": "audio/wav"},
            },
            Audio("AAAA", "audio/wav"),
        ),
        (
            {"type": "resource", "resource": {"uri": "x:a", "blob": "AAA="}, "_meta": {"m": 1}},
            Text("[application/octet-stream of 2 bytes at x:a]", meta={"m": 1}),
        ),
        (
            {"type": "resource_link", "name": "a", "uri": "x:a", "mimeType": "text/plain"},
            Text("[a: x:a (text/plain)]"),
        ),
        (
            {"type": "resource_link", "name": "a", "title": "The A", "uri": "x:a"},
            Text("[The A: x:a]"),
        ),
    ],
)
def test_resources_in_a_tools_result_are_told_as_text_picture_or_sound(
    block: dict[str, Any], part: Text | Image | Audio
) -> None:
    result = {"type": "tool_result", "toolUseId": "c1", "content": [block]}
    mcp_types.ToolResultContent.model_validate(result)
    request = SamplingRequest.from_mcp(minimal(messages=[{"role": "user", "content": result}]))
    assert request.messages[0].content == (ToolResult("c1", (part,)),)


def test_a_structured_result_that_is_no_object_is_told_as_text_unless_text_is_there() -> None:
    def read(content: list[Any]) -> ToolResult:
        block = {
            "type": "tool_result",
            "toolUseId": "c1",
            "content": content,
            "structuredContent": [1, 2],
        }
        request = SamplingRequest.from_mcp(minimal(messages=[{"role": "user", "content": block}]))
        (part,) = request.messages[0].content
        assert isinstance(part, ToolResult)
        return part

    assert read([]) == ToolResult("c1", (Text("[1,2]"),))
    assert read([{"type": "text", "text": "1 and 2"}]) == ToolResult("c1", (Text("1 and 2"),))


# What is wrong


def test_every_problem_is_reported_at_once_with_its_path() -> None:
    found = problems_of(
        {
            "messages": [
                {"role": "robot", "content": {"type": "text"}},
                "hello",
                {"content": 3},
                {"role": "user", "content": [{"type": "video"}, 7, {"data": "x"}]},
                {
                    "role": "user",
                    "content": {
                        "type": "tool_result",
                        "content": [{"type": "tool_use"}, {"type": "resource", "resource": {}}],
                        "isError": "no",
                    },
                },
                {"role": "assistant", "content": {"type": "tool_use", "input": []}, "_meta": 1},
                {"role": "user", "content": {"type": "image", "data": 1}},
            ],
            "modelPreferences": {
                "hints": [{"name": 1}, "x"],
                "costPriority": 2,
                "speedPriority": "x",
            },
            "systemPrompt": ["x"],
            "includeContext": "everything",
            "temperature": True,
            "maxTokens": 0,
            "stopSequences": ["END", 1],
            "metadata": [],
            "tools": [{"name": "x"}],
            "toolChoice": {"mode": "tool"},
            "_meta": "x",
        }
    )
    assert found == {
        "messages[0].role": "'robot' is not known; give one of user, assistant, system",
        "messages[0].content.text": "is required; give a text",
        "messages[1]": "is a text; give an object",
        "messages[2].role": "is required; give one of user, assistant, system",
        "messages[2].content": "is the number 3; give a block or a list of blocks",
        "messages[3].content[0].type": "'video' is not known; give one of text, image, audio, "
        "tool_use, tool_result",
        "messages[3].content[1]": "is the number 7; give an object",
        "messages[3].content[2].type": "is required; give one of text, image, audio, tool_use, "
        "tool_result",
        "messages[4].content.content[0].type": "'tool_use' is not known; give one of text, image, "
        "audio, resource, resource_link",
        "messages[4].content.content[1].resource": "has neither text nor blob",
        "messages[4].content.toolUseId": "is required; give a text",
        "messages[4].content.isError": "is a text; give true or false",
        "messages[5].content.id": "is required; give a text",
        "messages[5].content.name": "is required; give a text",
        "messages[5].content.input": "is a list; give an object",
        "messages[5]._meta": "is the number 1; give an object",
        "messages[6].content.data": "is the number 1; give a text",
        "messages[6].content.mimeType": "is required; give a text",
        "modelPreferences.hints[0].name": "is the number 1; give a text",
        "modelPreferences.hints[1]": "is a text; give an object",
        "modelPreferences.costPriority": "2 is not between 0 and 1",
        "modelPreferences.speedPriority": "is a text; give a number",
        "systemPrompt": "is a list; give a text",
        "includeContext": "'everything' is not known; give one of none, thisServer, allServers",
        "temperature": "is true; give a number",
        "maxTokens": "0 is not a positive whole number",
        "stopSequences[1]": "is the number 1; give a text",
        "metadata": "is a list; give an object",
        "tools[0].inputSchema": "is required; give an object",
        "toolChoice.mode": "'tool' is not known; give one of auto, required, none",
        "_meta": "is a text; give an object",
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (b"{", "the params are not JSON"),
        ("\ud800", "the params are not JSON"),
        ("[" * 100_000, "the params are not JSON"),
        ("[]", "the params are a list; give an object"),
        (None, "the params are null; give an object"),
        (7, "the params are the number 7; give an object"),
    ],
)
def test_params_that_are_no_object_are_refused(params: Any, message: str) -> None:
    assert problems_of(params)[""].startswith(message)


def test_the_two_required_parameters_are_named() -> None:
    assert problems_of({}) == {
        "messages": "is required; give a list",
        "maxTokens": "is required; give a number",
    }


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), -5, 1.5, 0.0])
def test_a_limit_that_no_wire_can_carry_is_refused(value: float) -> None:
    assert set(problems_of(minimal(maxTokens=value))) == {"maxTokens"}


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert SamplingRequest.from_mcp(minimal(maxTokens=100.0)).max_tokens == 100


def test_problems_of_the_engine_are_spelled_as_the_sender_wrote_the_params() -> None:
    error = InvalidRequest.of(
        [
            Problem("stop_sequences[3]", "is empty"),
            Problem("model_preferences.cost", "2"),
            Problem("messages[1].content", "x"),
        ]
    )
    error.located(request_id="req_1")
    spelled = spelled_for_mcp(error)
    assert [problem.path for problem in spelled.problems] == [
        "stopSequences[3]",
        "modelPreferences.costPriority",
        "messages[1].content",
    ]
    assert spelled.request_id == "req_1"
    assert "stopSequences[3]: is empty" in str(spelled)
    theirs = InvalidRequest("max_tokens is too large", provider="openai")
    assert spelled_for_mcp(theirs) is theirs


# Writing

METADATA = Metadata(
    provider="openai",
    model="gpt-1",
    request_id="req_1",
    latency_ms=12,
    usage=Usage(3, 2, 1),
    cost_nanos=1_500_000,
)


def result(*content: Content, stop_reason: str = "endTurn") -> Result:
    return Result(content, "gpt-1", stop_reason, METADATA)


def test_one_part_is_one_block_and_several_are_a_list() -> None:
    assert result(Text("Hi")).to_mcp() == {
        "role": "assistant",
        "content": {"type": "text", "text": "Hi"},
        "model": "gpt-1",
        "stopReason": "endTurn",
    }
    call = ToolUse("c1", "now", {}, meta={"signature": "x"})
    assert result(Text("Hi"), call, stop_reason="toolUse").to_mcp()["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "c1", "name": "now", "input": {}, "_meta": {"signature": "x"}},
    ]


def test_thinking_is_left_out_and_the_texts_around_it_are_one() -> None:
    thought = Reasoning("Hm.", signature="s")
    called = MCPCall("m1", "docs", "search", {})
    written = result(thought, Text("One "), called, Text("answer.")).to_mcp()
    assert written["content"] == {"type": "text", "text": "One answer."}
    assert result(thought).to_mcp()["content"] == {"type": "text", "text": ""}


def test_texts_with_meta_of_their_own_stay_apart() -> None:
    assert result(Text("a", meta={"m": 1}), Text("b")).to_mcp()["content"] == [
        {"type": "text", "text": "a", "_meta": {"m": 1}},
        {"type": "text", "text": "b"},
    ]


def test_a_picture_that_has_only_an_address_is_told_by_it() -> None:
    written = result(Image(url="https://host/cat.png")).to_mcp()
    assert written["content"] == {"type": "text", "text": "https://host/cat.png"}


@pytest.mark.parametrize(
    ("content", "block"),
    [
        ((Text("a"), Image("AAAA", "image/png"), Text("b")), {"type": "text", "text": "ab"}),
        (
            (Image("AAAA", "image/png"), Image("BBBB", "image/png")),
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        ),
        ((), {"type": "text", "text": ""}),
    ],
)
def test_peers_that_know_no_lists_get_one_block(
    content: tuple[Content, ...], block: dict[str, str]
) -> None:
    assert result(*content).to_mcp(single=True)["content"] == block


def test_extras_tell_tokens_and_facts_of_the_call_where_they_are_known() -> None:
    written = result(Text("Hi")).to_mcp(extras=True)
    assert written["usage"] == {
        "promptTokens": 3,
        "completionTokens": 2,
        "totalTokens": 5,
        "cachedPromptTokens": 1,
    }
    assert written["_metadata"] == {
        "provider": "openai",
        "latency_ms": 12,
        "cost_usd": 0.0015,
        "request_id": "req_1",
        "attempts": 1,
    }
    CreateMessageResult.model_validate(written)
