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
from penstock.providers.openai_responses import DIALECT
from penstock.providers.openai_responses.count import encode as encode_count
from penstock.providers.openai_responses.decode import decode
from penstock.providers.openai_responses.encode import encode
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import WireCall
from tests.unit.providers.openai_responses import responses_wire as wire

HELLO = (user("Hello"),)
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "Tells the weather", CLOSED)
WEATHER_WIRE = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather",
    "parameters": CLOSED,
    "strict": True,
}
PNG = Image(data="aW1n", mime_type="image/png")
PNG_WIRE = {"type": "input_image", "image_url": "data:image/png;base64,aW1n", "detail": "auto"}
CALL = ToolUse(id="c1", name="weather", input={"city": "Bern"})
CALL_WIRE = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city":"Bern"}',
}
THOUGHT = Reasoning("Hm.", signature="enc", meta={"openai_id": "rs_1"})
THOUGHT_WIRE = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "enc",
}


def profile_of(
    options: dict[str, Any] | None = None, capabilities: Capabilities | None = None
) -> ModelProfile:
    return ModelProfile(capabilities or Capabilities(), options or {})


def body_of(
    *,
    options: dict[str, Any] | None = None,
    capabilities: Capabilities | None = None,
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    given_fields: dict[str, Any] = {"messages": HELLO, "max_tokens": 10, **fields}
    request = SamplingRequest(**given_fields)
    call = encode("m", request, profile_of(options, capabilities), stream)
    assert (call.method, call.path, call.headers) == ("POST", "/responses", {})
    assert call.body is not None
    return msgspec.json.decode(call.body)


def items_of(*messages: Message) -> list[dict[str, Any]]:
    return body_of(messages=messages)["input"]


def spoken(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content, **fields}


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "m",
        "input": [{"role": "user", "content": "Hello"}],
        "max_output_tokens": 10,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_model_that_cannot_think_is_not_asked_for_thoughts() -> None:
    plain = Capabilities(reasoning=False)
    assert "include" not in body_of(capabilities=plain)
    assert "reasoning" not in body_of(capabilities=plain, reasoning_level="none")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": True}, {"stream": True}),
        ({"system_prompt": "Be brief."}, {"instructions": "Be brief."}),
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"reasoning_level": "none"}, {"reasoning": {"effort": "none"}}),
        ({"reasoning_level": "low"}, {"reasoning": {"effort": "low", "summary": "auto"}}),
        ({"reasoning_level": "med"}, {"reasoning": {"effort": "medium", "summary": "auto"}}),
        ({"reasoning_level": "high"}, {"reasoning": {"effort": "high", "summary": "auto"}}),
        ({"metadata": {"user": "u1", "trace": "t"}}, {"safety_identifier": "u1"}),
        ({"metadata": {"user": 7, "cache": True}}, {}),
        ({"metadata": {"cache": "tenant-1"}}, {"prompt_cache_key": "tenant-1"}),
        ({"tools": (WEATHER,)}, {"tools": [WEATHER_WIRE]}),
        # The wire refuses these two without tools.
        ({"tool_choice": ToolChoice("none"), "parallel_tools": False}, {}),
        (
            {"output_schema": OutputSchema(CLOSED, "recipe", "A recipe")},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "recipe",
                        "schema": CLOSED,
                        "strict": True,
                        "description": "A recipe",
                    }
                }
            },
        ),
    ],
)
def test_each_option_has_its_field(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body_of(**fields) == body_of() | expected


def test_a_model_that_always_thinks_thinks_least() -> None:
    body = body_of(options={"least_effort": "minimal"}, reasoning_level="none")
    assert body["reasoning"] == {"effort": "minimal"}


@pytest.mark.parametrize(
    ("output", "name", "schema", "strict"),
    [
        (OutputSchema(CLOSED, "my recipe!"), "my_recipe_", CLOSED, True),
        (OutputSchema(CLOSED, "x" * 80), "x" * 64, CLOSED, True),
        (OutputSchema(CLOSED, ""), "answer", CLOSED, True),
        (OutputSchema(CLOSED, strict=False), "answer", CLOSED, False),
        (
            OutputSchema({"type": "object", "additionalProperties": {"type": "string"}}),
            "answer",
            {"type": "object", "additionalProperties": {"type": "string"}, "properties": {}},
            False,
        ),
    ],
)
def test_formats(output: OutputSchema, name: str, schema: dict[str, Any], strict: bool) -> None:
    found = body_of(output_schema=output)["text"]["format"]
    assert (found["name"], found["schema"], found["strict"]) == (name, schema, strict)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("required"), "required"),
        (ToolChoice("none"), "none"),
        (ToolChoice.tool("weather"), {"type": "function", "name": "weather"}),
    ],
)
def test_tool_choice(choice: ToolChoice, expected: object) -> None:
    body = body_of(tools=(WEATHER,), tool_choice=choice, parallel_tools=False)
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False


OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "asked", "sent", "strict"),
    [
        (CLOSED, None, CLOSED, True),
        (CLOSED, True, CLOSED, True),
        (CLOSED, False, CLOSED, False),
        # An optional argument would come as null, which the tool has never heard of.
        (OPEN, None, OPEN, False),
        (OPEN, False, OPEN, False),
        (
            OPEN,
            True,
            {
                "type": "object",
                "properties": {"a": {"type": ["string", "null"]}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        ({"type": "object"}, None, {"type": "object", "properties": {}}, False),
        ({"type": "object"}, True, {"type": "object", "properties": {}}, True),
    ],
)
def test_a_tool_is_strict_where_that_changes_nothing_or_where_it_says_so(
    schema: dict[str, Any], asked: bool | None, sent: dict[str, Any], strict: bool
) -> None:
    (tool,) = body_of(tools=(ToolDefinition("f", "", schema, asked),))["tools"]
    assert tool == {"type": "function", "name": "f", "parameters": sent, "strict": strict}


TURNS: list[Any] = [
    (user("a", "b"), [{"role": "user", "content": "ab"}]),
    (system("Be kind.", " Now."), [{"role": "system", "content": "Be kind. Now."}]),
    (
        user("What?", PNG),
        [{"role": "user", "content": [{"type": "input_text", "text": "What?"}, PNG_WIRE]}],
    ),
    (
        user(Image(url="https://x/c.png", meta={"detail": "low"})),
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "https://x/c.png", "detail": "low"}
                ],
            }
        ],
    ),
    (user(Reasoning("x")), []),
    (assistant("Yes."), [spoken("Yes.")]),
    (
        assistant(Text("Soon.", meta={"openai_phase": "commentary"})),
        [spoken("Soon.", phase="commentary")],
    ),
    (assistant("Looking.", CALL), [spoken("Looking."), CALL_WIRE]),
    (assistant(THOUGHT, CALL), [THOUGHT_WIRE, CALL_WIRE]),
    (assistant(THOUGHT, "Yes."), [THOUGHT_WIRE, spoken("Yes.")]),
    (
        assistant(Reasoning("", signature="e", redacted=True, meta={"openai_id": "r"}), CALL),
        [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
            CALL_WIRE,
        ],
    ),
    # Thinking of others, thinking without its signature, and thinking that led to nothing.
    (assistant(Reasoning("Hm.", signature="theirs"), "Yes."), [spoken("Yes.")]),
    (assistant(Reasoning("Hm.", meta={"openai_id": "r"}), "Yes."), [spoken("Yes.")]),
    (assistant("Yes.", THOUGHT), [spoken("Yes.")]),
]


