"""JSON Schema, as far as Ollama reads it."""

import copy
import itertools
from typing import Any

import pytest

from penstock.providers.ollama.schema import for_answer, for_tool

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(
            {"type": "object", "properties": {"a": {"enum": [1]}}, "additionalProperties": False},
            {"type": "object", "properties": {"a": {"enum": [1]}}, "additionalProperties": False},
            id="nothing to do",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/Point", "description": "Where."}},
                "$defs": {"Point": POINT},
            },
            {"type": "object", "properties": {"at": {**POINT, "description": "Where."}}},
            id="a reference, and what stands beside it",
        ),
        pytest.param(
            {
                "properties": {"list": {"type": "array", "items": {"$ref": "#/definitions/A"}}},
                "definitions": {"A": {"anyOf": [{"$ref": "#/definitions/B"}, {"type": "null"}]}}
                | {"B": POINT},
            },
            {
                "properties": {
                    "list": {"type": "array", "items": {"anyOf": [POINT, {"type": "null"}]}}
                }
            },
            id="references in references",
        ),
        pytest.param(
            {
                "properties": {"tree": {"$ref": "#/$defs/Tree"}},
                "$defs": {
                    "Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
                },
            },
            {
                "properties": {
                    "tree": {
                        "type": "object",
                        "properties": {"left": {"type": "object", "description": "Again a Tree."}},
                    }
                }
            },
            id="recursion",
        ),
        pytest.param(
            {"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": POINT}}, POINT, id="an escaped path"
        ),
        pytest.param(
            {"properties": {"a": {"$ref": "https://x/y"}, "b": {"$ref": "#/$defs/none"}}},
            {"properties": {"a": {"$ref": "https://x/y"}, "b": {"$ref": "#/$defs/none"}}},
            id="references that lead nowhere stay",
        ),
        pytest.param(
            {"properties": {"a": True, "b": False}},
            {"properties": {"a": {}, "b": {"description": "Nothing fits here."}}},
            id="schemas that are just true or false",
        ),
        pytest.param(
            {"properties": {"a": {"const": {"$ref": "#/$defs/X"}}}},
            {"properties": {"a": {"const": {"$ref": "#/$defs/X"}}}},
            id="a literal is no schema",
        ),
    ],
)
def test_tools_have_their_references_written_out(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = copy.deepcopy(schema)
    assert for_tool(schema) == expected
    assert schema == before


def test_references_that_multiply_are_left_alone() -> None:
    names = [f"L{level}" for level in range(20)]
    levels: dict[str, Any] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{after}"}] * 3}
        for name, after in itertools.pairwise(names)
    }
    schema = {"$ref": "#/$defs/L0", "$defs": levels | {"L19": POINT}}
    assert for_tool(schema) is schema


def test_a_schema_that_holds_itself_is_left_to_the_json_writer() -> None:
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["again"] = schema
    assert for_tool(schema) is schema
    assert for_answer(schema) is schema


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("^[a-z]{2}$", True),
        (r"^a\.b$", True),
        ("^(a|b)+$", True),
        ("[a-z]", False),
        (r"^\d+$", False),
        ("^(?:a|b)$", False),
        ("^a", False),
        ("^a\\$", False),
    ],
)
def test_answers_keep_the_patterns_that_grammars_know(pattern: str, kept: bool) -> None:
    node = {"type": "string", "pattern": pattern, "description": "A code."}
    schema = {"type": "object", "properties": {"code": node}}
    before = copy.deepcopy(schema)
    words = f"A code. Matches the regular expression {pattern}"
    expected = node if kept else {"type": "string", "description": words}
    assert for_answer(schema) == {"type": "object", "properties": {"code": expected}}
    assert schema == before


def test_a_property_may_be_called_pattern() -> None:
    schema = {"properties": {"pattern": {"type": "string"}}, "enum": [{"pattern": "x"}]}
    assert for_answer(schema) == schema
