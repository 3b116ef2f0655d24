"""The MCP servers of a request: every rule with its path, and no word of a header's value."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import MCPCall, Text, assistant, user
from penstock.contract.options import MCPTool, ToolChoice, ToolDefinition
from penstock.contract.requests import build_request
from penstock.pipeline.validate import Limits, validate

URL = "https://mcp.example.com/mcp"
SECRET = "s3cr3t-value"


def request(*tools: MCPTool, **options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": (user("hi"),), "max_tokens": 9, **options}
    return SamplingRequest(mcp_tools=tools, **fields)


def problems(candidate: SamplingRequest) -> list[str]:
    with pytest.raises(InvalidRequest) as caught:
        validate(candidate, Limits())
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "tool",
    [
        MCPTool(URL, "docs"),
        MCPTool("http://localhost:8000", "a" * 64),
        MCPTool("HTTPS://[2001:db8::1]:8443/mcp?team=1", "A-b_9"),
        MCPTool(URL, "docs", {"Authorization": "Bearer x", "X-A": "a b\tc"}, ["search"], "native"),
    ],
)
def test_a_good_server_is_handed_on(tool: MCPTool) -> None:
    good = request(tool)
    assert validate(good, Limits()) is good


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (
            MCPTool("ftp://host/mcp", "docs"),
            "mcp_tools[0].url: ftp://host/... is not an address; give one such as https://host/mcp",
        ),
        (
            MCPTool("docs", "docs"),
            "mcp_tools[0].url: docs is not an address; give one such as https://host/mcp",
        ),
        (
            MCPTool("https://", "docs"),
            "mcp_tools[0].url: https:// is not an address; give one such as https://host/mcp",
        ),
        (
            MCPTool("https://host:port/", "docs"),
            "mcp_tools[0].url: https://host:port is not an address; give one such as https://host/mcp",
        ),
        (
            MCPTool(f"https://me:{SECRET}@host/mcp", "docs"),
            "mcp_tools[0].url: holds a user or a password; put credentials into http_headers",
        ),
        (
            MCPTool("http://169.254.169.254/latest", "docs"),
            "mcp_tools[0].url: 169.254.169.254 is a link-local address, where clouds keep their "
            "metadata services; give the address of an MCP server",
        ),
        (
            MCPTool("http://metadata.google.internal/", "docs"),
            "mcp_tools[0].url: metadata.google.internal is the metadata service of a cloud; "
            "give the address of an MCP server",
        ),
        (
            MCPTool("http://[fd00:ec2::254]/", "docs"),
            "mcp_tools[0].url: fd00:ec2::254 is the metadata service of a cloud; "
            "give the address of an MCP server",
        ),
        (
            MCPTool(URL, "my docs"),
            "mcp_tools[0].name: 'my docs' is not 1 to 64 letters, digits, '_' and '-' of ASCII",
        ),
        (
            MCPTool(URL, ""),
            "mcp_tools[0].name: '' is not 1 to 64 letters, digits, '_' and '-' of ASCII",
        ),
        (
            MCPTool(URL, "now"),
            "mcp_tools[0].name: 'now' is the name of a tool already; give it another",
        ),
        (
            MCPTool(URL, "docs", {"X Key": SECRET}),
            "mcp_tools[0].http_headers: 'X Key' is not a header name",
        ),
        (
            MCPTool(URL, "docs", {"X-Key": f"{SECRET}\r\nHost: evil"}),
            "mcp_tools[0].http_headers.X-Key: its value is empty, has spaces at an end, or holds a "
            "line break or another character that a header cannot carry",
        ),
        (
            MCPTool(URL, "docs", {"X-Key": "schlüssel"}),
            "mcp_tools[0].http_headers.X-Key: its value is empty, has spaces at an end, or holds a "
            "line break or another character that a header cannot carry",
        ),
        (
            MCPTool(URL, "docs", allowed_tools=[]),
            "mcp_tools[0].allowed_tools: is empty, so that no tool is left; "
            "leave it out to allow all",
        ),
        (
            MCPTool(URL, "docs", allowed_tools=["search", " "]),
            "mcp_tools[0].allowed_tools[1]: is empty; give the name of a tool",
        ),
        (
            MCPTool(URL, "docs", allowed_tools="search"),
            "mcp_tools[0].allowed_tools: is a single text; give a list of names",
        ),
        (
            MCPTool(URL, "docs", mode="adapter"),
            "mcp_tools[0].mode: is 'adapter', and only generators run tools; here the provider "
            "connects: say 'native' or 'auto', or use a generator",
        ),
    ],
)
def test_every_rule_has_its_path(tool: MCPTool, problem: str) -> None:
    assert problems(request(tool, tools=(ToolDefinition("now"),))) == [problem]
    assert SECRET not in problem


def test_all_problems_of_all_servers_are_told_at_once() -> None:
    found = problems(
        request(MCPTool("x", ""), MCPTool(URL, "docs"), MCPTool(URL, "docs", {"A": "1", "a": "2"}))
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "mcp_tools[0].url",
        "mcp_tools[0].name",
        "mcp_tools[2].name",
        "mcp_tools[2].http_headers.A",
        "mcp_tools[2].http_headers.a",
    ]


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=2))
def test_nonsense_is_an_invalid_request_and_nothing_else(
    url: str, name: str, headers: dict[str, str]
) -> None:
    paths: list[str] = []
    with contextlib.suppress(InvalidRequest):
        try:
            validate(request(MCPTool(url, name, headers)), Limits())
        except InvalidRequest as error:
            paths += [problem.path for problem in error.problems]
            raise
    assert all(path.startswith("mcp_tools[0].") for path in paths)


def test_a_tool_may_be_required_when_only_servers_have_any() -> None:
    asked = request(MCPTool(URL, "docs"), tool_choice=ToolChoice("required"))
    assert validate(asked, Limits()) is asked
    assert problems(request(tool_choice=ToolChoice("required")))


def test_servers_are_given_as_tools_or_as_plain_values() -> None:
    plain: Any = {"url": URL, "name": "docs", "allowed_tools": ["search"]}
    built = build_request("hi", {"max_tokens": 9, "mcp_tools": [plain]})
    assert built.mcp_tools == (MCPTool(URL, "docs", allowed_tools=["search"]),)
    wrong: Any = {**plain, "url": 7}
    with pytest.raises(InvalidRequest, match=r"mcp_tools\[0\].url"):
        build_request("hi", {"max_tokens": 9, "mcp_tools": [wrong]})


def test_calls_of_servers_belong_to_the_assistant() -> None:
    call = MCPCall("1", "docs", "search", {}, (Text("\ud83d"),))
    assert problems(request(messages=(user(call),))) == [
        "messages[0].content[0]: a tool call belongs to the assistant, not to the user",
        "messages[0].content[0].content[0]: holds half a character (a lone surrogate)",
    ]
    good = request(messages=(user("a"), assistant(MCPCall("1", "docs", "search", {})), user("b")))
    assert validate(good, Limits()) is good
