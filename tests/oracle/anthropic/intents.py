"""What is asked, once in the official SDK's words and once in Penstock's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from penstock import (
    Image,
    MCPCall,
    MCPTool,
    Message,
    OutputSchema,
    Reasoning,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    ToolUse,
    assistant,
    system,
    user,
)

NEW = "claude-opus-4-8"
OLD = "claude-haiku-4-5"
HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WIRE_TOOL: dict[str, Any] = {"name": "weather", "description": "Now.", "input_schema": CITY}
WIRE_CLOCK: dict[str, Any] = {"name": "clock", "input_schema": {"type": "object"}}
TOOL = ToolDefinition("weather", "Now.", CITY)
CLOCK = ToolDefinition("clock")
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
URL = "https://example.com/cat.png"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
USE = ToolUse("toolu_1", "weather", {"city": "Rome"})
ASKED: dict[str, Any] = {"role": "user", "content": "Weather?"}


DOCS = MCPTool("https://mcp.example.com/mcp", "docs")
DOCS_SERVER = {"type": "url", "url": "https://mcp.example.com/mcp", "name": "docs"}
DOCS_TOOLS = {"type": "mcp_toolset", "mcp_server_name": "docs"}
LISTED: dict[str, Any] = {
    "type": "mcp_tool_listing",
    "mcp_server_name": "docs",
    "tools": [{"name": "search", "description": "Finds.", "input_schema": CITY}],
}
MADE = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "search",
    "server_name": "docs",
    "input": {"city": "Rome"},
}
ANSWERED: dict[str, Any] = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_1",
    "is_error": False,
    "content": [{"type": "text", "text": "Sunny."}],
}
FOUND = MCPCall(
    id="mcptoolu_1",
    server="docs",
    name="search",
    input={"city": "Rome"},
    content=(Text("Sunny."),),
    meta={"anthropic_mcp": "answered", "anthropic_mcp_tools": [LISTED]},
)


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)


class Team(BaseModel):
    """Some people."""

    lead: Person | None
    members: list[Person] = Field(min_length=2, description="Everybody.")
    mail: str = Field(pattern=r".+@.+")


ADA = Person(name="Ada", age=36)


@dataclass(frozen=True, slots=True)
class Intent:
    """One request in both languages."""

    id: str
    sdk: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ours: Mapping[str, Any] = field(default_factory=dict[str, Any])
    messages: tuple[Message, ...] = (user("Hi"),)
    model: str = NEW
    version: str | None = "2026-10-21"
    parse: type[BaseModel] | None = None
    """The type that the SDK makes the schema of."""
    answer: str = "Hi"
    beta: bool = False
    """Whether it is a part of the SDK's `beta.messages`."""


def _history(id: str, content: Any, result: ToolResult, **block: Any) -> Intent:
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", **block}
    if content is not None:
        answer["content"] = content
    wire = [ASKED, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [answer]}]
    messages = (user("Weather?"), assistant(USE), user(result))
    return Intent(id, {"messages": wire, "tools": [WIRE_TOOL]}, {"tools": (TOOL,)}, messages)


