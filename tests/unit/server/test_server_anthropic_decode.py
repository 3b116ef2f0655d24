"""The body of a Messages call, field by field: literals in, literals out."""

import json
from typing import Any

import msgspec
import pytest

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)
from penstock.contract.options import Extra, OutputSchema, ToolChoice, ToolDefinition
from penstock.server.doors.anthropic.decode import MessagesCall, decode, decode_prompt
from penstock.server.doors.anthropic.errors import ANTHROPIC_ERRORS
from penstock.server.doors.anthropic.thinking import seal
from penstock.server.errors import HttpProblem, failure_of

WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
CACHE = {"type": "ephemeral", "ttl": "1h"}


def call(*messages: Any, **fields: Any) -> MessagesCall:
    body = {"messages": messages or [{"role": "user", "content": "Hi"}], "max_tokens": 9, **fields}
    return decode(json.dumps(body).encode())


def request(*messages: Any, **fields: Any) -> SamplingRequest:
    return call(*messages, **fields).request


def refusal(*messages: Any, **fields: Any) -> str:
    """What the caller is told, which is a 400."""
    with pytest.raises((HttpProblem, InvalidRequest)) as caught:
        call(*messages, **fields)
    failure = failure_of(caught.value)
    assert failure.status == 400
    told = json.loads(ANTHROPIC_ERRORS.body(failure))
    assert told["error"]["type"] == "invalid_request_error"
    return told["error"]["message"]


def said(*blocks: Any, role: str = "user") -> Any:
    return {"role": role, "content": list(blocks)}


def answer(*blocks: Any) -> Any:
    return said(*blocks, role="assistant")


def test_the_least_that_a_caller_may_say() -> None:
    least = call()
    nothing = Extra("anthropic")
    assert least.request == SamplingRequest(messages=(user("Hi"),), max_tokens=9, extra=nothing)
    assert not least.stream


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"model": "claude"}, "model", "claude"),
        ({"model": ""}, "model", None),
        ({"max_tokens": 0}, "max_tokens", 0),
        ({"system": "Be brief."}, "system_prompt", "Be brief."),
        ({"system": ""}, "system_prompt", None),
        ({"system": []}, "system_prompt", None),
        (
            {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            "system_prompt",
            "a\n\nb",
        ),
        ({"temperature": 0}, "temperature", 0.0),
        ({"temperature": 0.7}, "temperature", 0.7),
        ({"stop_sequences": ["a", "b"]}, "stop_sequences", ("a", "b")),
        ({"stop_sequences": None}, "stop_sequences", ()),
        ({"metadata": {"user_id": "u1"}}, "metadata", {"user": "u1"}),
        ({"metadata": {"user_id": None}}, "metadata", {}),
        ({"cache_control": CACHE}, "metadata", {"cache": True}),
        (
            {"cache_control": CACHE, "metadata": {"user_id": "u1"}},
            "metadata",
            {"cache": True, "user": "u1"},
        ),
        (
            {"system": [{"type": "text", "text": "a", "cache_control": CACHE}]},
            "metadata",
            {"cache": True},
        ),
        (
            {"tools": [{"name": "f", "input_schema": WEATHER, "cache_control": CACHE}]},
            "metadata",
            {"cache": True},
        ),
        ({"thinking": {"type": "disabled"}}, "reasoning_level", "none"),
        ({"thinking": {"type": "between_tools"}}, "reasoning_level", "none"),
        ({"thinking": {"type": "adaptive"}}, "reasoning_level", "high"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "reasoning_level", "high"),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            "reasoning_level",
            "med",
        ),
        (
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}},
            "reasoning_level",
            "none",
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "reasoning_level", "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4095}}, "reasoning_level", "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4096}}, "reasoning_level", "med"),
        ({"thinking": {"type": "enabled", "budget_tokens": 16_384}}, "reasoning_level", "high"),
        ({"output_config": {"effort": "low"}}, "reasoning_level", "low"),
        ({"output_config": {"effort": "xhigh"}}, "reasoning_level", "xhigh"),
        ({"output_config": {}}, "reasoning_level", None),
        ({"tool_choice": {"type": "auto"}}, "tool_choice", ToolChoice("auto")),
        ({"tool_choice": {"type": "any"}}, "tool_choice", ToolChoice("required")),
        ({"tool_choice": {"type": "none"}}, "tool_choice", ToolChoice("none")),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice", ToolChoice.tool("f")),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "parallel_tools",
            False,
        ),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
            "parallel_tools",
            None,
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": WEATHER}}},
            "output_schema",
            OutputSchema(WEATHER),
        ),
        (
            {"output_format": {"type": "json_schema", "schema": WEATHER}},
            "output_schema",
            OutputSchema(WEATHER),
        ),
        (
            {"tools": [{"name": "f", "description": "d", "input_schema": WEATHER, "strict": True}]},
            "tools",
            (ToolDefinition("f", "d", WEATHER, strict=True),),
        ),
        (
            {"tools": [{"type": "custom", "name": "f", "input_schema": WEATHER}]},
            "tools",
            (ToolDefinition("f", "", WEATHER),),
        ),
    ],
)
def test_a_field(fields: dict[str, Any], name: str, value: object) -> None:
    assert getattr(request(**fields), name) == value


