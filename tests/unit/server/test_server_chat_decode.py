"""The body of a chat completion, field by field: literals in, literals out."""

import json
from typing import Any

import pytest

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    system,
    user,
)
from penstock.contract.options import Extra, OutputSchema, ToolChoice, ToolDefinition
from penstock.server.doors.openai_chat.decode import ChatCall, decode
from penstock.server.doors.openai_chat.messages import in_callers_numbers
from penstock.server.errors import HttpProblem

WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def call(*messages: Any, **fields: Any) -> ChatCall:
    body = {"messages": messages or [{"role": "user", "content": "Hi"}], **fields}
    return decode(json.dumps(body).encode(), lambda model: len(model or "") + 1000)


def request(*messages: Any, **fields: Any) -> SamplingRequest:
    return call(*messages, **fields).request


def refusal(*messages: Any, **fields: Any) -> tuple[str | None, str | None]:
    """The parameter and the code of the refusal."""
    with pytest.raises((HttpProblem, InvalidRequest)) as caught:
        call(*messages, **fields)
    error = caught.value
    if isinstance(error, HttpProblem):
        assert error.failure.status == 400
        return error.failure.param, error.failure.code
    assert isinstance(error, InvalidRequest)
    return error.problems[0].path, None


def test_the_least_that_a_caller_may_say() -> None:
    nothing = Extra("openai-chat")
    assert call() == ChatCall(
        SamplingRequest(messages=(user("Hi"),), max_tokens=1000, extra=nothing),
        stream=False,
        include_usage=False,
    )


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ({"max_completion_tokens": 0, "max_tokens": 7}, 0),
        ({"max_tokens": None}, 1000),
        ({"model": "abc"}, 1003),
    ],
)
def test_how_many_tokens(fields: dict[str, Any], tokens: int) -> None:
    assert request(**fields).max_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"model": "gpt"}, "model", "gpt"),
        ({"model": ""}, "model", None),
        ({"temperature": 0}, "temperature", 0.0),
        ({"temperature": 0.7}, "temperature", 0.7),
        ({"temperature": None}, "temperature", None),
        ({"stop": "END"}, "stop_sequences", ("END",)),
        ({"stop": ["a", "b"]}, "stop_sequences", ("a", "b")),
        ({"stop": None}, "stop_sequences", ()),
        ({"user": "u1"}, "metadata", {"user": "u1"}),
        ({"metadata": {"trace": "t"}}, "metadata", {"trace": "t"}),
        ({"metadata": {"user": "x"}, "user": "u1"}, "metadata", {"user": "u1"}),
        ({"parallel_tool_calls": False}, "parallel_tools", False),
        ({"parallel_tool_calls": True}, "parallel_tools", None),
        ({"reasoning_effort": "none"}, "reasoning_level", "none"),
        ({"reasoning_effort": "minimal"}, "reasoning_level", "minimal"),
        ({"reasoning_effort": "low"}, "reasoning_level", "low"),
        ({"reasoning_effort": "medium"}, "reasoning_level", "med"),
        ({"reasoning_effort": "high"}, "reasoning_level", "high"),
        ({"reasoning_effort": "xhigh"}, "reasoning_level", "xhigh"),
        ({"tool_choice": "auto"}, "tool_choice", ToolChoice("auto")),
        ({"tool_choice": "none"}, "tool_choice", ToolChoice("none")),
        ({"tool_choice": "required"}, "tool_choice", ToolChoice("required")),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            ToolChoice.tool("f"),
        ),
        ({"response_format": {"type": "text"}}, "output_schema", None),
        (
            {"response_format": {"type": "json_object"}},
            "output_schema",
            OutputSchema({"type": "object"}, strict=False),
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "weather",
                        "description": "d",
                        "schema": WEATHER,
                        "strict": True,
                    },
                }
            },
            "output_schema",
            OutputSchema(WEATHER, "weather", "d", strict=True),
        ),
    ],
)
def test_an_option(fields: dict[str, Any], name: str, value: object) -> None:
    assert getattr(request(**fields), name) == value


