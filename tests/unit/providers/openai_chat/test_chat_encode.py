"""Requests in, JSON bodies out."""

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
from penstock.contract.options import Capabilities, OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.openai_chat.encode import encode
from penstock.providers.profiles import ModelProfile

HELLO = (user("Hello"),)
WEATHER = ToolDefinition("weather", "Tells the weather", {"type": "object"})
OPTIONAL: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"]}},
    "required": ["a"],
    "additionalProperties": False,
}
PNG = Image(data="aW1n", mime_type="image/png")
PNG_WIRE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}}


def body_of(
    *,
    options: dict[str, Any] | None = None,
    capabilities: Capabilities | None = None,
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    given_fields: dict[str, Any] = {"messages": HELLO, "max_tokens": 10, **fields}
    request = SamplingRequest(**given_fields)
    profile = ModelProfile(capabilities or Capabilities(), options or {})
    call = encode("m", request, profile, stream)
    assert (call.method, call.path, call.headers) == ("POST", "/chat/completions", {})
    assert call.body is not None
    return msgspec.json.decode(call.body)


def messages_of(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    return body_of(messages=messages, options=options)["messages"]


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 10,
    }


def test_a_stream_asks_for_its_usage() -> None:
    body = body_of(stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop_sequences": ("END", "\n")}, {"stop": ["END", "\n"]}),
        ({"reasoning_level": "none"}, {"reasoning_effort": "none"}),
        ({"reasoning_level": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_level": "med"}, {"reasoning_effort": "medium"}),
        ({"reasoning_level": "high"}, {"reasoning_effort": "high"}),
        ({"metadata": {"user": "u1", "trace": "t"}}, {"user": "u1"}),
        ({"metadata": {"user": 7}}, {}),
        (
            {"tools": (WEATHER,)},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "weather",
                            "description": "Tells the weather",
                            "parameters": {"type": "object"},
                        },
                    }
                ]
            },
        ),
        (
            {"tools": (ToolDefinition("f", strict=True),)},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {"type": "object"},
                            "strict": True,
                        },
                    }
                ]
            },
        ),
        (
            # Any object at all is nothing that strict mode can say.
            {"output_schema": OutputSchema({"type": "object"}, "recipe")},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "recipe",
                        "schema": {"type": "object"},
                        "strict": False,
                    },
                }
            },
        ),
        (
            {"output_schema": OutputSchema(OPTIONAL, "recipe")},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "recipe", "schema": STRICT, "strict": True},
                }
            },
        ),
        (
            {"tools": (ToolDefinition("f", input_schema=OPTIONAL, strict=True),)},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": STRICT, "strict": True},
                    }
                ]
            },
        ),
        (
            {"output_schema": OutputSchema({}, "r", "A recipe", strict=False)},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "r",
                        "schema": {},
                        "strict": False,
                        "description": "A recipe",
                    },
                }
            },
        ),
        # The wire refuses these two without tools.
        ({"tool_choice": ToolChoice("none"), "parallel_tools": False}, {}),
    ],
)
def test_each_option_has_its_field(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body_of(**fields) == body_of() | expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("required"), "required"),
        (ToolChoice("none"), "none"),
        (ToolChoice.tool("weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_tool_choice(choice: ToolChoice, expected: object) -> None:
    body = body_of(tools=(WEATHER,), tool_choice=choice, parallel_tools=False)
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("options", "fields", "expected"),
    [
        ({"max_tokens_field": "max_completion_tokens"}, {}, {"max_completion_tokens": 10}),
        ({"reasoning_field": "effort"}, {"reasoning_level": "med"}, {"effort": "medium"}),
        ({"include_usage": False}, {"stream": True}, {"stream": True}),
        ({"user_field": None}, {"metadata": {"user": "u"}}, {}),
        (
            {"user_field": "safety_identifier"},
            {"metadata": {"user": "u"}},
            {"safety_identifier": "u"},
        ),
    ],
)
def test_the_profile_renames_and_removes_fields(
    options: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    common = body_of(options=options)
    assert body_of(options=options, **fields) == common | expected


def test_a_model_that_cannot_think_is_not_told_to_stop_thinking() -> None:
    body = body_of(capabilities=Capabilities(reasoning=False), reasoning_level="none")
    assert body == body_of()


def test_the_system_prompt_comes_first_in_the_role_of_the_profile() -> None:
    fields: dict[str, Any] = {"system_prompt": "Be brief.", "messages": (user("a"), system("b"))}
    assert [m["role"] for m in body_of(**fields)["messages"]] == ["system", "user", "system"]
    assert body_of(**fields, options={"system_role": "developer"})["messages"] == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "developer", "content": "b"},
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (PNG, PNG_WIRE),
        (
            Image(url="https://x/cat.png", meta={"detail": "low"}),
            {"type": "image_url", "image_url": {"url": "https://x/cat.png", "detail": "low"}},
        ),
        (
            Image(url="https://x/cat.png", meta={"detail": 3}),
            {"type": "image_url", "image_url": {"url": "https://x/cat.png"}},
        ),
        (
            Audio(data="c25k", mime_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "c25k", "format": "mp3"}},
        ),
        (
            Audio(data="c25k", mime_type="Audio/X-WAV; rate=8000"),
            {"type": "input_audio", "input_audio": {"data": "c25k", "format": "wav"}},
        ),
    ],
)
def test_media_make_the_content_a_list_of_parts(
    part: Image | Audio, expected: dict[str, Any]
) -> None:
    assert messages_of(user("What is this?", part)) == [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, expected]}
    ]


