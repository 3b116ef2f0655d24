"""What is asked, once in Penstock's words and once in those of the official client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock import (
    Image,
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


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing to ask for; `theirs` are the arguments of `AsyncClient.chat`."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    model: str = "llama3.2"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Sampling options of the official client, beside `num_predict`."""


HELLO = {"role": "user", "content": "Hello"}
PNG = "iVBORw0KGgo="
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer"}},
        "note": {"type": ["string", "null"]},
    },
    "required": ["city"],
}
WEATHER = ToolDefinition("weather", "The weather in a city.", PARAMETERS)
CLOCK = ToolDefinition("clock", "The time.", {"type": "object", "properties": {}})
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"people": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
    "$defs": {"P": SCHEMA},
}
USE = ToolUse("c1", "weather", {"city": "Bern", "days": [1, 2]})
TIME = ToolUse("c2", "clock", {})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    return {"type": "function", "function": function}


def _call(use: ToolUse) -> dict[str, Any]:
    return {"function": {"name": use.name, "arguments": use.input}}


def _result(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_name": name, "content": content}


def _said(name: str, ours: tuple[Any, ...], theirs: list[dict[str, Any]]) -> Intent:
    return Intent(name, {"messages": ours}, {"messages": theirs})


def _optional(name: str, ours: dict[str, Any], **options: Any) -> Intent:
    return Intent(name, ours, {}, options=options)


CALLED = {"role": "assistant", "tool_calls": [_call(USE)]}
BOTH = {"role": "assistant", "tool_calls": [_call(USE), _call(TIME)]}

INTENTS: tuple[Intent, ...] = (
    Intent("hello", {}, {}),
    Intent("another model", {}, {}, model="hf.co/someone/model:Q4_K_M"),
    _optional("temperature", {"temperature": 0.7}, temperature=0.7),
    _optional("cold", {"temperature": 0.0}, temperature=0.0),
    _optional("one stop", {"stop_sequences": ("END",)}, stop=["END"]),
    _optional("stops", {"stop_sequences": ("a", "\n", "é")}, stop=["a", "\n", "é"]),
    _optional(
        "all options",
        {"temperature": 1.5, "stop_sequences": ("x",)},
        temperature=1.5,
        stop=["x"],
    ),
    Intent("context", {}, {}, settings={"context": 8192}, options={"num_ctx": 8192}),
    Intent("no thinking", {"reasoning_level": "none"}, {"think": False}),
    Intent("thinking", {"reasoning_level": "high"}, {"think": True}, model="qwen3"),
    Intent("low", {"reasoning_level": "low"}, {"think": "low"}, model="gpt-oss:20b"),
    Intent("medium", {"reasoning_level": "med"}, {"think": "medium"}, model="gpt-oss:20b"),
    Intent("high", {"reasoning_level": "high"}, {"think": "high"}, model="gpt-oss:120b"),
    Intent("schema", {"output_schema": OutputSchema(SCHEMA)}, {"format": SCHEMA}),
    Intent("nested schema", {"output_schema": OutputSchema(NESTED)}, {"format": NESTED}),
    Intent("a tool", {"tools": (WEATHER,)}, {"tools": [_tool(WEATHER)]}),
    Intent("tools", {"tools": (WEATHER, CLOCK)}, {"tools": [_tool(WEATHER), _tool(CLOCK)]}),
    Intent(
        "tools, freely",
        {"tools": (WEATHER,), "tool_choice": ToolChoice("auto")},
        {"tools": [_tool(WEATHER)]},
    ),
    Intent("no tools", {"tools": (WEATHER,), "tool_choice": ToolChoice("none")}, {}),
    Intent(
        "tools and thinking",
        {"tools": (CLOCK,), "reasoning_level": "low"},
        {"tools": [_tool(CLOCK)], "think": True},
    ),
    Intent(
        "tools and schema",
        {"tools": (CLOCK,), "output_schema": OutputSchema(SCHEMA)},
        {"tools": [_tool(CLOCK)], "format": SCHEMA},
    ),
    Intent(
        "system prompt",
        {"system_prompt": "Be brief."},
        {"messages": [{"role": "system", "content": "Be brief."}, HELLO]},
    ),
    _said(
        "system message",
        (system("Be kind."), user("Hello")),
        [{"role": "system", "content": "Be kind."}, HELLO],
    ),
    _said(
        "history",
        (user("Hello"), assistant("Hi."), user("Bye")),
        [HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Bye"}],
    ),
    _said(
        "prefill",
        (user("Hello"), assistant("Once")),
        [HELLO, {"role": "assistant", "content": "Once"}],
    ),
    _said("two texts", (user("Hel", "lo"),), [HELLO]),
    _said(
        "any text",
        (user('\u0000\u2028 👩‍👩‍👧 שלום \\ " \x7f'),),
        [{"role": "user", "content": '\u0000\u2028 👩‍👩‍👧 שלום \\ " \x7f'}],
    ),
    _said("no text", (user(""),), [{"role": "user", "content": ""}]),
    _said(
        "picture",
        (user("Hello", Image(data=PNG, mime_type="image/png")),),
        [HELLO | {"images": [PNG]}],
    ),
    _said(
        "pictures",
        (user(Image(data=PNG), "Hello", Image(data=PNG)),),
        [HELLO | {"images": [PNG, PNG]}],
    ),
    _said("only a picture", (user(Image(data=PNG)),), [{"role": "user", "images": [PNG]}]),
    _said(
        "thinking in the history",
        (user("Hello"), assistant(Reasoning("Hm."), "Hi."), user("Hello")),
        [HELLO, {"role": "assistant", "thinking": "Hm.", "content": "Hi."}, HELLO],
    ),
    _said("a call", (user("Hello"), assistant(USE)), [HELLO, CALLED]),
    _said(
        "a call after text",
        (user("Hello"), assistant("Looking.", USE)),
        [HELLO, CALLED | {"content": "Looking."}],
    ),
    _said(
        "thinking, text and a call",
        (assistant(Reasoning("Hm."), "Looking.", USE),),
        [CALLED | {"thinking": "Hm.", "content": "Looking."}],
    ),
    _said(
        "a result",
        (assistant(USE), user(ToolResult("c1", (Text("12 C"),)))),
        [CALLED, _result("weather", "12 C")],
    ),
    _said(
        "results",
        (assistant(USE, TIME), user(ToolResult("c1", (Text("12"),)), ToolResult("c2"))),
        [BOTH, _result("weather", "12"), _result("clock", "")],
    ),
    _said(
        "results in two turns",
        (assistant(USE, TIME), user(ToolResult("c1")), user(ToolResult("c2", (Text("1"),)))),
        [BOTH, _result("weather", ""), _result("clock", "1")],
    ),
    _said(
        "a failed tool",
        (assistant(USE), user(ToolResult("c1", (Text("down"),), is_error=True))),
        [CALLED, _result("weather", "Error: down")],
    ),
    _said(
        "structured result",
        (assistant(USE), user(ToolResult("c1", structured_content={"t": 1}))),
        [CALLED, _result("weather", '{"t":1}')],
    ),
    _said(
        "a result and a question",
        (assistant(USE), user(ToolResult("c1", (Text("12"),)), "Hello")),
        [CALLED, _result("weather", "12"), HELLO],
    ),
    _said(
        "a picture from a tool",
        (assistant(USE), user(ToolResult("c1", (Text("map"), Image(data=PNG))))),
        [
            CALLED,
            _result("weather", "map"),
            {
                "role": "user",
                "content": "Picture 1 comes from the tool weather.\n",
                "images": [PNG],
            },
        ],
    ),
    _said(
        "a whole round",
        (user("Hello"), assistant(USE), user(ToolResult("c1", (Text("12"),))), assistant("12.")),
        [HELLO, CALLED, _result("weather", "12"), {"role": "assistant", "content": "12."}],
    ),
    Intent(
        "everything",
        {
            "system_prompt": "Be brief.",
            "messages": (user("Hello", Image(data=PNG)),),
            "tools": (WEATHER, CLOCK),
            "temperature": 0.5,
            "stop_sequences": ("END",),
            "output_schema": OutputSchema(SCHEMA),
            "reasoning_level": "med",
        },
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                HELLO | {"images": [PNG]},
            ],
            "tools": [_tool(WEATHER), _tool(CLOCK)],
            "format": SCHEMA,
            "think": "medium",
        },
        model="gpt-oss:20b",
        settings={"context": 4096},
        options={"temperature": 0.5, "stop": ["END"], "num_ctx": 4096},
    ),
)
