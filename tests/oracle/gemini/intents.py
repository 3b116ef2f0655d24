"""What is asked, once in Penstock's words and once in those of the official client."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.genai import types

from penstock import (
    Audio,
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
from penstock.providers.gemini.contents import CONTINUATION, SIGNATURE


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing to ask for; `config` and `contents` are arguments of `generate_content`."""

    name: str
    ours: dict[str, Any] = field(default_factory=dict[str, Any])
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    contents: Any = "Hello"
    model: str = "gemini-3.8-flash"
    api_version: str = "v1beta"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of our request."""
        return {"messages": (user("Hello"),), "max_tokens": 64, **self.ours}


IMAGE = bytes(range(240, 256)) + b"image?>"
"""Bytes whose base64 differs between the plain and the url-safe alphabet."""
SOUND = b"RIFF\xff\xfeWAVE"
SIGNED = b"\xfb\xff opaque"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


PICTURE = Image(data=_b64(IMAGE), mime_type="image/png")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 7},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "The weather in a city.", PARAMETERS)
CLOCK = ToolDefinition("clock", "", {"type": "object", "properties": {}})
WEATHER_SDK = types.FunctionDeclaration(
    name="weather", description="The weather in a city.", parameters_json_schema=PARAMETERS
)
CLOCK_SDK = types.FunctionDeclaration(
    name="clock", parameters_json_schema={"type": "object", "properties": {}}
)
TOOLS_SDK = [types.Tool(function_declarations=[WEATHER_SDK, CLOCK_SDK])]
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"people": {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 1}},
    "$defs": {"P": PERSON},
}
TREE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
    },
}


def _said(role: str, *parts: types.Part) -> types.Content:
    return types.Content(role=role, parts=list(parts))


def _text(text: str, **fields: Any) -> types.Part:
    return types.Part(text=text, **fields)


def _call(id: str, name: str, args: dict[str, Any], **fields: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=args), **fields)


def _result(id: str, name: str, response: dict[str, Any], **fields: Any) -> types.Part:
    return types.Part(
        function_response=types.FunctionResponse(id=id, name=name, response=response, **fields)
    )


HELLO_SDK = _said("user", _text("Hello"))
USE = ToolUse("c1", "weather", {"city": "Rome"}, meta={SIGNATURE: _b64(SIGNED)})
USE_SDK = _call("c1", "weather", {"city": "Rome"}, thought_signature=SIGNED)


def _results(
    name: str, results: tuple[ToolResult, ...], *wire: types.Part, two: bool = False
) -> Intent:
    """A round of tools: the calls, and these results."""
    uses = (USE, ToolUse("c2", "clock", {})) if two else (USE,)
    calls = (USE_SDK, _call("c2", "clock", {})) if two else (USE_SDK,)
    return Intent(
        name,
        {"messages": (user("Hello"), assistant(*uses), user(*results)), "tools": (WEATHER, CLOCK)},
        {"tools": TOOLS_SDK},
        [HELLO_SDK, _said("model", *calls), _said("user", *wire)],
    )


def _level(model: str, level: str, **thinking: Any) -> Intent:
    return Intent(
        f"thinking {level} of {model}",
        {"reasoning_level": level},
        {"thinking_config": types.ThinkingConfig(**thinking)},
        model=model,
    )


def _choice(name: str, choice: ToolChoice, **calling: Any) -> Intent:
    config = types.FunctionCallingConfig(**calling)
    return Intent(
        f"tool choice: {name}",
        {"tools": (WEATHER, CLOCK), "tool_choice": choice},
        {"tools": TOOLS_SDK, "tool_config": types.ToolConfig(function_calling_config=config)},
    )


def _schema(name: str, schema: dict[str, Any]) -> Intent:
    return Intent(
        f"schema: {name}",
        {"output_schema": OutputSchema(schema)},
        {"response_mime_type": "application/json", "response_json_schema": schema},
    )


def _intents() -> Iterator[Intent]:
    yield Intent("hello")
    yield Intent("version 1", api_version="v1")
    yield Intent("a full model name", model="models/gemini-3.8-flash")
    yield Intent("a tuned model", model="tunedModels/mine-1")
    yield Intent("unicode", {"messages": (user("שלום 👩‍👧 \u2028"),)}, contents="שלום 👩‍👧 \u2028")
    yield Intent("temperature", {"temperature": 0.25}, {"temperature": 0.25})
    yield Intent("coldest", {"temperature": 0.0}, {"temperature": 0.0})
    yield Intent("stops", {"stop_sequences": ("a", "\n")}, {"stop_sequences": ["a", "\n"]})
    yield Intent("system", {"system_prompt": "Be."}, {"system_instruction": "Be."})
    yield Intent(
        "system messages",
        {"system_prompt": "Be.", "messages": (system("Kind."), user("Hello"))},
        {"system_instruction": "Be.\n\nKind."},
    )
    yield Intent(
        "turns",
        {"messages": (user("A"), assistant("B"), user("C"))},
        contents=[_said("user", _text("A")), _said("model", _text("B")), _said("user", _text("C"))],
    )
    yield Intent(
        "two user turns",
        {"messages": (user("A"), user("B"))},
        contents=[_said("user", _text("A")), _said("user", _text("B"))],
    )
    yield Intent(
        "several texts",
        {"messages": (user("A", "B"),)},
        contents=[_said("user", _text("A"), _text("B"))],
    )
    yield Intent(
        "picture",
        {"messages": (user("What?", PICTURE),)},
        contents=[
            _said("user", _text("What?"), types.Part.from_bytes(data=IMAGE, mime_type="image/png"))
        ],
    )
    for ending, kind in (("png", "image/png"), ("jpg", "image/jpeg"), ("webp", "image/webp")):
        yield Intent(
            f"picture by address: {ending}",
            {"messages": (user(Image(url=f"https://x.org/a.{ending}")),)},
            contents=[_said("user", types.Part.from_uri(file_uri=f"https://x.org/a.{ending}"))],
        )
        yield Intent(
            f"picture by address and type: {ending}",
            {"messages": (user(Image(url="https://x.org/a", mime_type=kind)),)},
            contents=[
                _said("user", types.Part.from_uri(file_uri="https://x.org/a", mime_type=kind))
            ],
        )
    yield Intent(
        "sound",
        {"messages": (user(Audio(_b64(SOUND), "audio/wav"), "What?"),)},
        contents=[
            _said("user", types.Part.from_bytes(data=SOUND, mime_type="audio/wav"), _text("What?"))
        ],
    )
    yield Intent("tools", {"tools": (WEATHER, CLOCK)}, {"tools": TOOLS_SDK})
    yield _choice("auto", ToolChoice("auto"), mode="AUTO")
    yield _choice("required", ToolChoice("required"), mode="ANY")
    yield _choice("none", ToolChoice("none"), mode="NONE")
    yield _choice("one", ToolChoice.tool("clock"), mode="ANY", allowed_function_names=["clock"])
    sunny, noon = Text("sunny"), Text("12:00")
    yield _results(
        "result", (ToolResult("c1", (sunny,)),), _result("c1", "weather", {"output": "sunny"})
    )
    yield _results(
        "results",
        (ToolResult("c1", (sunny,)), ToolResult("c2", (noon,))),
        _result("c1", "weather", {"output": "sunny"}),
        _result("c2", "clock", {"output": "12:00"}),
        two=True,
    )
    yield _results(
        "failed result",
        (ToolResult("c1", (Text("down"),), is_error=True),),
        _result("c1", "weather", {"error": "down"}),
    )
    yield _results("empty result", (ToolResult("c1"),), _result("c1", "weather", {"output": ""}))
    yield _results(
        "result with a picture",
        (ToolResult("c1", (Text("see"), PICTURE)),),
        _result(
            "c1",
            "weather",
            {"output": "see"},
            parts=[types.FunctionResponsePart.from_bytes(data=IMAGE, mime_type="image/png")],
        ),
    )
    yield Intent(
        "signed thinking",
        {
            "messages": (
                user("A"),
                assistant(
                    Reasoning("why", signature=_b64(SIGNED)),
                    Text("B", meta={SIGNATURE: _b64(SIGNED)}),
                ),
                user("C"),
            )
        },
        contents=[
            _said("user", _text("A")),
            _said(
                "model",
                _text("why", thought=True, thought_signature=SIGNED),
                _text("B", thought_signature=SIGNED),
            ),
            _said("user", _text("C")),
        ],
    )
    yield _schema("object", PERSON)
    yield _schema("references", NESTED)
    yield _schema("recursion", TREE)
    yield _schema("list", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}})
    yield _schema("choice", {"anyOf": [PERSON, {"type": "null"}]})
    for level, word in (("low", "LOW"), ("med", "MEDIUM"), ("high", "HIGH")):
        yield _level("gemini-4-argon", level, thinking_level=word, include_thoughts=True)
    yield _level("gemini-4-argon", "none", thinking_level="MINIMAL")
    for level, budget in (("low", 1024), ("med", 8192), ("high", 24576)):
        yield _level("gemini-2.5-flash", level, thinking_budget=budget, include_thoughts=True)
    yield _level("gemini-2.5-flash", "none", thinking_budget=0)
    yield _level("gemini-2.5-pro", "high", thinking_budget=32768, include_thoughts=True)
    yield Intent(
        "continuation",
        {"messages": (user("Hello"), Message("assistant", (), meta={CONTINUATION: _b64(SIGNED)}))},
        {"continuation_token": SIGNED},
    )
    yield from _servers()
    yield Intent(
        "everything",
        {
            "system_prompt": "Be.",
            "temperature": 1.5,
            "stop_sequences": ("END",),
            "tools": (WEATHER,),
            "tool_choice": ToolChoice("required"),
            "reasoning_level": "high",
            "max_tokens": 9,
        },
        {
            "system_instruction": "Be.",
            "temperature": 1.5,
            "stop_sequences": ["END"],
            "tools": [types.Tool(function_declarations=[WEATHER_SDK])],
            "tool_config": types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(mode="ANY")  # pyright: ignore[reportArgumentType]
            ),
            "thinking_config": types.ThinkingConfig(
                thinking_level="HIGH",  # pyright: ignore[reportArgumentType]
                include_thoughts=True,
            ),
            "max_output_tokens": 9,
        },
    )


def _server(name: str = "docs", **headers: str) -> types.McpServer:
    transport = types.StreamableHttpTransport(url=f"https://{name}.example.com/mcp")
    if headers:
        transport.headers = headers
    return types.McpServer(name=name, streamable_http_transport=transport)


def _servers() -> Iterator[Intent]:
    docs = MCPTool("https://docs.example.com/mcp", "docs")
    shown = types.ToolConfig(include_server_side_tool_invocations=True)
    tools = [types.Tool(mcp_servers=[_server()])]
    yield Intent("an MCP server", {"mcp_tools": (docs,)}, {"tools": tools, "tool_config": shown})
    yield Intent(
        "MCP servers beside functions",
        {
            "tools": (WEATHER,),
            "mcp_tools": (
                MCPTool(docs.url, "docs", {"Authorization": "Bearer tok"}),
                MCPTool("https://wiki.example.com/mcp", "wiki"),
            ),
            "tool_choice": ToolChoice("auto"),
        },
        {
            "tools": [
                types.Tool(mcp_servers=[_server(Authorization="Bearer tok"), _server("wiki")]),
                types.Tool(function_declarations=[WEATHER_SDK]),
            ],
            "tool_config": types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(mode="AUTO"),  # pyright: ignore[reportArgumentType]
                include_server_side_tool_invocations=True,
            ),
        },
    )
    call: dict[str, Any] = {"id": "t1", "args": {"city": "Rome"}}
    answer: dict[str, Any] = {"id": "t1", "response": {"content": [{"type": "text", "text": "a"}]}}
    made = MCPCall(
        id="t1",
        server="",
        name="",
        input={"city": "Rome"},
        content=(Text("a"),),
        meta={
            "gemini/toolCall": {"toolCall": call, "thoughtSignature": _b64(SIGNED)},
            "gemini/toolResponse": {"toolResponse": answer},
        },
    )
    yield Intent(
        "MCP calls go back",
        {"messages": (user("Hi"), assistant(made, "Sunny."), user("So?")), "mcp_tools": (docs,)},
        {"tools": tools, "tool_config": shown},
        contents=[
            types.Content(role="user", parts=[types.Part(text="Hi")]),
            types.Content(
                role="model",
                parts=[
                    types.Part(tool_call=types.ToolCall(**call), thought_signature=SIGNED),
                    types.Part(tool_response=types.ToolResponse(**answer)),
                    types.Part(text="Sunny."),
                ],
            ),
            types.Content(role="user", parts=[types.Part(text="So?")]),
        ],
    )


INTENTS = tuple(_intents())