@pytest.mark.parametrize(("message", "expected"), TURNS)
def test_turns(message: Message, expected: list[dict[str, Any]]) -> None:
    assert items_of(message) == expected


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult("c1", (Text("12"), Text(" C"))), "12 C"),
        (ToolResult("c1", structured_content={"t": 12}), '{"t":12}'),
        (ToolResult("c1"), ""),
        (ToolResult("c1", (Text("no city"),), is_error=True), "Error: no city"),
        (ToolResult("c1", is_error=True), "Error: the tool failed without a message"),
        (
            ToolResult("c1", (Text("a map"), PNG)),
            [{"type": "input_text", "text": "a map"}, PNG_WIRE],
        ),
        (
            ToolResult("c1", (PNG,), is_error=True),
            [{"type": "input_text", "text": "Error: "}, PNG_WIRE],
        ),
    ],
)
def test_a_tool_result_is_an_item(result: ToolResult, output: object) -> None:
    wired = {"type": "function_call_output", "call_id": "c1", "output": output}
    assert items_of(user(result)) == [wired]
    assert items_of(user("And?", result)) == [wired, {"role": "user", "content": "And?"}]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (user("a", Audio(data="x", mime_type="audio/wav")), "messages[0].content[1]"),
        (user(ToolUse(id="c", name="f", input={})), "messages[0].content[0]"),
        (assistant(PNG), "messages[0].content[0]"),
        (
            user(ToolResult("c", (Audio(data="x", mime_type=""),))),
            "messages[0].content[0].content[0]",
        ),
    ],
)
def test_what_the_wire_cannot_say_is_refused_with_its_path(message: Message, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        items_of(message)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_an_answer_goes_back_as_it_came() -> None:
    items = [
        wire.thought("Hm."),
        wire.message("Soon.", phase="commentary"),
        wire.call("weather", '{"city":"Bern"}'),
    ]
    reply = decode(wire.body(*items))
    assert items_of(Message("assistant", reply.content)) == [
        THOUGHT_WIRE,
        spoken("Soon.", phase="commentary"),
        CALL_WIRE,
    ]


def test_a_count_asks_what_the_answer_would_ask() -> None:
    request = SamplingRequest(
        messages=HELLO,
        max_tokens=10,
        system_prompt="Be brief.",
        tools=(WEATHER,),
        tool_choice=ToolChoice("auto"),
        parallel_tools=True,
        output_schema=OutputSchema(CLOSED),
        reasoning_level="low",
        temperature=0.5,
        metadata={"user": "u"},
    )
    call = encode_count("m", request, profile_of())
    assert (call.method, call.path) == ("POST", "/responses/input_tokens")
    assert call.body is not None
    asked = msgspec.json.decode(call.body)
    answer = encode("m", request, profile_of(), True).body
    assert answer is not None
    whole = msgspec.json.decode(answer)
    assert asked == {key: whole[key] for key in asked}
    assert whole.keys() - asked.keys() == {
        *("max_output_tokens", "store", "include", "temperature", "safety_identifier", "stream")
    }


def test_the_small_half_of_the_dialect() -> None:
    assert (DIALECT.name, DIALECT.framing) == ("openai-responses", "sse")
    assert DIALECT.authorize("k") == {"authorization": "Bearer k"}
    assert DIALECT.models.call("http://x", {}) == WireCall("/models", method="GET")
    assert DIALECT.embeddings is not None
    assert DIALECT.embeddings.batch_limit("m") == 2048
    assert DIALECT.stream_decoder({}) is not DIALECT.stream_decoder({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
objects = st.dictionaries(st.text(), json_values, max_size=3)
parts = st.one_of(
    st.text().map(Text),
    st.just(PNG),
    st.just(THOUGHT),
    st.builds(ToolUse, st.text(), st.text(), objects),
    st.builds(ToolResult, st.text(), st.tuples(st.text().map(Text))),
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(parts, max_size=3).map(tuple),
)


@given(st.lists(messages, max_size=4), objects, st.booleans())
def test_any_request_is_valid_json_or_the_callers_error(
    history: list[Message], schema: dict[str, Any], stream: bool
) -> None:
    tools = (ToolDefinition("f", "", schema),)
    try:
        body = body_of(
            messages=tuple(history),
            tools=tools,
            output_schema=OutputSchema(schema),
            stream=stream,
        )
    except InvalidRequest:
        return
    assert body["store"] is False
    assert "previous_response_id" not in body
