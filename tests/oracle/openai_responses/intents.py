"""What a caller may want, said twice: in Penstock's words and in those of OpenAI's client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from openai.types.responses.response_create_params import ResponseCreateParamsBase
from pydantic import BaseModel, Field, TypeAdapter

from penstock import (
    Image,
    MCPCall,
    MCPTool,
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

CHECKED: TypeAdapter[ResponseCreateParamsBase] = TypeAdapter(ResponseCreateParamsBase)
"""Holds the other side of each intent to the types of the client."""

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOSE: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = ToolDefinition("weather", "The weather in a city.", CITY)
WEATHER_WIRE = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": CITY,
    "strict": True,
}
CALL = ToolUse("call_1", "weather", {"city": "Rome"})
CALL_WIRE = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Rome"}',
}
OTHER = ToolUse("call_2", "weather", {"city": "Oslo"})
OTHER_WIRE = {**CALL_WIRE, "call_id": "call_2", "arguments": '{"city":"Oslo"}'}
ASK = {"role": "user", "content": "Weather?"}
PNG = Image(data="aW1n", mime_type="image/png")
PNG_WIRE = {"type": "input_image", "image_url": "data:image/png;base64,aW1n", "detail": "auto"}
THOUGHT = Reasoning("Hm.", signature="enc", meta={"openai_id": "rs_1"})
THOUGHT_WIRE = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "enc",
}


DOCS = MCPTool("https://mcp.example.com/mcp", "docs")
DOCS_WIRE = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://mcp.example.com/mcp",
    "require_approval": "never",
}
LISTED: dict[str, Any] = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "docs",
    "tools": [{"name": "search", "description": "Finds.", "input_schema": CITY}],
}
FAILURE = {"type": "mcp_protocol_error", "code": -32602, "message": "no such page"}
FOUND = MCPCall(
    *("mcp_1", "docs", "search", {"city": "Rome"}),
    (Text("Sunny."),),
    meta={"openai_mcp": {}, "openai_mcp_tools": [LISTED]},
)
FOUND_WIRE = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"city":"Rome"}',
    "output": "Sunny.",
}
LOST = MCPCall(
    id="mcp_2",
    server="docs",
    name="open",
    input={},
    content=(Text("no such page"),),
    is_error=True,
    meta={"openai_mcp": {"error": FAILURE}},
)
LOST_WIRE = {
    "type": "mcp_call",
    "id": "mcp_2",
    "server_label": "docs",
    "name": "open",
    "arguments": "{}",
    "error": FAILURE,
}


def said(text: str) -> dict[str, Any]:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def output(text: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


@dataclass(frozen=True)
class Intent:
    name: str
    ours: dict[str, Any] = field(default_factory=dict[str, Any])
    theirs: dict[str, Any] = field(default_factory=dict[str, Any])
    model: str = "gpt-6-luna"
    thinks: bool = True
    """Models that cannot think are not asked for encrypted thoughts."""


def _history(name: str, messages: tuple[Any, ...], items: list[dict[str, Any]]) -> Intent:
    return Intent(name, {"messages": messages}, {"input": items})


def _tools(name: str, wire: dict[str, Any] | None = None, **ours: Any) -> Intent:
    theirs: dict[str, Any] = {"tools": [WEATHER_WIRE], **(wire or {})}
    return Intent(name, {"tools": (WEATHER,), **ours}, theirs)


def _tool(name: str, schema: dict[str, Any], strict: bool | None, wire: dict[str, Any]) -> Intent:
    tool = ToolDefinition("f", "", schema, strict)
    return Intent(name, {"tools": (tool,)}, {"tools": [{"type": "function", "name": "f", **wire}]})


def _format(name: str, ours: OutputSchema, wire: dict[str, Any], **more: Any) -> Intent:
    form = {"type": "json_schema", "name": "answer", "strict": True, "schema": wire, **more}
    return Intent(name, {"output_schema": ours}, {"text": {"format": form}})


NULLABLE: dict[str, Any] = {**CITY, "properties": {"city": {"type": ["string", "null"]}}}
INTENTS = (
    Intent("a text"),
    Intent("a limit", {"max_tokens": 1000}, {"max_output_tokens": 1000}),
    Intent("a system prompt", {"system_prompt": "Be brief."}, {"instructions": "Be brief."}),
    Intent(
        "a temperature", {"temperature": 0.3}, {"temperature": 0.3}, model="gpt-4.1", thinks=False
    ),
    Intent("a model without thinking", model="gpt-4o", thinks=False),
    Intent(
        "no thinking of one that cannot", {"reasoning_level": "none"}, model="gpt-4o", thinks=False
    ),
    Intent("no thinking", {"reasoning_level": "none"}, {"reasoning": {"effort": "none"}}),
    *(
        Intent(
            f"thinking: {level}",
            {"reasoning_level": level},
            {"reasoning": {"effort": effort, "summary": "auto"}},
        )
        for level, effort in (("low", "low"), ("med", "medium"), ("high", "high"))
    ),
    Intent(
        "the least thinking of gpt-5",
        {"reasoning_level": "none"},
        {"reasoning": {"effort": "minimal"}},
        model="gpt-5-mini",
    ),
    Intent("a user", {"metadata": {"user": "u-1"}}, {"safety_identifier": "u-1"}),
    Intent("a cache key", {"metadata": {"cache": "k-1"}}, {"prompt_cache_key": "k-1"}),
    Intent("caching as it is", {"metadata": {"cache": True}}),
    # Histories.
    _history(
        "turns",
        (user("I am Ada."), assistant("Hello."), user("Who am I?")),
        [
            {"role": "user", "content": "I am Ada."},
            said("Hello."),
            {"role": "user", "content": "Who am I?"},
        ],
    ),
    _history(
        "a system message",
        (system("Be kind."), user("Hi")),
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
    ),
    _history(
        "unicode",
        (user("שלום 👩‍👩‍👧 \u2028"),),
        [{"role": "user", "content": "שלום 👩‍👩‍👧 \u2028"}],
    ),
    _history(
        "a picture",
        (user("What?", PNG),),
        [{"role": "user", "content": [text("What?"), PNG_WIRE]}],
    ),
    _history(
        "a picture by its address",
        (user(Image(url="https://x/c.png")),),
        [{"role": "user", "content": [{**PNG_WIRE, "image_url": "https://x/c.png"}]}],
    ),
    _history(
        "a picture in detail",
        (user(Image(data="aW1n", mime_type="image/png", meta={"detail": "high"})),),
        [{"role": "user", "content": [{**PNG_WIRE, "detail": "high"}]}],
    ),
    _history(
        "several pictures",
        (user(PNG, "and", PNG),),
        [{"role": "user", "content": [PNG_WIRE, text("and"), PNG_WIRE]}],
    ),
    _history(
        "a result",
        (user("Weather?"), assistant(CALL), user(ToolResult("call_1", (Text("Sunny"),)))),
        [ASK, CALL_WIRE, output("Sunny")],
    ),
    _history(
        "an empty result",
        (user("Weather?"), assistant(CALL), user(ToolResult("call_1"))),
        [ASK, CALL_WIRE, output("")],
    ),
    _history(
        "a structured result",
        (
            user("Weather?"),
            assistant(CALL),
            user(ToolResult("call_1", structured_content={"t": 1})),
        ),
        [ASK, CALL_WIRE, output('{"t":1}')],
    ),
    _history(
        "a failure",
        (
            user("Weather?"),
            assistant(CALL),
            user(ToolResult("call_1", (Text("down"),), is_error=True)),
        ),
        [ASK, CALL_WIRE, output("Error: down")],
    ),
    _history(
        "a picture as a result",
        (user("Weather?"), assistant(CALL), user(ToolResult("call_1", (Text("Map:"), PNG)))),
        [ASK, CALL_WIRE, output([text("Map:"), PNG_WIRE])],
    ),
    _history(
        "parallel calls",
        (
            user("Weather?"),
            assistant(CALL, OTHER),
            user(ToolResult("call_1", (Text("a"),)), ToolResult("call_2", (Text("b"),))),
        ),
        [ASK, CALL_WIRE, OTHER_WIRE, output("a"), output("b", "call_2")],
    ),
    _history(
        "words before a call",
        (user("Weather?"), assistant("Let me see.", CALL), user(ToolResult("call_1"))),
        [ASK, said("Let me see."), CALL_WIRE, output("")],
    ),
    _history(
        "words after a result",
        (user("Weather?"), assistant(CALL), user(ToolResult("call_1"), "And now?")),
        [ASK, CALL_WIRE, output(""), {"role": "user", "content": "And now?"}],
    ),
    _history(
        "thinking before a call",
        (user("Weather?"), assistant(THOUGHT, CALL), user(ToolResult("call_1"))),
        [ASK, THOUGHT_WIRE, CALL_WIRE, output("")],
    ),
    _history(
        "thinking before an answer",
        (user("Weather?"), assistant(THOUGHT, "Sunny."), user("Sure?")),
        [ASK, THOUGHT_WIRE, said("Sunny."), {"role": "user", "content": "Sure?"}],
    ),
    _history(
        "the phase of a text",
        (user("Hi"), assistant(Text("Wait.", meta={"openai_phase": "commentary"})), user("?")),
        [
            {"role": "user", "content": "Hi"},
            {**said("Wait."), "phase": "commentary"},
            {"role": "user", "content": "?"},
        ],
    ),
    # Tools.
    _tools("a tool"),
    _tools("tools at will", {"tool_choice": "auto"}, tool_choice=ToolChoice("auto")),
    _tools("some tool", {"tool_choice": "required"}, tool_choice=ToolChoice("required")),
    _tools("no tool", {"tool_choice": "none"}, tool_choice=ToolChoice("none")),
    _tools(
        "one tool",
        {"tool_choice": {"type": "function", "name": "weather"}},
        tool_choice=ToolChoice.tool("weather"),
    ),
    _tools("one call at a time", {"parallel_tool_calls": False}, parallel_tools=False),
    _tools("calls side by side", {"parallel_tool_calls": True}, parallel_tools=True),
    _tool("a loose tool", LOOSE, None, {"parameters": LOOSE, "strict": False}),
    _tool("a tool that wants to be loose", CITY, False, {"parameters": CITY, "strict": False}),
    _tool("a tool that wants to be strict", LOOSE, True, {"parameters": NULLABLE, "strict": True}),
    _tool(
        "a tool without arguments",
        {"type": "object"},
        None,
        {"parameters": {"type": "object", "properties": {}}, "strict": False},
    ),
    # Structured answers.
    _format("a schema", OutputSchema(CITY), CITY),
    _format("a loose schema", OutputSchema(CITY, strict=False), CITY, strict=False),
    Intent(
        "a schema with a name",
        {"output_schema": OutputSchema(CITY, "place", "Where")},
        {
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "place",
                    "description": "Where",
                    "schema": CITY,
                    "strict": True,
                }
            }
        },
    ),
    _format("an optional property", OutputSchema(LOOSE), NULLABLE),
    Intent("an MCP server", {"mcp_tools": (DOCS,)}, {"tools": [DOCS_WIRE]}),
    Intent(
        "MCP servers beside a function",
        {
            "tools": (WEATHER,),
            "mcp_tools": (
                MCPTool(DOCS.url, "docs", {"Authorization": "Bearer tok", "X-Team": "a"}),
                MCPTool("http://10.0.0.1:8000/", "wiki", {"authorization": "Basic dTpw"}),
            ),
            "tool_choice": ToolChoice("required"),
            "parallel_tools": False,
        },
        {
            "tools": [
                WEATHER_WIRE,
                {**DOCS_WIRE, "authorization": "tok", "headers": {"X-Team": "a"}},
                {
                    **DOCS_WIRE,
                    "server_label": "wiki",
                    "server_url": "http://10.0.0.1:8000/",
                    "headers": {"authorization": "Basic dTpw"},
                },
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    Intent(
        "some tools of an MCP server",
        {"mcp_tools": (MCPTool(DOCS.url, "docs", allowed_tools=["search", "open"]),)},
        {"tools": [{**DOCS_WIRE, "allowed_tools": ["search", "open"]}]},
    ),
    Intent(
        "MCP calls go back with the list of tools",
        {
            "messages": (user("Weather?"), assistant(THOUGHT, FOUND, LOST, "Sunny."), user("So?")),
            "mcp_tools": (DOCS,),
        },
        {
            "input": [
                *(ASK, LISTED, THOUGHT_WIRE, FOUND_WIRE, LOST_WIRE, said("Sunny.")),
                {"role": "user", "content": "So?"},
            ],
            "tools": [DOCS_WIRE],
        },
    ),
    Intent(
        "MCP calls go back without a server, and without its tools",
        {"messages": (user("Weather?"), assistant(FOUND, "Sunny."), user("So?"))},
        {"input": [ASK, FOUND_WIRE, said("Sunny."), {"role": "user", "content": "So?"}]},
    ),
    Intent(
        "everything at once",
        {
            "system_prompt": "Be brief.",
            "tools": (WEATHER,),
            "tool_choice": ToolChoice("auto"),
            "parallel_tools": True,
            "output_schema": OutputSchema(CITY),
            "reasoning_level": "high",
            "metadata": {"user": "u", "cache": "c"},
        },
        {
            "instructions": "Be brief.",
            "tools": [WEATHER_WIRE],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "text": {
                "format": {"type": "json_schema", "name": "answer", "schema": CITY, "strict": True}
            },
            "reasoning": {"effort": "high", "summary": "auto"},
            "safety_identifier": "u",
            "prompt_cache_key": "c",
        },
    ),
)


class Place(BaseModel):
    """A place."""

    city: str
    country: str = Field(description="Its country.")


class Trip(BaseModel):
    stops: list[Place]
    kind: Literal["work", "fun"]
    price: float | None
    days: int = Field(ge=1, le=30)


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Choice(BaseModel):
    what: Place | Trip
    sure: bool


MODELS: tuple[type[BaseModel], ...] = (Place, Trip, Tree, Choice)
