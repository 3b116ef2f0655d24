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
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.providers.ollama import DIALECT
from penstock.providers.ollama.encode import encode

HELLO = (user("Hello"),)
WEATHER = ToolDefinition("weather", "Tells the weather", {"type": "object"})
WEATHER_WIRE = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {"type": "object"},
    },
}
PNG = Image(data="aW1n", mime_type="image/png")
GIF = Image(data="Z2lm", mime_type="image/gif")
USE = ToolUse("c1", "weather", {"city": "Bern"})
USE_WIRE = {"function": {"name": "weather", "arguments": {"city": "Bern"}}}


def body_of(
    *,
    model: str = "m",
    options: dict[str, Any] | None = None,
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    given_fields: dict[str, Any] = {"messages": HELLO, "max_tokens": 10, **fields}
    profile = DIALECT.catalogue.profile("ollama", model, options or {})
    call = encode(model, SamplingRequest(**given_fields), profile, stream)
    assert (call.method, call.path, call.headers) == ("POST", "/api/chat", {})
    assert call.body is not None
    return msgspec.json.decode(call.body)


def messages_of(*messages: Message) -> list[dict[str, Any]]:
    return body_of(messages=messages)["messages"]


def test_the_smallest_request() -> None:
    assert body_of() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "options": {"num_predict": 10},
        "stream": False,
    }


def test_a_stream_says_so() -> None:
    assert body_of(stream=True) == body_of() | {"stream": True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"stop_sequences": ("END", "\n")}, {"stop": ["END", "\n"]}),
        ({"options": {"context": 8192}}, {"num_ctx": 8192}),
    ],
)
def test_sampling_options_are_in_a_map_of_their_own(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert body_of(**fields) == body_of() | {"options": {"num_predict": 10} | expected}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": (WEATHER,)}, {"tools": [WEATHER_WIRE]}),
        ({"tools": (WEATHER,), "tool_choice": ToolChoice("auto")}, {"tools": [WEATHER_WIRE]}),
        ({"tools": (WEATHER,), "tool_choice": ToolChoice("none")}, {}),
        (
            {"tools": (ToolDefinition("f", strict=True),)},
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "object"}},
                    }
                ]
            },
        ),
        (
            {"output_schema": OutputSchema({"type": "object", "title": "R"}, "recipe")},
            {"format": {"type": "object", "title": "R"}},
        ),
        ({"metadata": {"user": "u1", "cache": True}}, {}),
    ],
)
def test_each_option_has_its_field(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert body_of(**fields) == body_of() | expected


@pytest.mark.parametrize(
    ("model", "level", "think"),
    [
        ("qwen3:8b", "none", False),
        ("qwen3:8b", "low", True),
        ("qwen3:8b", "med", True),
        ("qwen3:8b", "high", True),
        # It always thinks, and its server takes no notice of a plain no.
        ("gpt-oss:20b", "none", "low"),
        ("gpt-oss:20b", "low", "low"),
        ("gpt-oss:120b-cloud", "med", "medium"),
        ("someone/gpt-oss-tuned", "high", "high"),
    ],
)
def test_only_some_models_have_levels_of_thinking(model: str, level: str, think: object) -> None:
    assert body_of(model=model, reasoning_level=level)["think"] == think


def test_system_prompt_and_system_messages() -> None:
    fields: dict[str, Any] = {"system_prompt": "Be brief.", "messages": (user("a"), system("b"))}
    assert body_of(**fields)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "b"},
    ]
    assert messages_of(system("b", "c")) == [{"role": "system", "content": "bc"}]


def test_pictures_are_beside_the_text() -> None:
    assert messages_of(user("What is ", PNG, "this?", GIF)) == [
        {"role": "user", "content": "What is this?", "images": ["aW1n", "Z2lm"]}
    ]
    assert messages_of(user(PNG)) == [{"role": "user", "content": "", "images": ["aW1n"]}]


def test_an_assistants_tool_calls() -> None:
    assert messages_of(assistant("Looking.", USE), assistant(USE, USE), assistant("Done.")) == [
        {"role": "assistant", "content": "Looking.", "tool_calls": [USE_WIRE]},
        {"role": "assistant", "content": "", "tool_calls": [USE_WIRE, USE_WIRE]},
        {"role": "assistant", "content": "Done."},
    ]


def test_thinking_goes_back() -> None:
    signed = Reasoning("Hm.", signature="s")
    hidden = Reasoning("", signature="x", redacted=True)
    assert messages_of(assistant(signed, Reasoning(" Yes."), "Yes."), assistant(hidden, "A")) == [
        {"role": "assistant", "content": "Yes.", "thinking": "Hm. Yes."},
        {"role": "assistant", "content": "A"},
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult("c1", (Text("12"), Text(" C"))), "12 C"),
        (ToolResult("c1", structured_content={"t": 12}), '{"t":12}'),
        (ToolResult("c1"), ""),
        (ToolResult("c1", (Text("no such city"),), is_error=True), "Error: no such city"),
        (ToolResult("c1", is_error=True), "Error: the tool failed without a message"),
    ],
)
def test_a_tool_result_names_its_tool(result: ToolResult, content: str) -> None:
    wire = messages_of(assistant(USE), user(result))
    assert wire[1:] == [{"role": "tool", "tool_name": "weather", "content": content}]


