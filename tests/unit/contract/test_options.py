"""What a caller may ask for beside the messages."""

import msgspec
import pytest

from penstock.contract.messages import Audio, Image
from penstock.contract.options import (
    Capabilities,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ToolChoice,
    ToolDefinition,
)


def test_a_tool_choice_is_a_word_or_one_tool() -> None:
    assert ToolChoice.of("required") == ToolChoice("required")
    assert ToolChoice.of(ToolChoice.tool("now")) == ToolChoice("tool", "now")
    assert ToolChoice() == ToolChoice("auto")


def test_a_tool_is_read_from_the_shape_of_the_standard() -> None:
    shape = {
        "name": "weather",
        "description": "The weather.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "_meta": {"k": 1},
    }
    tool = msgspec.convert(shape, ToolDefinition)
    assert tool.input_schema == shape["inputSchema"]
    assert tool.meta == {"k": 1}
    assert msgspec.to_builtins(tool) == shape


def test_a_tool_without_arguments_takes_an_empty_object() -> None:
    assert ToolDefinition("now").input_schema == {"type": "object"}
    assert ToolDefinition("now").input_schema is not ToolDefinition("now").input_schema


@pytest.mark.parametrize(
    "value",
    [
        ToolChoice(),
        ToolDefinition("t"),
        OutputSchema({}),
        ModelPreferences(),
        Capabilities(),
        MCPTool("https://host/", "docs"),
    ],
)
def test_options_are_frozen(value: msgspec.Struct) -> None:
    field = value.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(value, field, None)


SERVER = MCPTool(
    "https://me:p4ss@host:8443/k3y/mcp?token=t0k",
    "docs",
    {"X-Key": "s3cr3t", "Authorization": "Bearer s3cr3t"},
    ["search"],
)


def test_a_server_keeps_copies_of_what_it_is_given() -> None:
    headers, names = {"X-Key": "a"}, ["search"]
    server = MCPTool("https://host/", "docs", headers, names)
    headers["X-Key"] = "b"
    names.append("open")
    assert (server.http_headers, server.allowed_tools) == ({"X-Key": "a"}, ("search",))
    assert MCPTool("https://host/", "docs").allowed_tools is None


def test_a_server_shows_no_secret() -> None:
    shown = (
        "MCPTool(url='https://host:8443/...', name='docs', http_headers=['Authorization', "
        "'X-Key'], allowed_tools=('search',), mode='auto')"
    )
    assert repr(SERVER) == str(SERVER) == f"{SERVER}" == shown
    assert f"{[SERVER]}" == f"[{shown}]"
    said = repr(SERVER.__rich_repr__())
    for secret in ("p4ss", "k3y", "t0k", "s3cr3t"):
        assert secret not in shown + said


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://host", "https://host"),
        ("https://host/", "https://host"),
        ("https://host?k=1", "https://host/..."),
        ("https://host#f", "https://host/..."),
        ("nonsense", "nonsense"),
        ("", ""),
    ],
)
def test_the_place_of_a_server_is_its_host(url: str, place: str) -> None:
    assert MCPTool(url, "docs").place == place


def test_a_server_survives_the_wire() -> None:
    assert msgspec.json.decode(msgspec.json.encode(SERVER), type=MCPTool) == SERVER
    assert msgspec.convert(msgspec.to_builtins(SERVER), MCPTool) == SERVER
    with pytest.raises(msgspec.ValidationError, match="mode"):
        msgspec.convert({"url": "u", "name": "n", "mode": "local"}, MCPTool)


PLAIN = MCPTool("https://host/", "docs")
BEARER = MCPTool("https://host/", "docs", {"authorization": "Bearer x"})
KEYED = MCPTool("https://host/", "docs", {"Authorization": "Bearer x", "X-Key": "y"})
BASIC = MCPTool("https://host/", "docs", {"Authorization": "Basic eA=="})
NARROW = MCPTool("https://host/", "docs", allowed_tools=["search"])


@pytest.mark.parametrize(
    ("able", "suited"),
    [
        (Capabilities(), ()),
        (Capabilities(native_mcp=True), (PLAIN, BEARER, KEYED, BASIC, NARROW)),
        (Capabilities(native_mcp=True, mcp_headers=False), (PLAIN, BEARER, NARROW)),
        (Capabilities(native_mcp=True, mcp_allow_list=False), (PLAIN, BEARER, KEYED, BASIC)),
    ],
)
def test_a_server_suits_a_provider_that_can_be_told_all_about_it(
    able: Capabilities, suited: tuple[MCPTool, ...]
) -> None:
    tools = (PLAIN, BEARER, KEYED, BASIC, NARROW)
    assert tuple(tool for tool in tools if tool.suits(able)) == suited


@pytest.mark.parametrize(
    ("part", "able", "taken"),
    [
        (Image("AA==", "image/png"), Capabilities(image_urls=False), True),
        (Image("AA==", "image/png"), Capabilities(images=False), False),
        (Image(url="https://host/a.png"), Capabilities(), True),
        (Image(url="https://host/a.png"), Capabilities(image_urls=False), False),
        (Audio("AA==", "audio/wav"), Capabilities(), False),
        (Audio("AA==", "audio/wav"), Capabilities(audio=True, images=False), True),
    ],
)
def test_what_a_model_reads(part: Image | Audio, able: Capabilities, taken: bool) -> None:
    assert able.takes(part) is taken