def _thought(id: str, blocks: list[dict[str, Any]], *parts: Reasoning) -> Intent:
    wire = [
        *HI,
        {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Yes"}]},
        {"role": "user", "content": "Sure?"},
    ]
    messages = (user("Hi"), assistant(*parts, "Yes"), user("Sure?"))
    return Intent(id, {"messages": wire}, messages=messages)


def _choice(id: str, wire: dict[str, Any], **ours: Any) -> Intent:
    both = [WIRE_TOOL, WIRE_CLOCK]
    return Intent(id, {"tools": both, "tool_choice": wire}, {"tools": (TOOL, CLOCK), **ours})


def _thinking(id: str, level: str, wire: Mapping[str, Any], model: str, tokens: int) -> Intent:
    ours = {"reasoning_level": level, "max_tokens": tokens}
    return Intent(id, {"max_tokens": tokens, **wire}, ours, model=model)


def _adaptive(effort: str, *, shown: bool = True) -> dict[str, Any]:
    display = {"display": "summarized"} if shown else {}
    return {"thinking": {"type": "adaptive", **display}, "output_config": {"effort": effort}}


def _budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _off(kind: str = "disabled") -> dict[str, Any]:
    return {"thinking": {"type": kind}}


def _schema(id: str, example: BaseModel) -> Intent:
    kind = type(example)
    schema = OutputSchema(kind.model_json_schema())
    answer = example.model_dump_json()
    return Intent(id, ours={"output_schema": schema}, parse=kind, answer=answer)


def _parts(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


CACHE = {"type": "ephemeral"}
WORD = {"type": "text", "text": "What is this?"}
LINK = {"type": "image", "source": {"type": "url", "url": URL}}
PICTURE = {"type": "image", "source": PNG}
IMAGE = Image(data=PNG["data"], mime_type="image/png")

INTENTS: tuple[Intent, ...] = (
    Intent("one text"),
    Intent(
        "unicode", {"messages": [{"role": "user", "content": "Grüße 🐈"}]}, {}, (user("Grüße 🐈"),)
    ),
    Intent("token limit", {"max_tokens": 1}, {"max_tokens": 1}),
    Intent("old version", version=None),
    Intent(
        "temperature, on the old version",
        {"extra_body": {"temperature": 0.25}},
        {"temperature": 0.25},
        model=OLD,
        version=None,
    ),
    Intent("one stop sequence", {"stop_sequences": ["END"]}, {"stop_sequences": ("END",)}),
    Intent("stop sequences", {"stop_sequences": ["a", "b"]}, {"stop_sequences": ("a", "b")}),
    Intent("system prompt", {"system": "Be brief."}, {"system_prompt": "Be brief."}),
    Intent(
        "system message",
        {"system": "Be brief.\n\nBe kind."},
        {"system_prompt": "Be brief."},
        (system("Be kind."), user("Hi")),
    ),
    Intent(
        "cached system prompt",
        {"system": [{"type": "text", "text": "Long.", "cache_control": CACHE}]},
        {"system_prompt": "Long.", "metadata": {"cache": True}},
    ),
    Intent("cached prompt", {"cache_control": CACHE}, {"metadata": {"cache": True}}),
    Intent("user id", {"metadata": {"user_id": "u1"}}, {"metadata": {"user": "u1"}}),
    Intent(
        "history",
        {"messages": [*HI, {"role": "assistant", "content": "Hello"}, *HI]},
        messages=(user("Hi"), assistant("Hello"), user("Hi")),
    ),
    Intent(
        "prefill",
        {"messages": [*HI, {"role": "assistant", "content": "Well"}]},
        messages=(user("Hi"), assistant("Well")),
        model=OLD,
    ),
    Intent(
        "two texts in a turn",
        _parts(WORD, {"type": "text", "text": "Say."}),
        messages=(user("What is this?", "Say."),),
    ),
    Intent("image by bytes", _parts(WORD, PICTURE), messages=(user("What is this?", IMAGE),)),
    Intent("image by url", _parts(LINK, WORD), messages=(user(Image(url=URL), "What is this?"),)),
    Intent("two images", _parts(LINK, PICTURE), messages=(user(Image(url=URL), IMAGE),)),
    Intent("a tool", {"tools": [WIRE_TOOL]}, {"tools": (TOOL,)}),
    Intent("two tools", {"tools": [WIRE_TOOL, WIRE_CLOCK]}, {"tools": (TOOL, CLOCK)}),
    Intent(
        "a strict tool",
        {
            "tools": [
                {
                    "name": "f",
                    "strict": True,
                    "input_schema": {**CITY, "additionalProperties": False},
                }
            ]
        },
        {"tools": (ToolDefinition("f", input_schema=CITY, strict=True),)},
    ),
    Intent(
        "a tool that is not strict",
        {"tools": [{**WIRE_TOOL, "strict": False}]},
        {"tools": (ToolDefinition("weather", "Now.", CITY, strict=False),)},
    ),
    _choice("choice auto", {"type": "auto"}, tool_choice=ToolChoice("auto")),
    _choice("choice required", {"type": "any"}, tool_choice=ToolChoice("required")),
    _choice("choice none", {"type": "none"}, tool_choice=ToolChoice("none")),
    _choice("one tool", {"type": "tool", "name": "clock"}, tool_choice=ToolChoice.tool("clock")),
    _choice(
        "no parallel calls",
        {"type": "auto", "disable_parallel_tool_use": True},
        parallel_tools=False,
    ),
    _choice(
        "parallel calls", {"type": "auto", "disable_parallel_tool_use": False}, parallel_tools=True
    ),
    _choice(
        "one required call",
        {"type": "any", "disable_parallel_tool_use": True},
        tool_choice=ToolChoice("required"),
        parallel_tools=False,
    ),
    _history("tool result", "Sunny", ToolResult("toolu_1", (Text("Sunny"),))),
    _history("tool result without a word", None, ToolResult("toolu_1")),
    _history(
        "failed tool", "Down", ToolResult("toolu_1", (Text("Down"),), is_error=True), is_error=True
    ),
    _history(
        "structured tool result",
        '{"sky":"blue"}',
        ToolResult("toolu_1", structured_content={"sky": "blue"}),
    ),
    _history(
        "tool result with a picture",
        [{"type": "text", "text": "See"}, PICTURE],
        ToolResult("toolu_1", (Text("See"), IMAGE)),
    ),
    Intent(
        "parallel results and a word",
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": [CALL, {**CALL, "id": "toolu_2"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"},
                        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "b"},
                        {"type": "text", "text": "So?"},
                    ],
                },
            ],
            "tools": [WIRE_TOOL],
        },
        {"tools": (TOOL,)},
        (
            user("Weather?"),
            assistant(USE, ToolUse("toolu_2", "weather", {"city": "Rome"})),
            user("So?", ToolResult("toolu_1", (Text("a"),)), ToolResult("toolu_2", (Text("b"),))),
        ),
    ),
    Intent(
        "an MCP server",
        {"mcp_servers": [DOCS_SERVER], "tools": [DOCS_TOOLS]},
        {"mcp_tools": (DOCS,)},
        beta=True,
    ),
    Intent(
        "MCP servers beside a function",
        {
            "mcp_servers": [
                {**DOCS_SERVER, "authorization_token": "tok"},
                {"type": "url", "url": "https://wiki.example.com/", "name": "wiki"},
            ],
            "tools": [WIRE_TOOL, DOCS_TOOLS, {**DOCS_TOOLS, "mcp_server_name": "wiki"}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
        {
            "tools": (TOOL,),
            "mcp_tools": (
                MCPTool(DOCS.url, "docs", {"authorization": "bearer tok"}),
                MCPTool("https://wiki.example.com/", "wiki"),
            ),
            "tool_choice": ToolChoice("required"),
            "parallel_tools": False,
        },
        beta=True,
    ),
    Intent(
        "some tools of an MCP server",
        {
            "mcp_servers": [DOCS_SERVER],
            "tools": [
                {
                    **DOCS_TOOLS,
                    "default_config": {"enabled": False},
                    "configs": {"search": {"enabled": True}, "open": {"enabled": True}},
                }
            ],
        },
        {"mcp_tools": (MCPTool(DOCS.url, "docs", allowed_tools=["search", "open"]),)},
        beta=True,
    ),
    Intent(
        "MCP calls go back",
        {
            "mcp_servers": [DOCS_SERVER],
            "tools": [DOCS_TOOLS],
            "messages": [
                ASKED,
                {
                    "role": "assistant",
                    "content": [LISTED, MADE, ANSWERED, {"type": "text", "text": "Sunny."}],
                },
                {"role": "user", "content": "So?"},
            ],
        },
        {"mcp_tools": (DOCS,)},
        (user("Weather?"), assistant(FOUND, "Sunny."), user("So?")),
        beta=True,
    ),
    Intent(
        "MCP calls go back without the server",
        {
            "messages": [
                ASKED,
                {"role": "assistant", "content": [LISTED, MADE, ANSWERED]},
                {"role": "user", "content": "So?"},
            ],
        },
        {},
        (user("Weather?"), assistant(FOUND), user("So?")),
        beta=True,
    ),
    _thought(
        "thinking goes back",
        [{"type": "thinking", "thinking": "Hm", "signature": "s=="}],
        Reasoning(text="Hm", signature="s=="),
    ),
    _thought(
        "hidden thinking goes back",
        [{"type": "thinking", "thinking": "", "signature": "s=="}],
        Reasoning(signature="s=="),
    ),
    _thought(
        "redacted thinking goes back",
        [{"type": "redacted_thinking", "data": "x=="}],
        Reasoning(signature="x==", redacted=True),
    ),
    _thought("thinking of others is left out", [], Reasoning(text="Hm")),
    _thinking("low effort", "low", _adaptive("low"), NEW, 500),
    _thinking("medium effort", "med", _adaptive("medium"), "claude-sonnet-5-5", 500),
    _thinking("high effort", "high", _adaptive("high"), "claude-opus-5-5", 500),
    _thinking("effort on 4.6", "high", _adaptive("high", shown=False), "claude-sonnet-4-6", 500),
    _thinking("low budget", "low", _budget(1024), OLD, 20000),
    _thinking("medium budget", "med", _budget(4096), OLD, 20000),
    _thinking("high budget", "high", _budget(16384), OLD, 20000),
    _thinking("budget within the limit", "high", _budget(1999), OLD, 2000),
    _thinking("no thinking", "none", _off(), NEW, 500),
    _thinking("no thinking on an old model", "none", _off(), OLD, 500),
    _thinking("thinking between tools", "none", _off("between_tools"), "claude-sonnet-5-5", 500),
    _schema("structured", ADA),
    _schema(
        "structured with limits, references and null",
        Team(lead=None, members=[ADA, ADA], mail="a@b"),
    ),
)