def test_results_find_their_tools_however_often_it_is_called() -> None:
    clock = ToolUse("c2", "clock", {})
    again = ToolUse("c3", "weather", {})
    wire = messages_of(
        assistant(USE, clock, again),
        user(*(ToolResult(id, (Text(id),)) for id in ("c1", "c2", "c3"))),
    )
    assert [(each["tool_name"], each["content"]) for each in wire[1:]] == [
        ("weather", "c1"),
        ("clock", "c2"),
        ("weather", "c3"),
    ]


def test_a_result_without_its_call_has_no_name() -> None:
    assert messages_of(user(ToolResult("c9", (PNG,)))) == [
        {"role": "tool", "content": "(see the next message)"},
        {"role": "user", "content": "Picture 1 comes from a tool.\n", "images": ["aW1n"]},
    ]


def test_pictures_of_tool_results_follow_the_whole_run_of_tool_messages() -> None:
    clock = ToolUse("c2", "clock", {})
    first = user(ToolResult("c1", (Text("a map"), PNG)), ToolResult("c2", (GIF,)))
    tools = [
        {"role": "tool", "tool_name": "weather", "content": "a map"},
        {"role": "tool", "tool_name": "clock", "content": "(see the next message)"},
    ]
    lines = "Picture 1 comes from the tool weather.\nPicture 2 comes from the tool clock.\n"
    media: dict[str, Any] = {"role": "user", "content": lines, "images": ["aW1n", "Z2lm"]}
    calls = assistant(USE, clock)
    assert messages_of(calls, first)[1:] == [*tools, media]
    asked = media | {"content": lines + "And?"}
    assert messages_of(calls, first, user("And?"))[1:] == [*tools, asked]
    more = asked | {"images": ["aW1n", "Z2lm", "aW1n"]}
    assert messages_of(calls, first, user("And?", PNG))[1:] == [*tools, more]
    assert messages_of(calls, first, assistant("So."))[1:] == [
        *tools,
        media,
        {"role": "assistant", "content": "So."},
    ]


def test_a_tool_that_is_called_like_a_prefix_keeps_its_name() -> None:
    """What the decoder takes off, the encoder has put on."""
    odd = ToolDefinition("tool.x", "", {"type": "object"})
    use = ToolUse("c1", "tool.x", {})
    body = body_of(tools=(odd,), messages=(assistant(use), user(ToolResult("c1"))))
    assert body["tools"][0]["function"]["name"] == "tool.tool.x"
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == "tool.tool.x"
    assert body["messages"][1]["tool_name"] == "tool.tool.x"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (user("a", Audio("x", "audio/wav")), "messages[0].content[1]"),
        (user(Image(url="https://x/cat.png")), "messages[0].content[0]"),
        (user(ToolUse("c", "f", {})), "messages[0].content[0]"),
        (user(ToolResult("c", (Audio("x", "audio/wav"),))), "messages[0].content[0].content[0]"),
        (assistant(PNG), "messages[0].content[0]"),
        (assistant(ToolResult("c")), "messages[0].content[0]"),
    ],
)
def test_what_the_wire_has_no_place_for_is_refused(message: Message, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages_of(message)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_values_without_a_json_form_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="JSON"):
        messages_of(assistant(ToolUse("c", "f", {"x": object()})))


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=20)),
    st.builds(Image, data=st.text("abcd", min_size=1, max_size=4), mime_type=st.just("image/png")),
    st.builds(
        ToolResult,
        st.sampled_from(["c1", "c2"]),
        st.lists(st.one_of(st.builds(Text, st.text(max_size=9)), st.just(PNG)), max_size=3).map(
            tuple
        ),
        is_error=st.booleans(),
    ),
    st.builds(Reasoning, st.text(max_size=5)),
)
ANSWERS = st.one_of(
    st.builds(Text, st.text(max_size=20)),
    st.builds(Reasoning, st.text(max_size=5)),
    st.builds(ToolUse, st.sampled_from(["c1", "c2"]), st.text(max_size=5), st.just({"a": 1})),
)
TURNS = st.one_of(
    st.lists(PARTS, max_size=4).map(lambda parts: user(*parts)),
    st.lists(ANSWERS, max_size=4).map(lambda parts: assistant(*parts)),
)


@given(st.lists(TURNS, max_size=5).map(tuple))
def test_every_text_and_every_picture_arrives(messages: tuple[Message, ...]) -> None:
    wire = messages_of(*messages)
    pictures = [
        part.data
        for message in messages
        for outer in message.content
        for part in (outer.content if isinstance(outer, ToolResult) else (outer,))
        if isinstance(part, Image)
    ]
    assert sum(len(each.get("images", [])) for each in wire) == len(pictures)
    said = "".join(each["content"] for each in wire)
    for message in messages:
        for part in message.content:
            if isinstance(part, Text):
                assert part.text in said