def test_text_parts_alone_are_one_string() -> None:
    assert messages_of(user("a", "b")) == [{"role": "user", "content": "ab"}]


def test_an_assistants_tool_calls() -> None:
    call = ToolUse(id="c1", name="weather", input={"city": "Bern"})
    wire = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Bern"}'},
    }
    assert messages_of(assistant("Looking.", call), assistant(call), assistant("Done.")) == [
        {"role": "assistant", "content": "Looking.", "tool_calls": [wire]},
        {"role": "assistant", "content": None, "tool_calls": [wire]},
        {"role": "assistant", "content": "Done."},
    ]


def test_thinking_is_dropped_unless_the_profile_wants_it_back() -> None:
    turn = assistant(Reasoning(text="Hm."), "Yes.")
    plain = {"role": "assistant", "content": "Yes."}
    assert messages_of(turn) == [plain]
    assert messages_of(turn, replay_reasoning="reasoning_content") == [
        plain | {"reasoning_content": "Hm."}
    ]
    assert messages_of(assistant("Yes."), replay_reasoning="reasoning_content") == [plain]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult(tool_use_id="c1", content=(Text(text="12"), Text(text=" C"))), "12 C"),
        (ToolResult(tool_use_id="c1", structured_content={"t": 12}), '{"t":12}'),
        (ToolResult(tool_use_id="c1"), ""),
        (
            ToolResult(tool_use_id="c1", content=(Text(text="no such city"),), is_error=True),
            "Error: no such city",
        ),
        (
            ToolResult(tool_use_id="c1", is_error=True),
            "Error: the tool failed without a message",
        ),
    ],
)
def test_a_tool_result_is_a_tool_message(result: ToolResult, content: str) -> None:
    assert messages_of(user(result)) == [{"role": "tool", "tool_call_id": "c1", "content": content}]


