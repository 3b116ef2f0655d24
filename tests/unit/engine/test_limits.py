"""How much a request may hold: each limit, at its edge and one above it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import MCPTool, Message, ModelPreferences, Text, ToolDefinition, ToolResult, ToolUse
from penstock.contract.errors import LONGEST_PROBLEM, MOST_PROBLEMS, InvalidRequest, Problem
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.contract.messages import assistant, user
from penstock.contract.options import Extra, OutputSchema
from penstock.pipeline.limits import Limits
from penstock.pipeline.validate import validate, validate_embedding

SMALL = Limits(
    max_messages=3,
    max_parts=4,
    max_tools=2,
    max_schema_values=12,
    max_json_values=20,
    max_json_depth=4,
    max_metadata=2,
    max_extra_fields=1,
    max_hints=1,
    max_texts=2,
    max_mcp_servers=1,
)


def request(*messages: Message, **fields: Any) -> SamplingRequest:
    return SamplingRequest(messages=messages or (user("Hi"),), max_tokens=10, **fields)


def nested(depth: int) -> dict[str, Any]:
    """So many objects in each other."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def tools(n: int) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition(f"t{i}") for i in range(n))


def servers(n: int) -> tuple[MCPTool, ...]:
    return tuple(MCPTool(f"https://h{i}.example.com/", f"s{i}") for i in range(n))


def called(**fields: Any) -> tuple[Message, ...]:
    use = ToolUse(id="c", name="t", input=fields.get("input", {}))
    return user("Hi"), assistant(use), user(ToolResult("c", (Text("r"),)))


WITHIN = {
    "messages": request(user("a"), assistant("b"), user("c")),
    "parts": request(user("a", "b", "c", "d")),
    "parts of results": request(*called()),
    "tools": request(tools=tools(2)),
    "schemas": request(output_schema=OutputSchema({"enum": list("abcdefghij")})),
    "depth of a schema": request(output_schema=OutputSchema(nested(4))),
    "depth of arguments": request(*called(input=nested(4))),
    "metadata": request(metadata={"a": 1, "b": nested(3)}),
    "further fields": request(extra=Extra("openai-chat", {"a": nested(3)})),
    "hints": request(model_preferences=ModelPreferences(("a",))),
    "servers": request(mcp_tools=servers(1)),
}
BEYOND = {
    "messages": (request(*[user("a")] * 4), "messages: 4 given, at most 3", "max_messages"),
    "parts": (request(user(*"abcde")), "messages: 5 parts given, at most 4", "max_parts"),
    "parts of results": (
        request(*called()[:2], user(ToolResult("c", (Text("r"), Text("s"))))),
        "messages: 5 parts given",
        "max_parts",
    ),
    "tools": (request(tools=tools(3)), "tools: 3 given, at most 2", "max_tools"),
    "schemas": (
        request(tools=(ToolDefinition("a", "", {"enum": list("abcdefghijk")}),)),
        "tools[0].input_schema: with this, the schemas hold more than 12 values",
        "max_schema_values",
    ),
    "depth of a schema": (
        request(output_schema=OutputSchema(nested(5))),
        "output_schema: is nested more than 4 levels deep",
        "max_json_depth",
    ),
    "depth of arguments": (
        request(*called(input=nested(5))),
        "messages[1].content[0].input: is nested more than 4 levels deep",
        "max_json_depth",
    ),
    "values of arguments": (
        request(*called(input={"a": [1] * 30})),
        "messages[1].content[0].input: with this, the request holds more than 20 values",
        "max_json_values",
    ),
    "metadata": (request(metadata=dict.fromkeys("abc")), "metadata: 3 entries", "max_metadata"),
    "depth of metadata": (
        request(metadata={"a": nested(4)}),
        "metadata: is nested more than 4 levels deep",
        "max_json_depth",
    ),
    "further fields": (
        request(extra=Extra("openai-chat", {"a": 1, "b": 2})),
        "extra: 2 fields of the caller's own given, at most 1",
        "max_extra_fields",
    ),
    "hints": (
        request(model_preferences=ModelPreferences(("a", "b"))),
        "model_preferences.hints: 2 given, at most 1",
        "max_hints",
    ),
    "servers": (request(mcp_tools=servers(2)), "mcp_tools: 2 given, at most 1", "max_mcp_servers"),
}


@pytest.mark.parametrize("given", WITHIN.values(), ids=WITHIN)
def test_what_is_within_the_limits_is_taken(given: SamplingRequest) -> None:
    assert validate(given, SMALL) is given


@pytest.mark.parametrize(("given", "said", "setting"), BEYOND.values(), ids=BEYOND)
def test_what_is_beyond_a_limit_names_the_setting(
    given: SamplingRequest, said: str, setting: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        validate(given, SMALL)
    (problem,) = refused.value.problems
    assert str(problem).startswith(said)
    assert problem.message.endswith(f"raise limits.{setting}")


def test_a_value_that_holds_itself_is_too_deep() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(InvalidRequest, match="is nested more than 4 levels deep"):
        validate(request(output_schema=OutputSchema(endless)), SMALL)


def test_several_limits_are_named_at_once_with_what_else_is_wrong() -> None:
    given = request(*[user("a")] * 5, tools=tools(3), temperature=9.0)
    with pytest.raises(InvalidRequest) as refused:
        validate(given, SMALL)
    paths = [problem.path for problem in refused.value.problems]
    assert paths == ["temperature", "messages", "messages", "tools"]


def test_texts_to_be_embedded_are_counted() -> None:
    assert validate_embedding(EmbeddingRequest(texts=("a", "b")), SMALL)
    with pytest.raises(InvalidRequest, match=r"texts: 3 given, at most 2 .* limits\.max_texts"):
        validate_embedding(EmbeddingRequest(texts=("a", "b", "c")), SMALL)


def test_of_many_problems_the_first_are_listed_and_the_others_counted() -> None:
    made = 0

    def problems() -> Any:
        nonlocal made
        for index in range(100_000):
            made += 1
            yield Problem(f"messages[{index}]", "is blank")

    error = InvalidRequest.of(problems())
    assert made == 100_000
    assert len(error.problems) == MOST_PROBLEMS
    assert str(error.problems[-1]) == "and 99901 more problems"
    assert len(str(error)) < 5_000


def test_the_text_of_a_problem_has_an_end() -> None:
    error = InvalidRequest.of([Problem("p" * 10**6, "m" * 10**6)])
    assert len(str(error)) < 2 * LONGEST_PROBLEM + 20
    assert error.problems[0].message.endswith("m…")
