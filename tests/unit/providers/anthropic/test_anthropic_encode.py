"""Requests in, bodies out; that they equal the official SDK's is shown by the oracle tests."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import (
    Audio,
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
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.anthropic.catalogue import CATALOGUE
from penstock.providers.anthropic.encode import encode
from penstock.providers.wire.dialect import WireCall

MODEL = "test-model"


def call_of(
    *messages: Message,
    model: str = MODEL,
    version: str | None = None,
    stream: bool = False,
    **options: Any,
) -> WireCall:
    settings = {"api_version": version} if version else {}
    profile = CATALOGUE.profile("anthropic", model, settings)
    asked: dict[str, Any] = {"messages": messages or (user("Hi"),), "max_tokens": 9, **options}
    return encode(model, SamplingRequest(**asked), profile, stream)


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    return msgspec.json.decode(call_of(*messages, **options).body or b"")


def test_the_least_that_is_sent() -> None:
    call = call_of()
    assert (call.method, call.path) == ("POST", "/v1/messages")
    assert call.headers == {"anthropic-version": "2023-06-01"}
    assert msgspec.json.decode(call.body or b"") == {
        "model": MODEL,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_stream_is_asked_for() -> None:
    assert body_of(stream=True)["stream"] is True


def test_the_version_is_the_configured_one() -> None:
    assert call_of(version="2026-10-21").headers == {"anthropic-version": "2026-10-21"}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop_sequences": ("a",)}, {"stop_sequences": ["a"]}),
        ({"system_prompt": "S"}, {"system": "S"}),
        ({"system_prompt": ""}, {}),
        ({"metadata": {"user": "u", "team": "t"}}, {"metadata": {"user_id": "u"}}),
        ({"metadata": {"user": 7}}, {}),
        ({"metadata": {"cache": True}}, {"cache_control": {"type": "ephemeral"}}),
        ({"metadata": {"cache": "yes"}}, {}),
        (
            {"metadata": {"cache": True}, "system_prompt": "S"},
            {"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]},
        ),
        ({"tool_choice": ToolChoice("required")}, {}),
        ({"parallel_tools": False}, {}),
        (
            {"tools": (ToolDefinition("f", input_schema={}),), "tool_choice": ToolChoice("none")},
            {
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "none"},
            },
        ),
        (
            {
                "tools": (ToolDefinition("f"),),
                "tool_choice": ToolChoice("none"),
                "parallel_tools": False,
            },
            {
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "none"},
            },
        ),
        (
            {"reasoning_level": "low", "output_schema": OutputSchema({"type": "null"})},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {
                    "effort": "low",
                    "format": {"type": "json_schema", "schema": {"type": "null"}},
                },
            },
        ),
        (
            {
                "tools": (ToolDefinition("f"),),
                "tool_choice": ToolChoice.tool("f"),
                "parallel_tools": True,
            },
            {
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": False},
            },
        ),
        ({"reasoning_level": "none"}, {"thinking": {"type": "disabled"}}),
        ({"reasoning_level": "none", "model": "claude-3-5-haiku-latest"}, {}),
    ],
)
def test_options(options: dict[str, Any], fields: dict[str, Any]) -> None:
    body = body_of(**options)
    for name in ("model", "max_tokens", "messages"):
        del body[name]
    assert body == fields


def test_only_a_strict_tool_is_adapted() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    tools = (ToolDefinition("f", input_schema=schema), ToolDefinition("g", "G", schema, True))
    sent = body_of(tools=tools)["tools"]
    assert sent[0] == {"name": "f", "input_schema": schema}
    assert sent[1] == {
        "name": "g",
        "description": "G",
        "input_schema": {
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "{minimum: 1}"}},
            "additionalProperties": False,
        },
        "strict": True,
    }


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        pytest.param(
            (system("a"), user("Hi"), system("b")),
            [{"role": "user", "content": "Hi"}],
            id="system messages are no turns",
        ),
        pytest.param(
            (user("", "Hi", ""),),
            [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            id="empty texts are left out",
        ),
        pytest.param(
            (user("a"), assistant(Reasoning(text="hm")), user("b")),
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
            id="a turn of nothing but unsigned thinking",
        ),
        pytest.param(
            (assistant(ToolUse("a:b.c", "f", {"x": 1})), user("So?", ToolResult("a:b.c"))),
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "a_b_c", "name": "f", "input": {"x": 1}}
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a_b_c"},
                        {"type": "text", "text": "So?"},
                    ],
                },
            ],
            id="results come first, and ids are made to fit",
        ),
        pytest.param(
            (user(ToolResult("a", is_error=True)),),
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "a",
                            "is_error": True,
                            "content": "the tool failed without a message",
                        }
                    ],
                }
            ],
            id="a failure without a word",
        ),
        pytest.param(
            (user("See", Image(data="aGk=", mime_type="image/png")),),
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "See"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "aGk=",
                            },
                        },
                    ],
                }
            ],
            id="a picture",
        ),
        pytest.param(
            (user(ToolResult("a", (Text(""), Image(url="https://x/y.png")))),),
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "a",
                            "content": [
                                {
                                    "type": "image",
                                    "source": {"type": "url", "url": "https://x/y.png"},
                                }
                            ],
                        }
                    ],
                }
            ],
            id="a picture as a result",
        ),
    ],
)
def test_messages(messages: tuple[Message, ...], sent: list[dict[str, Any]]) -> None:
    assert body_of(*messages)["messages"] == sent


SOUND = Audio("UklGRg==", "audio/wav")


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (user("Hear:", SOUND), "messages[0].content[1]"),
        (user(ToolResult("a", (SOUND,))), "messages[0].content[0].content[0]"),
        (user(ToolUse("a", "f", {})), "messages[0].content[0]"),
        (user(Reasoning(signature="s")), "messages[0].content[0]"),
        (assistant(Image(url="https://x")), "messages[0].content[0]"),
        (assistant(ToolResult("a")), "messages[0].content[0]"),
    ],
)
def test_parts_in_the_wrong_place_are_refused_with_their_path(message: Message, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call_of(message, user("So?"))
    assert [problem.path for problem in caught.value.problems] == [path]


def test_a_prefill_is_the_last_turn() -> None:
    turns = (user("Hi"), assistant("Well"))
    assert body_of(*turns)["messages"][-1] == {"role": "assistant", "content": "Well"}


def test_models_that_always_think_are_asked_to_think_least() -> None:
    body = body_of(model="claude-opus-5-5", reasoning_level="none")
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "low"}


def test_a_budget_needs_room() -> None:
    body = body_of(model="claude-haiku-4-5", reasoning_level="high", max_tokens=1025)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    body = body_of(model="claude-haiku-4-5", reasoning_level="low", max_tokens=1024)
    assert "thinking" not in body


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        call_of(assistant(ToolUse("a", "f", {"x": object()})), user("So?"))
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = {"self": endless}
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        call_of(output_schema=OutputSchema(endless))
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        call_of(tools=(ToolDefinition("f", input_schema=endless),))


def test_the_request_is_not_changed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    before = msgspec.json.encode(schema)
    body_of(output_schema=OutputSchema(schema), tools=(ToolDefinition("f", "", schema, True),))
    assert msgspec.json.encode(schema) == before


texts = st.text(max_size=20).map(Text)
user_parts = texts | st.builds(
    ToolResult, st.text(min_size=1), st.lists(texts, max_size=2).map(tuple), is_error=st.booleans()
)
own_parts = (
    texts
    | st.builds(Reasoning, text=st.text(), signature=st.none() | st.text(), redacted=st.booleans())
    | st.builds(ToolUse, st.text(), st.text(), st.dictionaries(st.text(), st.integers()))
)
turns = st.one_of(
    st.lists(user_parts, max_size=4).map(lambda parts: user(*parts)),
    st.lists(own_parts, max_size=4).map(lambda parts: assistant(*parts)),
    st.text().map(system),
)


@given(
    st.lists(turns, max_size=5),
    st.sampled_from([None, "none", "low", "med", "high"]),
    st.booleans(),
    st.sampled_from([MODEL, "claude-sonnet-5-5", "claude-3-haiku-20240307"]),
)
def test_any_request_is_valid_json(
    messages: list[Message], level: Any, cache: bool, model: str
) -> None:
    options = {"reasoning_level": level, "metadata": {"cache": cache}, "model": model}
    body = body_of(*messages, user("So?"), max_tokens=20_000, **options)
    assert body["messages"][-1] == {"role": "user", "content": "So?"}
    assert all(message["content"] or message["content"] == "" for message in body["messages"])
