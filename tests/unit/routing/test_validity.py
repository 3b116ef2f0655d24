"""The form of answers as a label: what is wrong is found, and nothing that is right is blamed."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Content, Text, ToolUse, user
from penstock.contract.options import OutputSchema, ToolDefinition
from penstock.routing.format_check import fits, validity

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["Lima", "Rome"]},
        "people": {"type": "integer"},
        "mayor": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
    },
    "required": ["name", "people"],
    "additionalProperties": False,
    "$defs": {"Person": {"type": "object", "required": ["name"]}},
}


def _asked(*, schema: bool = False, tools: bool = False) -> SamplingRequest:
    return SamplingRequest(
        messages=(user("Which city?"),),
        max_tokens=100,
        output_schema=OutputSchema(CITY) if schema else None,
        tools=(ToolDefinition("city", input_schema=CITY),) if tools else (),
    )


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ('{"name": "Rome", "people": 3}', True),
        (' {"name": "Rome", "people": 3.0, "mayor": null}\n', True),
        ('{"name": "Rome", "people": 3, "mayor": {"name": "R."}}', True),
        ('{"name": "Rome", "people": 3, "mayor": {}}', False),
        ('{"name": "Bonn", "people": 3}', False),
        ('{"name": "Rome", "people": "3"}', False),
        ('{"name": "Rome", "people": true}', False),
        ('{"name": "Rome"}', False),
        ('{"name": "Rome", "people": 3, "more": 1}', False),
        ("[]", False),
        ("Rome, I think", False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_an_answer_under_a_schema(answer: str, good: bool) -> None:
    assert validity(_asked(schema=True), (Text(answer),)) is good


ROME: dict[str, Any] = {"name": "Rome", "people": 3}
NOTHING: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("calls", "good"),
    [
        ([("city", ROME)], True),
        ([("city", {"name": "Rome"})], False),
        ([("town", ROME)], False),
        ([("city", ROME), ("city", NOTHING)], False),
    ],
)
def test_calls_of_tools(calls: list[tuple[str, dict[str, Any]]], good: bool) -> None:
    answer: list[Content] = [ToolUse(str(at), *call) for at, call in enumerate(calls)]
    assert validity(_asked(tools=True), (Text("Let me see."), *answer)) is good


def test_an_answer_of_which_no_form_was_asked_has_no_label() -> None:
    assert validity(_asked(), (Text("Rome"),)) is None
    assert validity(_asked(tools=True), (Text("Rome"),)) is None
    # Tools that were found by a server's own means are not ours to judge.
    assert validity(_asked(), (ToolUse("1", "city", {}),)) is None


def test_words_that_are_not_checked_blame_nobody() -> None:
    assert fits("x", {"type": "string", "pattern": "^y$"})
    assert fits({"a": 1}, {"$ref": "elsewhere.json"})
    assert fits({"a": 1}, {"$ref": "#/$defs/missing"})
    assert fits(1, {"type": "whole"})
    loop: dict[str, Any] = {"anyOf": [{"$ref": "#"}]}
    assert fits(1, loop)


_scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "a", "b"])
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
_kinds = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def _nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _kinds | st.lists(_kinds, min_size=1, unique=True),
            "enum": st.lists(_scalars, min_size=1, max_size=3),
            "const": _scalars,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "minimum": st.integers(-2, 2),
        },
    )


@given(value=_values, schema=st.recursive(st.builds(dict[str, Any]), _nodes, max_leaves=6))
def test_what_a_full_validator_accepts_is_never_blamed(value: object, schema: Any) -> None:
    validator: Any = jsonschema.Draft202012Validator(schema)
    if validator.is_valid(value):
        assert fits(value, schema)


def test_a_schema_that_would_take_for_ever_gives_no_label() -> None:
    endless: dict[str, Any] = {"allOf": [{"$ref": "#"}] * 3}
    assert fits({}, endless) is None
    tool = ToolDefinition("walk", "Walks", endless)
    request = SamplingRequest(messages=(user("Go"),), max_tokens=9, tools=(tool,))
    assert validity(request, [ToolUse("1", "walk", {})]) is None
    assert validity(request, [ToolUse("1", "walk", {}), ToolUse("2", "run", {})]) is False


def test_a_long_answer_that_is_simple_is_checked() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert fits([1] * 10_000, schema) is True
    assert fits([1] * 10_000 + ["x"], schema) is False
