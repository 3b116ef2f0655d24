"""The body of a Responses request, field by field: literals in, literals out."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import Extra, MCPTool, OutputSchema, ToolChoice, ToolDefinition
from penstock.server.doors.openai_responses.decode import ResponsesCall, decode
from penstock.server.doors.openai_responses.endpoint import in_callers_words
from penstock.server.errors import HttpProblem

NAMES = [
    *("input", "model", "tools", "tool_choice", "text", "format", "reasoning", "effort"),
    *("include", "metadata", "type", "role", "content", "name", "call_id", "arguments", "output"),
    *("summary", "encrypted_content", "server_label", "server_url", "require_approval", "headers"),
    *("allowed_tools", "error", "image_url", "schema", "stream", "top_p", "truncation"),
]
WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
SERVER: dict[str, Any] = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://x.test/mcp",
    "require_approval": "never",
}


def call(*items: Any, **fields: Any) -> ResponsesCall:
    body = {"input": list(items) if items else "Hi", **fields}
    return decode(json.dumps(body).encode(), lambda model: len(model or "") + 1000)


def request(*items: Any, **fields: Any) -> SamplingRequest:
    return call(*items, **fields).request


def refusal(*items: Any, **fields: Any) -> tuple[str | None, str | None]:
    """The parameter and the code of the refusal."""
    with pytest.raises((HttpProblem, InvalidRequest)) as caught:
        call(*items, **fields)
    error = caught.value
    if isinstance(error, HttpProblem):
        assert error.failure.status == 400
        return error.failure.param, error.failure.code
    assert isinstance(error, InvalidRequest)
    return error.problems[0].path, None


def test_the_least_that_a_caller_may_say() -> None:
    least = call()
    nothing = Extra("openai-responses")
    assert least.request == SamplingRequest(messages=(user("Hi"),), max_tokens=1000, extra=nothing)
    assert not least.stream


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"max_output_tokens": 7}, "max_tokens", 7),
        ({"max_output_tokens": None}, "max_tokens", 1000),
        ({"model": "abc"}, "max_tokens", 1003),
        ({"model": "gpt"}, "model", "gpt"),
        ({"model": ""}, "model", None),
        ({"instructions": "Be brief."}, "system_prompt", "Be brief."),
        ({"instructions": None}, "system_prompt", None),
        ({"temperature": 0}, "temperature", 0.0),
        ({"temperature": 0.7}, "temperature", 0.7),
        ({"user": "u1"}, "metadata", {"user": "u1"}),
        ({"safety_identifier": "s1"}, "metadata", {"user": "s1"}),
        ({"user": "u1", "safety_identifier": "s1"}, "metadata", {"user": "s1"}),
        ({"metadata": {"trace": "t"}}, "metadata", {"trace": "t"}),
        ({"metadata": {"user": "x"}, "user": "u1"}, "metadata", {"user": "u1"}),
        ({"parallel_tool_calls": False}, "parallel_tools", False),
        ({"parallel_tool_calls": True}, "parallel_tools", None),
        ({"reasoning": None}, "reasoning_level", None),
        ({"reasoning": {}}, "reasoning_level", None),
        ({"reasoning": {"effort": "none"}}, "reasoning_level", "none"),
        ({"reasoning": {"effort": "minimal"}}, "reasoning_level", "minimal"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning_level", "low"),
        ({"reasoning": {"effort": "medium"}}, "reasoning_level", "med"),
        ({"reasoning": {"effort": "high"}}, "reasoning_level", "high"),
        ({"reasoning": {"effort": "xhigh"}}, "reasoning_level", "xhigh"),
        ({"reasoning": {"effort": "max"}}, "reasoning_level", "max"),
        ({"tool_choice": "auto"}, "tool_choice", ToolChoice("auto")),
        ({"tool_choice": "none"}, "tool_choice", ToolChoice("none")),
        ({"tool_choice": "required"}, "tool_choice", ToolChoice("required")),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", ToolChoice.tool("f")),
        ({"text": {}}, "output_schema", None),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, "output_schema", None),
        (
            {"text": {"format": {"type": "json_object"}}},
            "output_schema",
            OutputSchema({"type": "object"}, strict=False),
        ),
        (
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "weather",
                        "description": "d",
                        "schema": WEATHER,
                        "strict": True,
                    }
                }
            },
            "output_schema",
            OutputSchema(WEATHER, "weather", "d", strict=True),
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "w", "schema": WEATHER}}},
            "output_schema",
            OutputSchema(WEATHER, "w", strict=False),
        ),
    ],
)
def test_an_option(fields: dict[str, Any], name: str, value: object) -> None:
    assert getattr(request(**fields), name) == value


def test_tools() -> None:
    described = {"name": "weather", "description": "d", "parameters": WEATHER, "strict": True}
    tools = [{"type": "function", **described}, {"type": "function", "name": "now"}]
    assert request(tools=tools).tools == (
        ToolDefinition("weather", "d", WEATHER, strict=True),
        ToolDefinition("now", "", {"type": "object", "properties": {}}),
    )


def test_mcp_servers() -> None:
    more = {
        **SERVER,
        "server_label": "more",
        "headers": {"x-team": "a"},
        "authorization": "secret",
        "allowed_tools": {"tool_names": ["find"]},
    }
    told = call(tools=[SERVER, {"type": "function", "name": "now"}, more])
    assert told.request.mcp_tools == (
        MCPTool("https://x.test/mcp", "docs"),
        MCPTool(
            "https://x.test/mcp",
            "more",
            {"x-team": "a", "Authorization": "Bearer secret"},
            ("find",),
        ),
    )
    assert told.tool_places == ("tools[0]", "tools[2]")
    assert "secret" not in str(told.echo.tools)
    assert "x-team" not in str(told.echo.tools)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", ["Be brief.", [{"type": "input_text", "text": "Be brief."}]])
def test_instructions_among_the_items(role: str, content: object) -> None:
    assert request({"role": role, "content": content}).messages == (system("Be brief."),)


def test_a_user_who_shows_pictures_and_sounds() -> None:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
        {"type": "input_audio", "input_audio": {"data": "CCCC", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "DDDD", "format": "mp3"}},
    ]
    item = {"type": "message", "role": "user", "content": content}
    assert request(item).messages == (
        user(
            "What is this?",
            Image(data="AAAA", mime_type="image/png"),
            Image(url="https://x.test/a.png", meta={"detail": "low"}),
            Audio("CCCC", "audio/wav"),
            Audio("DDDD", "audio/mpeg"),
        ),
    )


def function_call(id: str, arguments: str, name: str = "weather") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def output(id: str, value: object) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": value}


def said(text: str, **fields: Any) -> dict[str, Any]:
    content: Any = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "m", "content": content, **fields}


def thought(text: str, **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": "rs_1", "summary": summary, **fields}


def test_a_whole_conversation_with_tools() -> None:
    messages = request(
        {"role": "user", "content": "Weather?"},
        thought("I must look."),
        said("One moment.", phase="commentary"),
        said(""),
        function_call("a", '{"city":"Rome"}'),
        function_call("b", ""),
        output("a", "sunny"),
        output(
            "b",
            [
                {"type": "input_text", "text": "rain"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ],
        ),
        said("Sunny."),
        {"role": "user", "content": "Thanks"},
    ).messages
    assert messages == (
        user("Weather?"),
        assistant(
            Reasoning("I must look."),
            Text("One moment.", meta={"openai_phase": "commentary"}),
            ToolUse("a", "weather", {"city": "Rome"}),
            ToolUse("b", "weather", {}),
        ),
        Message(
            "user",
            (
                ToolResult("a", (Text("sunny"),)),
                ToolResult("b", (Text("rain"), Image(data="AAAA", mime_type="image/png"))),
            ),
        ),
        assistant("Sunny."),
        user("Thanks"),
    )


def test_what_else_an_assistant_may_have_said_and_done() -> None:
    refused = [{"type": "refusal", "refusal": "No."}]
    call = {"type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "find"}
    failure = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "gone"}]}
    messages = request(
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": refused},
        {"type": "mcp_list_tools", "id": "l", "server_label": "docs", "tools": []},
        {**call, "arguments": '{"q":1}', "output": "found"},
        {**call, "arguments": "{}", "error": failure},
        {**call, "arguments": "{}", "output": None, "error": None},
        {"type": "image_generation_call", "id": "i", "result": "AAAA", "output_format": "webp"},
        thought("", encrypted_content="opaque"),
        thought(""),
    ).messages
    assert messages[1] == assistant(
        "Hello.",
        "No.",
        MCPCall("mcp_1", "docs", "find", {"q": 1}, (Text("found"),)),
        MCPCall("mcp_1", "docs", "find", {}, (Text("gone"),), is_error=True),
        MCPCall("mcp_1", "docs", "find", {}),
        Image(data="AAAA", mime_type="image/webp"),
        Reasoning(
            signature="opaque",
            redacted=True,
            origin="openai-responses/openai",
            meta={"openai_id": "rs_1"},
        ),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("previous_response_id", "resp_1"),
        ("conversation", "conv_1"),
        ("conversation", {"id": "conv_1"}),
        ("background", True),
        ("prompt", {"id": "pmpt_1"}),
        ("top_logprobs", 3),
        ("context_management", [{"type": "compaction"}]),
        ("image", {}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: object) -> None:
    assert refusal(**{name: value}) == (name, "unsupported_parameter")


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_state_that_is_not_kept_comes_with_the_remedy(name: str) -> None:
    with pytest.raises(HttpProblem, match="send all items of the conversation as `input`"):
        call(**{name: "x"})


def test_defaults_and_what_changes_no_answer_are_taken() -> None:
    fields: dict[str, Any] = {
        "top_p": 1, "truncation": "disabled", "service_tier": "flex", "prompt_cache_key": "k",
        "stream_options": {"include_obfuscation": False}, "never_heard_of": None,
    }  # fmt: skip
    told = call(
        top_logprobs=0, background=False, context_management=[],
        previous_response_id=None, store=True,
        include=["reasoning.encrypted_content", "file_search_call.results"],
        text={"verbosity": "medium"}, reasoning={"mode": "standard", "context": "auto"}, **fields,
    )  # fmt: skip
    assert told.echo.store is False
    assert told.request.extra == Extra("openai-responses", fields, frozenset(fields))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0.5),
        ("truncation", "auto"),
        ("max_tool_calls", 3),
        ("moderation", {"model": "m"}),
        ("access_programs", ["x"]),
        ("never_heard_of", {"a": [1]}),
    ],
)
def test_what_only_this_dialect_knows_is_kept_as_it_is(name: str, value: object) -> None:
    told = call(**{name: value})
    assert told.request.extra == Extra("openai-responses", {name: value})


def test_a_response_repeats_what_it_was_asked_with() -> None:
    told = call(top_p=0.5, truncation="auto")
    assert (told.echo.top_p, told.echo.truncation) == (0.5, "auto")
    assert (call().echo.top_p, call().echo.truncation) == (None, "disabled")


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", True),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0].type", True),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0].type", True),
        ({"tools": [{"type": "function"}]}, "tools[0].name", False),
        ({"tools": [{"type": "function", "name": 3}]}, "tools[0].name", False),
        (
            {"tools": [{**SERVER, "require_approval": "always"}]},
            "tools[0].require_approval",
            True,
        ),
        ({"tools": [{**SERVER, "require_approval": None}]}, "tools[0].require_approval", True),
        ({"tools": [{**SERVER, "connector_id": "c"}]}, "tools[0].connector_id", True),
        ({"tools": [{**SERVER, "server_url": None}]}, "tools[0].server_url", False),
        ({"tools": [{**SERVER, "server_label": None}]}, "tools[0].server_label", False),
        (
            {"tools": [{**SERVER, "allowed_tools": {"read_only": True}}]},
            "tools[0].allowed_tools.read_only",
            True,
        ),
        ({"tool_choice": "maybe"}, "tool_choice", False),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", True),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type", True),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name", False),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", True),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", False),
        ({"reasoning": {"effort": "extreme"}}, "reasoning.effort", False),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode", True),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context", True),
        ({"include": ["x", "message.output_text.logprobs"]}, "include[1]", True),
        ({"temperature": "hot"}, "temperature", False),
        ({"max_output_tokens": 1.5}, "max_output_tokens", False),
        ({"stream": "yes"}, "stream", False),
        ({"model": 3}, "model", False),
    ],
)
def test_a_wrong_option_is_named(fields: dict[str, Any], param: str, code: bool) -> None:
    assert refusal(**fields) == (param, "unsupported_parameter" if code else None)


@pytest.mark.parametrize(
    ("item", "param", "code"),
    [
        ({"role": "tool", "content": "x"}, "input[0].role", False),
        ({"content": "x"}, "input[0].role", False),
        ({"role": "user"}, "input[0].content", False),
        ({"role": "user", "content": 3}, "input[0].content", False),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[0].content[0].type", True),
        ({"role": "user", "content": [{"type": "output_text"}]}, "input[0].content[0].type", True),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text", False),
        (
            {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]},
            "input[0].content[0].type",
            True,
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            "input[0].content[0].file_id",
            True,
        ),
        (
            {"role": "user", "content": [{"type": "input_image"}]},
            "input[0].content[0].image_url",
            False,
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]},
            "input[0].content[0].image_url",
            False,
        ),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id", False),
        ({"type": "function_call_output", "call_id": "x"}, "input[0].output", False),
        (function_call("a", "{"), "input[0].arguments", False),
        (function_call("a", "[1]"), "input[0].arguments", False),
        ({"type": "function_call", "name": "f"}, "input[0].call_id", False),
        ({"type": "function_call", "call_id": "f"}, "input[0].name", False),
        ({"type": "mcp_call", "name": "f"}, "input[0].server_label", False),
        ({"type": "item_reference", "id": "m"}, "input[0].type", True),
        ({"type": "web_search_call", "id": "w"}, "input[0].type", True),
        ({"type": "mcp_approval_response"}, "input[0].type", True),
    ],
)
def test_a_wrong_item_is_named(item: dict[str, Any], param: str, code: bool) -> None:
    assert refusal(item) == (param, "unsupported_parameter" if code else None)


def test_who_refers_to_an_item_is_told_how_to_send_it() -> None:
    with pytest.raises(HttpProblem) as caught:
        call({"type": "item_reference", "id": "msg_1"})
    assert "`store: false`" in caught.value.failure.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"input": "\xc3("}',
        b'{"input": 1e999}',
        b'{"input": ' + b"[" * 100_000,
        b'{"input": [], "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"input": [], "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_what_is_no_request_is_refused_and_nothing_falls_over(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode(data, lambda _: 1)


def test_problems_of_the_engine_are_told_in_the_callers_words() -> None:
    told = call(
        {"role": "system", "content": "Be brief."},
        function_call("a", "{}"),
        function_call("b", "{}"),
        output("a", "1"),
        output("b", "2"),
        {"role": "user", "content": [{"type": "input_text", "text": ""}]},
        tools=[{"type": "function", "name": "f"}, SERVER],
    )
    paths = {
        "messages": "input",
        "messages[0].content": "input[0].content",
        "messages[1]": "input[1]",
        "messages[1].content[1]": "input[2]",
        "messages[2].content[1].content[0]": "input[4].content[0]",
        "messages[3].content": "input[5].content",
        "messages[3].content[0]": "input[5].content[0]",
        "messages[9]": "input",
        "max_tokens": "max_output_tokens",
        "temperature": "temperature",
        "tools[0].name": "tools[0].name",
        "mcp_tools[0].url": "tools[1].server_url",
        "mcp_tools[0].mode": "tools[1].mode",
    }
    error = in_callers_words(InvalidRequest.of([Problem(path, "is wrong") for path in paths]), told)
    assert [problem.path for problem in error.problems] == list(paths.values())
    assert "input[5].content[0]: is wrong" in error.message
    provider = InvalidRequest.of([Problem("messages[0].content[0]", "is wrong")])
    provider.located(provider="p", model="m", request_id="r")
    assert in_callers_words(provider, told).problems[0].path == "input[1]"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(NAMES), _JSON, max_size=4), st.lists(_JSON, max_size=3))
def test_whatever_comes_is_read_or_refused(fields: dict[str, Any], items: list[Any]) -> None:
    body = json.dumps({"input": items, **fields}, allow_nan=False).encode()
    with contextlib.suppress(InvalidRequest, HttpProblem):
        decode(body, lambda _: 1)