@pytest.mark.parametrize(
    "fields",
    [
        {"top_p": 1},
        {"top_p": 1.0},
        {"top_k": None},
        {"container": None},
        {"service_tier": "auto"},
        {"speed": "fast"},
        {"diagnostics": {"previous_message_id": None}},
    ],
)
def test_what_changes_nothing_is_taken(fields: dict[str, Any]) -> None:
    kept = Extra("anthropic", fields, frozenset(fields))
    assert request(**fields) == msgspec.structs.replace(request(), extra=kept)


@pytest.mark.parametrize("fields", [{"mcp_servers": []}, {"fallbacks": "default"}])
def test_what_asks_for_nothing_is_taken(fields: dict[str, Any]) -> None:
    assert request(**fields) == request()


@pytest.mark.parametrize(
    "fields",
    [
        {"top_p": 0.9},
        {"top_k": 5},
        {"container": "c"},
        {"context_management": {"edits": 1}},
        {"inference_geo": "eu"},
        {"something_new": {"a": 1}},
    ],
)
def test_what_only_this_dialect_knows_is_kept_as_it_is(fields: dict[str, Any]) -> None:
    kept = Extra("anthropic", fields)
    assert request(**fields) == msgspec.structs.replace(request(), extra=kept)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mcp_servers": [{"type": "url"}]}, "`mcp_servers` cannot be honoured here; leave it out"),
        ({"compaction": {"type": "x"}}, "`compaction` cannot be honoured here; leave it out"),
        ({"fallbacks": [{"model": "x"}]}, "`fallbacks` cannot be honoured here; leave it out"),
        (
            {"thread": {"type": "create"}},
            "`thread` cannot be honoured here; send the whole conversation without it",
        ),
        ({"max_tokens": None}, "max_tokens: expected `int`, got `null`"),
        ({"max_tokens": "9"}, "max_tokens: expected `int`, got `str`"),
        ({"stop_sequences": "END"}, "stop_sequences: expected `array | null`, got `str`"),
        ({"system": [{"type": "image"}]}, "system[0].type: 'image' is no text"),
        ({"system": [{"type": "text"}]}, "system[0].text: is missing"),
        (
            {"tools": [{"name": "f", "input_schema": WEATHER}, {"type": "web_search_20260209"}]},
            "tools[1].type: tools of type 'web_search_20260209' are not supported here",
        ),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema: is missing"),
        (
            {"tool_choice": {"type": "required"}},
            "tool_choice.type: 'required' is none of auto, any, tool, none",
        ),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: is missing"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens: is missing"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1023}},
            "thinking.budget_tokens: 1023 is less than 1024",
        ),
        (
            {"thinking": {"type": "deep"}},
            "thinking.type: 'deep' is none of adaptive, enabled, disabled, between_tools",
        ),
        (
            {"output_config": {"effort": "huge"}},
            "output_config.effort: 'huge' is none of low, medium, high, xhigh, max",
        ),
        (
            {"output_config": {"format": {"type": "regex"}}},
            "output_config.format.type: 'regex' is not supported here",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema: is missing"),
    ],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], message: str) -> None:
    assert refusal(**fields) == message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_none(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode(body)


PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
LINK = {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
OTHER: Any = {"type": "tool_use", "id": "b", "name": "g", "input": {}}
HI = {"type": "text", "text": "Hi"}


def done(id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


OK_A, OK_B = (ToolResult(id, (Text("ok"),)) for id in "ab")
USES = assistant(ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {}))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "system", "content": "s"}, said(HI)], [system("s"), user("Hi")]),
        ([{"role": "system", "content": [HI]}, said(HI)], [system("Hi"), user("Hi")]),
        (
            [said({**HI, "cache_control": CACHE, "citations": None}, PNG, LINK)],
            [
                user(
                    "Hi",
                    Image(data="aaaa", mime_type="image/png"),
                    Image(url="https://x.org/a.png"),
                )
            ],
        ),
        (
            [said(HI), {"role": "assistant", "content": "Yes"}],
            [user("Hi"), assistant("Yes")],
        ),
        (
            [said(HI), answer(HI, CALL), said(done("a"))],
            [user("Hi"), assistant("Hi", ToolUse("a", "f", {"x": 1})), user(OK_A)],
        ),
        # Results and more in one turn are two turns here, the results first.
        (
            [said(HI), answer(CALL, OTHER), said(done("a"), HI, done("b"))],
            [user("Hi"), USES, user(OK_A, OK_B), user("Hi")],
        ),
        # The turns of one role are one turn there, so all results belong behind their calls.
        (
            [said(HI), answer(CALL), answer(OTHER), said(done("a")), said(HI), said(done("b"))],
            [user("Hi"), USES, user(OK_A, OK_B), user("Hi")],
        ),
        (
            [said(HI), answer(CALL, OTHER), said(HI), said(done("b")), said(done("a"))],
            [user("Hi"), USES, user(OK_B, OK_A), user("Hi")],
        ),
        ([said(HI), said(PNG)], [user("Hi"), user(Image(data="aaaa", mime_type="image/png"))]),
        ([said()], [user()]),
    ],
)
def test_messages(messages: list[Any], expected: list[Message]) -> None:
    assert request(*messages).messages == tuple(expected)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (done("a", None), ToolResult("a")),
        (done("a", []), ToolResult("a")),
        (done("a", "no", is_error=True), ToolResult("a", (Text("no"),), is_error=True)),
        (done("a", "ok", is_error=False), ToolResult("a", (Text("ok"),))),
        (
            done("a", [HI, PNG, LINK]),
            ToolResult(
                "a",
                (
                    Text("Hi"),
                    Image(data="aaaa", mime_type="image/png"),
                    Image(url="https://x.org/a.png"),
                ),
            ),
        ),
    ],
)
def test_a_tools_result(result: Any, expected: ToolResult) -> None:
    assert request(said(HI), answer(CALL), said(result)).messages[2] == user(expected)