def test_tools() -> None:
    described = {"name": "weather", "description": "d", "parameters": WEATHER, "strict": True}
    tools = [{"type": "function", "function": described}, {"function": {"name": "now"}}]
    assert request(tools=tools).tools == (
        ToolDefinition("weather", "d", WEATHER, strict=True),
        ToolDefinition("now", "", {"type": "object", "properties": {}}),
    )


def test_streaming_with_and_without_usage() -> None:
    assert call(stream=True).stream
    assert not call(stream=True).include_usage
    assert call(stream=True, stream_options={"include_usage": True}).include_usage
    assert not call(stream=True, stream_options=None).include_usage


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_instructions(role: str, content: object) -> None:
    assert request({"role": role, "content": content}).messages == (system("Be brief."),)


def test_a_user_who_shows_pictures_and_sounds() -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": "data:image/svg+xml;charset=utf-8;base64,BBBB"},
        {"type": "input_audio", "input_audio": {"data": "CCCC", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "DDDD", "format": "mp3"}},
    ]
    assert request({"role": "user", "content": content}).messages == (
        user(
            "What is this?",
            Image(data="AAAA", mime_type="image/png"),
            Image(url="https://x.test/a.png", meta={"detail": "low"}),
            Image(data="BBBB", mime_type="image/svg+xml"),
            Audio("CCCC", "audio/wav"),
            Audio("DDDD", "audio/mpeg"),
        ),
    )