def test_media_of_tool_results_follow_the_whole_run_of_tool_messages() -> None:
    with_image = ToolResult(tool_use_id="c1", content=(Text(text="a map"), PNG))
    only_image = ToolResult(tool_use_id="c2", content=(PNG,))
    plain = ToolResult(tool_use_id="c3", content=(Text(text="ok"),))
    tools = [
        {"role": "tool", "tool_call_id": "c1", "content": "a map"},
        {"role": "tool", "tool_call_id": "c2", "content": "(see the next message)"},
        {"role": "tool", "tool_call_id": "c3", "content": "ok"},
    ]
    media = [
        {"type": "text", "text": "From the tool call c1:"},
        PNG_WIRE,
        {"type": "text", "text": "From the tool call c2:"},
        PNG_WIRE,
    ]
    results = (user(with_image, only_image), user(plain))
    assert messages_of(*results) == [*tools, {"role": "user", "content": media}]
    # What the user says next joins them, for many templates want turns to alternate.
    question = {"type": "text", "text": "And?"}
    joined = [*tools, {"role": "user", "content": [*media, question]}]
    assert messages_of(*results, user("And?")) == joined
    assert messages_of(user(with_image, only_image), user(plain, "And?")) == joined
    assert messages_of(*results, assistant("So."))[-2:] == [
        {"role": "user", "content": media},
        {"role": "assistant", "content": "So."},
    ]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (user(Audio(data="x", mime_type="audio/flac")), "messages[0].content[0]"),
        (user("a", ToolUse(id="c", name="f", input={})), "messages[0].content[1]"),
        (assistant(PNG), "messages[0].content[0]"),
        (
            user(ToolResult(tool_use_id="c", content=(Audio(data="x", mime_type=""),))),
            "messages[0].content[0].content[0]",
        ),
    ],
)
def test_what_the_wire_cannot_say_is_refused_with_its_path(message: Message, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages_of(message)
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize("value", ["\ud800", object()])
def test_values_without_a_json_form_are_the_callers_error(value: object) -> None:
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        messages_of(assistant(ToolUse(id="c", name="f", input={"x": value})))


def test_schemas_are_passed_by_reference_and_left_alone() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    before = msgspec.json.encode(schema)
    body_of(tools=(ToolDefinition("f", "", schema),), output_schema=OutputSchema(schema))
    assert msgspec.json.encode(schema) == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
objects = st.dictionaries(st.text(), json_values, max_size=3)
images = st.builds(Image, data=st.text(), mime_type=st.text(), meta=st.none() | objects)
sounds = st.builds(Audio, data=st.text(), mime_type=st.sampled_from(["audio/wav", "audio/mp3"]))
texts = st.builds(Text, text=st.text())
results = st.builds(
    ToolResult,
    tool_use_id=st.text(),
    content=st.lists(texts | images | sounds, max_size=3).map(tuple),
    structured_content=st.none() | objects,
    is_error=st.booleans(),
)
user_turns = st.lists(texts | images | sounds | results, min_size=1, max_size=4)
calls = st.builds(ToolUse, id=st.text(), name=st.text(), input=objects)
thoughts = st.builds(Reasoning, text=st.text())
assistant_turns = st.lists(texts | calls | thoughts, min_size=1, max_size=4)
turns = user_turns.map(lambda parts: user(*parts)) | assistant_turns.map(
    lambda parts: assistant(*parts)
)
requests = st.builds(
    SamplingRequest,
    messages=st.lists(turns, min_size=1, max_size=5).map(tuple),
    max_tokens=st.integers(1, 10**6),
    system_prompt=st.none() | st.text(),
    temperature=st.none() | st.floats(0, 2),
    stop_sequences=st.lists(st.text(), max_size=3).map(tuple),
    tools=st.lists(st.builds(ToolDefinition, st.text(), st.text(), objects), max_size=2).map(tuple),
    tool_choice=st.none() | st.builds(ToolChoice, st.sampled_from(["auto", "required", "none"])),
    parallel_tools=st.none() | st.booleans(),
    output_schema=st.none() | st.builds(OutputSchema, objects),
    reasoning_level=st.sampled_from([None, "none", "low", "med", "high"]),
    metadata=objects,
)


@given(requests, st.booleans())
def test_every_request_becomes_valid_json(request: SamplingRequest, stream: bool) -> None:
    call = encode("m", request, ModelProfile(), stream)
    assert call.body is not None
    body = msgspec.json.decode(call.body)
    assert body["max_tokens"] == request.max_tokens
    roles = [message["role"] for message in body["messages"]]
    tool_results = [
        part for m in request.messages for part in m.content if isinstance(part, ToolResult)
    ]
    assert roles.count("tool") == len(tool_results)
    assert roles.count("assistant") == sum(m.role == "assistant" for m in request.messages)


def test_a_model_that_always_thinks_thinks_least() -> None:
    always = Capabilities(reasoning_off=False)
    body = body_of(capabilities=always, reasoning_level="none")
    assert body["reasoning_effort"] == "low"
    body = body_of(capabilities=always, options={"least_effort": "minimal"}, reasoning_level="none")
    assert body["reasoning_effort"] == "minimal"