SIGNED = Reasoning("Hm.", signature="s", origin="gemini", meta={"k": "v"})


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
            [Reasoning("Hm.", signature="EqQB", origin="anthropic-claude")],
        ),
        ({"type": "thinking", "thinking": "Hm.", "signature": ""}, [Reasoning("Hm.")]),
        ({"type": "thinking", "thinking": "", "signature": ""}, []),
        (
            {"type": "redacted_thinking", "data": "x"},
            [Reasoning(signature="x", redacted=True, origin="anthropic-claude")],
        ),
        ({"type": "thinking", "thinking": "Hm.", "signature": seal(SIGNED)}, [SIGNED]),
    ],
)
def test_thinking_that_comes_back(block: Any, expected: list[Reasoning]) -> None:
    (_, turn) = request(said(HI), answer(block, HI)).messages
    assert turn == assistant(*expected, "Hi")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            [{"role": "tool", "content": "x"}],
            "messages[0].role: 'tool' is none of user, assistant, system",
        ),
        ([{"role": "user"}], "messages[0]: object missing required field `content`"),
        ([said({"type": "text"})], "messages[0].content[0].text: is missing"),
        (
            [said(HI, {"type": "document", "source": {"type": "url", "url": "x"}})],
            "messages[0].content[1].type: documents are not supported here; send their text, or "
            "pictures of their pages",
        ),
        (
            [said({"type": "search_result", "source": "x", "title": "t", "content": [HI]})],
            "messages[0].content[0].type: search results are not supported here; send their text",
        ),
        (
            [said(CALL)],
            "messages[0].content[0].type: 'tool_use' cannot be part of a user's turn here",
        ),
        (
            [said(HI), answer(PNG)],
            "messages[1].content[0].type: 'image' cannot be part of an assistant's turn here",
        ),
        (
            [said(HI), answer({"type": "server_tool_use", "id": "a", "name": "b", "input": {}})],
            "messages[1].content[0].type: 'server_tool_use' cannot be part of an assistant's turn "
            "here",
        ),
        (
            [{"role": "system", "content": [PNG]}],
            "messages[0].content[0].type: 'image' cannot be part of a system message here",
        ),
        ([said({"type": "image"})], "messages[0].content[0].source: is missing"),
        (
            [said({"type": "image", "source": "x"})],
            "messages[0].content[0].source: give an object of type base64 or url",
        ),
        (
            [said({"type": "image", "source": {"type": "file", "file_id": "f"}})],
            "messages[0].content[0].source.type: pictures of type 'file' are not supported here; "
            "use base64 or url",
        ),
        (
            [said({"type": "image", "source": {"type": "base64", "data": "aaaa"}})],
            "messages[0].content[0].source.media_type: is missing",
        ),
        (
            [said({"type": "tool_result", "content": "x"})],
            "messages[0].content[0].tool_use_id: is missing",
        ),
        (
            [said(done("a", [HI, {"type": "document"}]))],
            "messages[0].content[0].content[1].type: documents are not supported here; send their "
            "text, or pictures of their pages",
        ),
        (
            [said(done("a", HI))],
            "messages[0].content[0].content: give a text, or a list of blocks",
        ),
        ([answer({"type": "tool_use", "id": "a"})], "messages[0].content[0].name: is missing"),
        ([answer({"type": "redacted_thinking"})], "messages[0].content[0].data: is missing"),
        (
            [answer({"type": "thinking", "thinking": "x", "signature": "penstock.x"})],
            "messages[0].content[0].signature: is not as this gateway gave it; send it back "
            "unchanged",
        ),
        (
            [answer({"type": "redacted_thinking", "data": seal(SIGNED)[:-5]})],
            "messages[0].content[0].data: is not as this gateway gave it; send it back unchanged",
        ),
    ],
)
def test_a_refusal_names_the_block(messages: list[Any], message: str) -> None:
    assert refusal(*messages) == message


