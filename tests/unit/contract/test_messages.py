"""Messages and parts: their JSON is MCP's own, and nothing of it is lost."""

from typing import Any

import mcp.types
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assistant,
    join_text,
    system,
    user,
)

SHAPES: list[tuple[Content, dict[str, Any]]] = [
    (Text("hi"), {"type": "text", "text": "hi"}),
    (Text("hi", meta={"a": 1}), {"type": "text", "text": "hi", "_meta": {"a": 1}}),
    (
        Image(data="aGk=", mime_type="image/png"),
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ),
    (
        Audio(data="aGk=", mime_type="audio/wav"),
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    ),
    (
        ToolUse("c1", "weather", {"city": "Oslo"}),
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
    ),
    (ToolUse("c1", "now", {}), {"type": "tool_use", "id": "c1", "name": "now", "input": {}}),
    (
        ToolResult("c1", (Text("4 °C"),), {"t": 4}, True, meta={"b": [None]}),
        {
            "type": "tool_result",
            "toolUseId": "c1",
            "content": [{"type": "text", "text": "4 °C"}],
            "structuredContent": {"t": 4},
            "isError": True,
            "_meta": {"b": [None]},
        },
    ),
    # The standard requires `content`, even when it is empty.
    (ToolResult("c1"), {"type": "tool_result", "toolUseId": "c1", "content": []}),
]
OURS: list[tuple[Content, dict[str, Any]]] = [
    (Image(url="https://x/y.png"), {"type": "image", "url": "https://x/y.png"}),
    (
        Reasoning("hm", signature="sig", redacted=True),
        {"type": "reasoning", "text": "hm", "signature": "sig", "redacted": True},
    ),
    (
        MCPCall("m1", "docs", "search", {"q": 1}, (Text("4 °C"),), True, meta={"a": 1}),
        {
            "type": "mcp_call",
            "id": "m1",
            "server": "docs",
            "name": "search",
            "input": {"q": 1},
            "content": [{"type": "text", "text": "4 °C"}],
            "isError": True,
            "_meta": {"a": 1},
        },
    ),
]


def wire(value: Content | Message) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize(("part", "shape"), [*SHAPES, *OURS])
def test_a_part_is_written_and_read_in_the_shape_of_the_standard(
    part: Content, shape: dict[str, Any]
) -> None:
    assert wire(part) == shape
    assert msgspec.json.decode(msgspec.json.encode(part), type=Content) == part
    assert msgspec.convert(shape, Content) == part


@pytest.mark.parametrize("shape", [shape for _, shape in SHAPES])
def test_the_official_types_accept_every_shape_and_give_it_back(shape: dict[str, Any]) -> None:
    role = "assistant" if shape["type"] == "tool_use" else "user"
    theirs = mcp.types.SamplingMessage.model_validate({"role": role, "content": [shape]})
    said = theirs.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert said["content"][0].items() >= shape.items()
    ours = msgspec.convert(said, Message)
    assert wire(ours.content[0]) == shape


def test_fields_that_a_later_revision_adds_are_skipped() -> None:
    shape = {"type": "text", "text": "hi", "annotations": {"audience": ["user"]}}
    assert msgspec.convert(shape, Content) == Text("hi")


@pytest.mark.parametrize(
    "shape",
    [
        {"type": "hologram"},
        {"text": "hi"},
        {"type": "text"},
        {"type": "text", "text": 3},
        {"type": "tool_use", "id": "c1", "name": "n", "input": []},
        {"type": "tool_result", "toolUseId": "c1", "content": [{"type": "tool_use"}]},
    ],
)
def test_a_shape_that_is_not_of_the_standard_is_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(shape, Content)


@pytest.mark.parametrize("part", [part for part, _ in [*SHAPES, *OURS]])
def test_parts_are_frozen(part: Content) -> None:
    with pytest.raises(AttributeError):
        part.meta = {}  # pyright: ignore[reportAttributeAccessIssue]


def test_a_message_is_written_with_its_role_content_and_meta() -> None:
    message = Message("user", (Text("hi"),), {"k": "v"})
    assert wire(message) == {
        "role": "user",
        "content": [{"type": "text", "text": "hi"}],
        "_meta": {"k": "v"},
    }
    with pytest.raises(AttributeError):
        message.role = "assistant"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'tool'"):
        msgspec.convert({"role": "tool", "content": []}, Message)


def test_the_helpers_make_text_parts_of_strings() -> None:
    picture = Image(url="https://x/y.png")
    assert user("What is", picture, "?").content == (Text("What is"), picture, Text("?"))
    assert assistant("Hi").role == "assistant"
    assert system("Be brief.").role == "system"
    assert user().content == ()


def test_the_text_of_a_message_is_its_text_parts_only() -> None:
    use = ToolUse("c1", "now", {})
    message = assistant("a", Reasoning("hidden"), use, "b")
    assert message.text == "ab"
    assert message.tool_uses == (use,)
    assert join_text([]) == ""


def test_a_tool_result_without_text_says_its_structured_content() -> None:
    assert ToolResult("c1", (Text("4"), Text(" °C")), {"t": 4}).text == "4 °C"
    assert ToolResult("c1", (), {"t": 4}).text == '{"t":4}'
    assert ToolResult("c1").text == ""


def test_a_call_that_the_provider_made_is_no_tool_use() -> None:
    call = MCPCall("m1", "docs", "search", {}, (Text("4"), Text(" °C")))
    assert call.text == "4 °C"
    assert assistant(call, "It is.").tool_uses == ()
    assert assistant(call, "It is.").text == "It is."


json_objects = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(width=32) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ).filter(lambda value: "nan" not in repr(value) and "inf" not in repr(value)),
    max_size=3,
)
metas = st.none() | json_objects
texts = st.builds(Text, st.text(), meta=metas)
images = st.builds(
    Image, data=st.text(), mime_type=st.text(), url=st.none() | st.text(), meta=metas
)
sounds = st.builds(Audio, data=st.text(), mime_type=st.text(), meta=metas)
uses = st.builds(ToolUse, st.text(), st.text(), json_objects, meta=metas)
results = st.builds(
    ToolResult,
    st.text(),
    st.lists(texts | images | sounds, max_size=3).map(tuple),
    st.none() | json_objects,
    st.booleans(),
    meta=metas,
)
thoughts = st.builds(
    Reasoning, st.text(), signature=st.none() | st.text(), redacted=st.booleans(), meta=metas
)
server_calls = st.builds(
    MCPCall,
    st.text(),
    st.text(),
    st.text(),
    json_objects,
    st.lists(texts | images | sounds, max_size=3).map(tuple),
    st.booleans(),
    meta=metas,
)
parts = texts | images | sounds | uses | results | thoughts | server_calls
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(parts, max_size=4).map(tuple),
    metas,
)


@given(messages)
def test_every_message_survives_the_wire(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
    assert msgspec.convert(msgspec.to_builtins(message), Message) == message