def tool_call(id: str, arguments: str, name: str = "weather") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_whole_conversation_with_tools() -> None:
    messages = request(
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I must look.",
            "tool_calls": [tool_call("a", '{"city":"Rome"}'), tool_call("b", "")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": "Sunny.", "refusal": None, "tool_calls": None},
        {"role": "user", "name": "bob", "content": "Thanks"},
    ).messages
    assert messages == (
        user("Weather?"),
        Message(
            "assistant",
            (
                Reasoning("I must look."),
                ToolUse("a", "weather", {"city": "Rome"}),
                ToolUse("b", "weather", {}),
            ),
        ),
        Message("user", (ToolResult("a", (Text("sunny"),)), ToolResult("b", (Text("rain"),)))),
        Message("assistant", (Text("Sunny."),)),
        user("Thanks"),
    )


def test_results_at_the_end_and_a_refusal_in_the_history() -> None:
    refused = [{"type": "refusal", "refusal": "No."}]
    messages = request(
        {"role": "assistant", "content": refused},
        {"role": "assistant", "refusal": "Never."},
        {"role": "assistant", "content": "", "tool_calls": [tool_call("a", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
    ).messages
    assert [message.content for message in messages] == [
        (Text("No."),),
        (Text("Never."),),
        (ToolUse("a", "weather", {}),),
        (ToolResult("a", (Text(""),)),),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("audio", {"voice": "alloy"}),
        ("modalities", ["text", "audio"]),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: object) -> None:
    assert refusal(**{name: value}) == (name, "unsupported_parameter")


@pytest.mark.parametrize(("name", "value"), [("logprobs", True), ("top_logprobs", 3)])
def test_what_only_a_whole_answer_can_say_is_refused_in_a_stream(name: str, value: object) -> None:
    assert refusal(stream=True, **{name: value}) == (name, "unsupported_parameter")
    assert request(**{name: value}).extra == Extra("openai-chat", {name: value})


def test_defaults_and_what_changes_no_answer_are_taken() -> None:
    asked_for_nothing = {"n": 1, "modalities": ["text"], "functions": [], "audio": None}
    assert request(**asked_for_nothing) == request()
    fields: dict[str, Any] = {
        "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "top_p": 1, "presence_penalty": 0,
        "frequency_penalty": 0.0, "verbosity": "medium", "seed": 7, "store": True,
        "service_tier": "flex", "prediction": {"type": "content", "content": "x"},
        "prompt_cache_key": "k", "safety_identifier": "s", "never_heard_of": None,
    }  # fmt: skip
    assert request(**fields).extra == Extra("openai-chat", fields, frozenset(fields))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {"50256": -100}),
        ("top_p", 0.5),
        ("presence_penalty", 1),
        ("frequency_penalty", -1),
        ("moderation", {"model": "m"}),
        ("verbosity", "low"),
        ("web_search_options", {}),
        ("never_heard_of", {"a": [1, None, "ü"]}),
    ],
)
def test_what_only_this_dialect_knows_is_kept_as_it_is(name: str, value: object) -> None:
    kept = request(**{name: value, "seed": 7}).extra
    assert kept == Extra("openai-chat", {name: value, "seed": 7}, frozenset({"seed"}))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type", True),
        ({"tools": [{"type": "function"}]}, "tools[0].function", False),
        ({"tools": [{"function": {"name": 3}}]}, "tools[0].function.name", False),
        ({"tool_choice": "maybe"}, "tool_choice", False),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", True),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", False),
        ({"response_format": {"type": "grammar"}}, "response_format.type", True),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema.schema",
            False,
        ),
        ({"reasoning_effort": "extreme"}, "reasoning_effort", False),
        ({"temperature": "hot"}, "temperature", False),
        ({"max_tokens": 1.5}, "max_tokens", False),
        ({"stop": [1]}, "stop[0]", False),
        ({"stream": "yes"}, "stream", False),
        ({"model": 3}, "model", False),
    ],
)
def test_a_wrong_option_is_named(fields: dict[str, Any], param: str, code: bool) -> None:
    assert refusal(**fields) == (param, "unsupported_parameter" if code else None)


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({"role": "function", "content": "x"}, "messages[0].role", False),
        ({"content": "x"}, "messages[0]", False),
        ({"role": "user", "content": 3}, "messages[0].content", False),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id", False),
        ({"role": "user", "content": [{"type": "file"}]}, "messages[0].content[0].type", True),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text", False),
        (
            {"role": "system", "content": [{"type": "image_url", "image_url": "https://x.test"}]},
            "messages[0].content[0].type",
            True,
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "file:///etc/passwd"}]},
            "messages[0].content[0].image_url",
            False,
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png,x"}]},
            "messages[0].content[0].image_url",
            False,
        ),
        (
            {"role": "assistant", "tool_calls": [tool_call("a", "{")]},
            "messages[0].tool_calls[0].function.arguments",
            False,
        ),
        (
            {"role": "assistant", "tool_calls": [tool_call("a", "[1]")]},
            "messages[0].tool_calls[0].function.arguments",
            False,
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom"}]},
            "messages[0].tool_calls[0].type",
            True,
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a"}]},
            "messages[0].tool_calls[0].function",
            False,
        ),
    ],
)
def test_a_wrong_message_is_named(message: dict[str, Any], param: str, code: bool) -> None:
    assert refusal(message) == (param, "unsupported_parameter" if code else None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"messages": "\xc3("}',
        b'{"messages": 1e999}',
        b'{"messages": ' + b"[" * 100_000,
        b'{"messages": [], "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"messages": [], "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_what_is_no_request_is_refused_and_nothing_falls_over(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode(data, lambda _: 1)


def test_problems_of_the_engine_are_told_in_the_callers_numbers() -> None:
    messages = request(
        {"role": "assistant", "tool_calls": [tool_call("a", "{}"), tool_call("b", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": []},
    ).messages
    told = in_callers_numbers(
        InvalidRequest.of(
            [Problem("messages[2].content", "is empty"), Problem("temperature", "is high")]
        ),
        messages,
    )
    assert [problem.path for problem in told.problems] == ["messages[3].content", "temperature"]
    assert "messages[3].content: is empty" in told.message
