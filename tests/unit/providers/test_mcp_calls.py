"""What the dialects share about MCP servers: calls in words, tokens, and secrets kept."""

import pytest

from penstock.contract.errors import Problem
from penstock.contract.messages import Audio, Image, MCPCall, Text
from penstock.providers.wire.mcp_calls import bearer, parts_of, refused, told

PICTURE = Image(data="aGk=", mime_type="image/png")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            MCPCall("1", "docs", "search", {"q": "é"}, (Text("a"), PICTURE, Text("b"))),
            '\n[The tool "search" of the MCP server "docs" was called with {"q":"é"} and '
            "answered: a (image) b]\n",
        ),
        (
            MCPCall("1", "", "open", {}, (Text("gone"),), True),
            '\n[The tool "open" was called with {} and failed: gone]\n',
        ),
        (
            MCPCall("1", "", "", {}, (Text("Nile"),)),
            "\n[A tool was called with {} and answered: Nile]\n",
        ),
    ],
)
def test_a_call_in_words(call: MCPCall, words: str) -> None:
    assert told(call) == words


@pytest.mark.parametrize(
    ("headers", "token", "rest"),
    [
        ({}, None, {}),
        ({"Authorization": "Bearer t0"}, "t0", {}),
        ({"X-A": "1", "AUTHORIZATION": "bEARER  t0"}, "t0", {"X-A": "1"}),
        ({"Authorization": "Basic dTpw"}, None, {"Authorization": "Basic dTpw"}),
        ({"X-Authorization": "Bearer t0"}, None, {"X-Authorization": "Bearer t0"}),
    ],
)
def test_a_bearer_token_is_taken_out_of_the_headers(
    headers: dict[str, str], token: str | None, rest: dict[str, str]
) -> None:
    given = dict(headers)
    assert bearer(headers) == (token, rest)
    assert headers == given


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (None, ()),
        ("a", (Text("a"),)),
        ([], ()),
        (
            [
                {"type": "text", "text": "a", "annotations": None},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            ],
            (Text("a"), PICTURE, Audio("aGk=", "audio/wav")),
        ),
        (
            [{"type": "resource_link", "uri": "x:y"}],
            (Text('{"type":"resource_link","uri":"x:y"}'),),
        ),
        (["a", 7, {"type": "text"}], (Text("a"), Text("7"), Text('{"type":"text"}'))),
        ({"temperature": 4}, (Text('{"temperature":4}'),)),
    ],
)
def test_what_a_tool_answered(value: object, parts: tuple[Text | Image | Audio, ...]) -> None:
    assert parts_of(value) == parts


def test_a_refusal_names_the_field() -> None:
    error = refused("claude-x", "mcp_tools[0].url", "https only")
    assert str(error) == "claude-x does not support this mcp_tools[0].url: https only"
    assert error.options == ("mcp_tools[0].url",)
    assert error.problems == (Problem("mcp_tools[0].url", "https only"),)