@pytest.mark.parametrize(
    ("ours", "callers"),
    [
        ("messages[0]", "messages[0]"),
        ("messages[1].content[1]", "messages[2].content[0]"),
        ("messages[2].content[1].content[0]", "messages[5].content[0].content[0]"),
        ("messages[2]", "messages[3]"),
        ("messages[3].content[0]", "messages[4].content"),
        ("messages[3].content", "messages[4].content"),
        ("messages[9].content[0]", "messages[9].content[0]"),
        ("messages", "messages"),
        ("system_prompt", "system"),
        ("tools[1].name", "tools[1].name"),
        ("", ""),
    ],
)
def test_problems_are_told_in_the_callers_numbers(ours: str, callers: str) -> None:
    # Ours: Hi | both calls | both results | Hi | PNG
    asked = call(
        *(said(HI), answer(CALL), answer(OTHER), said(done("a"))),
        *({"role": "user", "content": "Hi"}, said(done("b"), PNG)),
    )
    assert len(asked.request.messages) == 5
    told = asked.conversation.in_callers_words(InvalidRequest.of([Problem(ours, "no")]))
    assert told.problems == (Problem(callers, "no"),)


@pytest.mark.parametrize(
    ("ours", "callers"),
    [
        ("messages[1].content[0]", "messages[1].content"),
        ("messages[1].content", "messages[1].content"),
        ("messages[1]", "messages[1]"),
        ("messages[3]", "messages[3]"),
    ],
)
def test_plain_texts_have_no_blocks_to_number(ours: str, callers: str) -> None:
    asked = call(*({"role": role, "content": "Hi"} for role in ("system", "user", "assistant")))
    assert asked.request.messages == (system("Hi"), user("Hi"), assistant("Hi"))
    told = asked.conversation.in_callers_words(InvalidRequest.of([Problem(ours, "no")]))
    assert told.problems == (Problem(callers, "no"),)


def test_a_prompt_that_is_to_be_counted() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "system": "s", "model": "m"}
    counted = decode_prompt(json.dumps(body).encode()).request
    assert (counted.messages, counted.system_prompt, counted.model) == ((user("Hi"),), "s", "m")
    with pytest.raises(InvalidRequest, match="messages"):
        decode_prompt(b"{}")
