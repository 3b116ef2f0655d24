"""Wrong arguments of our tools: refused by name, all at once, in our own words."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client

from penstock.contract.options import MCPTool
from penstock.mcp import TaskClient, run_task
from penstock.mcp.http import over_http
from penstock.testing import FakeProvider
from tests.mcp.serving.test_door import ERAS, TOOLS, text
from tests.support.keyed import keyed_engine
from tests.unit.server.gateway_support import running_gateway

era = pytest.mark.parametrize("era", ERAS)
RIGHT: dict[str, dict[str, Any]] = {
    "generate": {"prompt": "x"},
    "embed": {"texts": ["x"]},
    "count_tokens": {"prompt": "x"},
    "route": {"prompt": "x"},
    "usage": {},
}
_RAW = ("pydantic", "validation error", "input_value", "[type=", "Traceback", "jsonschema")


@asynccontextmanager
async def opened(fake: FakeProvider, era: str = ERAS[1], **options: Any) -> AsyncGenerator[Client]:
    async with running_gateway(keyed_engine(fake)[0]) as gateway:
        server = MCPTool(f"{gateway.url}/mcp", "penstock")
        async with Client(over_http(server), mode=era, **options) as client:
            yield client


async def refusal(name: str, arguments: dict[str, Any], era: str = ERAS[1]) -> str:
    """The text of the failure; the model is not asked."""
    fake = FakeProvider()
    async with opened(fake, era) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert fake.requests == []
    words = text(result)
    assert not any(each in words for each in _RAW), words
    return words


@era
async def test_the_schemas_allow_no_other_arguments(era: str) -> None:
    async with opened(FakeProvider(), era) as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == RIGHT.keys() == TOOLS
    for tool in tools:
        assert tool.input_schema["additionalProperties"] is False


@era
@pytest.mark.parametrize("name", RIGHT)
async def test_an_unknown_argument_is_refused_by_every_tool(era: str, name: str) -> None:
    words = await refusal(name, {**RIGHT[name], "zzz": 1}, era)
    assert words.startswith(f"{name} does not take these arguments: zzz: there is no such argument")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "generate",
            {"max_tokns": 5},
            "max_tokns: there is no such argument; did you mean max_tokens?",
        ),
        (
            "generate",
            {"maxTokens": 5},
            "maxTokens: there is no such argument; did you mean max_tokens?",
        ),
        ("generate", {"systemPrompt": ""}, "did you mean system_prompt?"),
        ("generate", {"streamed_context": {}}, "streamed_context: there is no such argument"),
        ("embed", {"text": "x"}, "text: there is no such argument; did you mean texts?"),
        ("usage", {"key": "x"}, "key: there is no such argument; it takes none"),
        (
            "generate",
            {"preferences": {"costPriority": 1}},
            "preferences.costPriority: there is no such argument; there are hints, cost, speed, "
            "intelligence",
        ),
        (
            "route",
            {"preferences": {"hint": ["a"]}},
            "preferences.hint: there is no such argument; did you mean hints?",
        ),
        (
            "generate",
            {"messages": [{"role": "user", "content": "x"}, {"rol": "user", "content": "x"}]},
            "messages[1].rol: there is no such argument; did you mean role?",
        ),
        ("generate", {"max_tokens": 0}, "max_tokens: must be at least 1, not 0"),
        ("generate", {"max_tokens": "many"}, "max_tokens: must be a whole number, not 'many'"),
        ("generate", {"max_tokens": 1.5}, "max_tokens: must be a whole number, not 1.5"),
        ("generate", {"temperature": "hot"}, "temperature: must be a number, not 'hot'"),
        ("generate", {"stop_sequences": "END"}, "stop_sequences: must be a list, not 'END'"),
        ("generate", {"stop_sequences": [1]}, "stop_sequences[0]: must be text, not 1"),
        ("generate", {"messages": [5]}, "messages[0]: must be an object, not 5"),
        ("generate", {"prompt": True}, "prompt: must be text, not true"),
        ("generate", {"prompt": None}, "prompt: must be text, not null"),
        ("generate", {"output_schema": 7}, "output_schema: must be an object, not 7"),
        ("generate", {"preferences": {"cost": 2}}, "preferences.cost: must be at most 1, not 2"),
        ("generate", {"reasoning_level": "huge"}, "reasoning_level: must be "),
        (
            "generate",
            {"messages": [{"role": "robot", "content": "x"}]},
            "messages[0].role: must be 'user', 'assistant' or 'system', not 'robot'",
        ),
        ("embed", {"texts": []}, "texts: must have 1 or more items, not []"),
        ("embed", {"texts": ["x"], "dimensions": 0}, "dimensions: must be at least 1, not 0"),
    ],
)
async def test_what_is_wrong_is_named(name: str, arguments: dict[str, Any], words: str) -> None:
    needed = {} if name == "embed" else RIGHT[name]
    assert words in await refusal(name, {**needed, **arguments})


async def test_all_problems_come_at_once() -> None:
    words = await refusal("generate", {"Prompt": "x", "max_tokens": 0, "temperature": []})
    for each in (
        "Prompt: there is no such argument; did you mean prompt?",
        "prompt: is required",
        "max_tokens: must be at least 1, not 0",
        "temperature: must be a number, not []",
    ):
        assert each in words


async def test_the_words_about_many_mistakes_are_limited() -> None:
    wrong = {f"name{number}": "x" * 1_000 for number in range(2_000)}
    many = [{"role": "y" * 5_000, "content": 1}] * 2_000
    words = await refusal("generate", {"prompt": "x", "x" * 50_000: 1, "messages": many, **wrong})
    assert len(words) < 50_000
    assert "more problems" in words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objct"}, "output_schema.type: 'objct' is not valid there in a JSON Schema"),
        ({"properties": []}, "output_schema.properties: [] is not valid there"),
        ({"type": "object", "required": "a"}, "output_schema.required: 'a' is not valid there"),
        ({"properties": {"a": {"type": "text"}}}, "output_schema.properties.a.type: 'text' is not"),
        ({"properties": {"a": 5}}, "output_schema.properties.a: 5 is not valid there"),
        ({"minimum": "1"}, "output_schema.minimum: '1' is not valid there"),
    ],
)
async def test_an_output_schema_that_is_none_is_refused(schema: dict[str, Any], words: str) -> None:
    assert words in await refusal("generate", {"prompt": "x", "output_schema": schema})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": True}},
        {"$schema": "https://example.com/own", "type": "object"},
        {"type": "object", "x-own": 1},
    ],
)
async def test_an_output_schema_is_passed_on(schema: dict[str, Any]) -> None:
    fake = FakeProvider(["{}"])
    async with opened(fake) as client:
        result = await client.call_tool("generate", {"prompt": "x", "output_schema": schema})
    assert not result.is_error, text(result)
    (request,) = fake.requests
    assert request.output_schema is not None
    assert request.output_schema.schema == schema


async def test_an_output_schema_of_many_values_is_refused_by_the_limits() -> None:
    schema = {"enum": list(range(60_000))}
    words = await refusal("generate", {"prompt": "x", "output_schema": schema})
    assert "max_schema_values" in words


@era
async def test_a_task_ends_with_the_same_words(era: str) -> None:
    async with opened(FakeProvider(), era, extensions=[TaskClient()]) as client:
        result = await run_task(client, "generate", {"prompt": "x", "max_tokns": 5})
    assert result.is_error
    assert "did you mean max_tokens?" in text(result)
