"""Tools of a JSON Schema and a handler, and tools given as dicts."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock
from penstock import InvalidRequest, Tool
from penstock.generators.answer_type import AnswerMismatch
from penstock.testing import FakeProvider, FakeReply, engine_with

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z]"},
        "days": {"type": "integer", "minimum": 1},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"stop": {"enum": ["bus", "train"]}},
}
OPENAI = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}
FLAT = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
BARE = {"name": "weather", "parameters": SCHEMA}
MCP = {
    "name": "weather",
    "inputSchema": SCHEMA,
    "title": "Weather",
    "annotations": {"readOnlyHint": True},
}
ANTHROPIC = {"name": "weather", "description": "", "input_schema": SCHEMA, "type": "custom"}
FORMS = pytest.mark.parametrize(
    "form", [OPENAI, FLAT, BARE, MCP, ANTHROPIC], ids=["openai", "flat", "bare", "mcp", "anthropic"]
)


async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"got": arguments}


def weather(**options: Any) -> Tool[..., Any]:
    given: dict[str, Any] = {"name": "weather", "input_schema": SCHEMA, "handler": handler}
    return Tool(**{**given, **options})


async def test_the_handler_gets_the_validated_arguments_as_one_dict() -> None:
    made = Tool(name="weather", description="It rains.", input_schema=SCHEMA, handler=handler)
    assert made.definition == penstock.ToolDefinition("weather", "It rains.", SCHEMA)
    arguments = {"city": "Oslo", "days": 2, "stops": ["bus"]}
    assert await made.run(arguments) == {"got": arguments}
    assert await made(arguments) == {"got": arguments}


async def test_a_plain_handler_runs_in_a_thread() -> None:
    def plain(arguments: dict[str, Any]) -> str:
        return threading.current_thread().name

    made = Tool(name="plain", input_schema={}, handler=plain, timeout=3)
    assert await made.run({}) != threading.current_thread().name
    assert made.definition.input_schema == {"type": "object"}
    assert made.timeout == 3


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, ["city: Field required"]),
        (
            {"city": 1, "other": 2},
            [
                "city: Input should be of type string, not 1",
                "other: Extra inputs are not permitted",
            ],
        ),
        ({"city": "oslo"}, ["city: 'oslo' does not match '^[A-Z]'"]),
        ({"city": "Oslo", "days": 0}, ["days: 0 is less than the minimum of 1"]),
        ({"city": "Oslo", "stops": ["bus", "car"]}, ["stops[1]: 'car' is not one of"]),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    arguments: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(AnswerMismatch) as caught:
        await weather().run(arguments)
    said = sorted(map(str, caught.value.problems))
    assert len(said) == len(problems)
    assert all(each.startswith(start) for each, start in zip(said, problems, strict=True))


async def test_a_null_for_a_property_that_may_be_left_out_is_left_out() -> None:
    assert await weather().run({"city": "Oslo", "days": None}) == {"got": {"city": "Oslo"}}


async def test_arguments_that_are_nested_too_deeply_are_refused() -> None:
    schema: dict[str, Any] = {"properties": {"in": {"$ref": "#"}}, "type": "object"}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"in": deep}
    with pytest.raises(AnswerMismatch, match="nested too deeply"):
        await weather(input_schema=schema).run(deep)


@pytest.mark.timeout(20)
async def test_a_pattern_takes_linear_time() -> None:
    schema = {"properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    with pytest.raises(AnswerMismatch, match="text: "):
        await weather(input_schema=schema).run({"text": "a" * 5000 + "b"})


async def test_a_pattern_may_look_ahead() -> None:
    made = weather(input_schema={"properties": {"text": {"pattern": "^(?=a)"}}})
    assert await made.run({"text": "ab"})
    with pytest.raises(AnswerMismatch):
        await made.run({"text": "b"})


async def test_a_later_change_of_the_schema_has_no_effect() -> None:
    schema: dict[str, Any] = {"properties": {"city": {"type": "string"}}}
    made = weather(input_schema=schema)
    schema["properties"]["city"]["type"] = "integer"
    assert await made.run({"city": "Oslo"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"input_schema": {"type": "array"}}, "its type is 'array'"),
        ({"input_schema": {"properties": {"a": {"type": "text"}}}}, "properties.a.type"),
        ({"input_schema": {"properties": []}}, "properties"),
        ({"input_schema": "object"}, "must be a dict"),
        ({"input_schema": {"$ref": "http://127.0.0.1:1/x"}}, "is not in the schema"),
        ({"input_schema": {"properties": {"a": {"$ref": "#/$defs/b"}}}}, "'#/$defs/b'"),
        ({"input_schema": {"$ref": "#"}}, "refers to itself"),
        ({"input_schema": {"properties": {"a": {"pattern": "("}}}}, "pattern '('"),
        ({"input_schema": None}, "input_schema is missing"),
        ({"handler": None}, "handler is missing"),
        ({"handler": 3}, "its handler is 3"),
        ({"name": None}, "takes its name from name="),
        ({"name": "a b"}, "letters, digits"),
        ({"function": len}, "and not both"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        weather(**options)
    assert reason in str(caught.value)


def test_a_misspelled_option_names_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"Tool\(\).*did you mean input_schema\?"):
        weather(inputschema={})


CALL = FakeReply(tool_uses=(penstock.ToolUse("1", "weather", {"city": "Oslo"}),))
WRONG = FakeReply(tool_uses=(penstock.ToolUse("1", "weather", {"city": 1}),))


@FORMS
async def test_generators_run_the_handler_of_a_dict(form: dict[str, Any]) -> None:
    provider = FakeProvider([CALL, WRONG, "Rain."])
    async with engine_with(provider) as engine:
        tools = [{**form, "handler": handler}]
        text, _ = await engine.string_generator("Weather?", tools=tools).generate()
    assert text == "Rain."
    assert provider.requests[0].tools[0].input_schema == SCHEMA
    given = [part for turn in provider.requests[2].messages for part in turn.content]
    results = [part for part in given if isinstance(part, penstock.ToolResult)]
    assert [each.is_error for each in results] == [False, True]
    assert "the arguments do not fit: city: " in results[1].text


@FORMS
async def test_generators_refuse_a_dict_without_a_handler(form: dict[str, Any]) -> None:
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest, match=r"tools\[0\]: 'weather' has no handler"):
            engine.string_generator("Weather?", tools=[form])
        with pytest.raises(InvalidRequest, match=r"tools\[0\]: 'weather' has no handler"):
            engine.conversation(tools=[form])


async def test_a_definition_without_a_handler_is_refused_by_generators() -> None:
    tools: Any = [penstock.ToolDefinition("weather", "", SCHEMA)]
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest, match="has no handler"):
            engine.string_generator("Weather?", tools=tools)


@pytest.mark.parametrize(
    ("form", "problems"),
    [
        ({"name": "a", "paramters": {}}, ["tools[0].paramters: there is no such field; did you"]),
        ({"name": "a", "parameters": {}, "inputSchema": {}}, ["tools[0]: has parameters and"]),
        ({"parameters": {}}, ["tools[0].name: is required"]),
        ({"name": 1, "parameters": []}, ["tools[0].name: is 1", "tools[0].parameters: is []"]),
        ({"type": "web_search", "name": "a"}, ["tools[0].type: is 'web_search'"]),
        (
            {"type": "function", "function": {"name": "a", "params": {}}, "strict": True},
            ["tools[0].strict: there is no", "tools[0].function.params: there is no such field"],
        ),
        ({"name": "a", "strict": "yes"}, ["tools[0].strict: is 'yes'"]),
    ],
)
async def test_a_dict_that_is_no_tool_is_refused_with_every_problem(
    form: dict[str, Any], problems: list[str]
) -> None:
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest) as caught:
            engine.string_generator("Go.", tools=[form])
    said = [str(each) for each in caught.value.problems]
    assert len(said) == len(problems)
    assert all(each.startswith(start) for each, start in zip(said, problems, strict=True))
