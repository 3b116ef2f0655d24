"""JSON Schema in, the API's part of it out."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.providers.gemini.schema import adapt_schema

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"$schema": "x", "default": 1, "examples": [1], "type": "integer"}, {"type": "integer"}),
    (
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
    ),
    (
        {"type": "string", "pattern": "^a", "minLength": 2},
        {"type": "string", "description": 'Must also satisfy {"pattern":"^a","minLength":2}'},
    ),
    (
        {"type": "string", "description": "A name.", "maxLength": 9},
        {"type": "string", "description": 'A name.\nMust also satisfy {"maxLength":9}'},
    ),
    ({"const": "x"}, {"enum": ["x"]}),
    ({"allOf": [{"type": "string"}], "title": "T"}, {"type": "string", "title": "T"}),
    (
        {"type": "object", "allOf": [{"type": "string"}]},
        {"type": "object", "description": 'Must also satisfy {"allOf":[{"type":"string"}]}'},
    ),
    ({"properties": {"a": True}}, {"properties": {"a": {}}}),
    ({"additionalProperties": False}, {"additionalProperties": False}),
    (
        {"additionalProperties": {"type": "string", "pattern": "x"}},
        {
            "additionalProperties": {
                "type": "string",
                "description": 'Must also satisfy {"pattern":"x"}',
            }
        },
    ),
    (
        {"$ref": "#/$defs/A", "$defs": {"A": {"const": 1}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"enum": [1]}}},
    ),
    (
        {"definitions": {"A": {"type": "null"}}, "items": {"$ref": "#/definitions/A"}},
        {"$defs": {"A": {"type": "null"}}, "items": {"$ref": "#/$defs/A"}},
    ),
    (
        {"$ref": "#/$defs/A", "description": "Which one"},
        {"anyOf": [{"$ref": "#/$defs/A"}], "description": "Which one"},
    ),
    (
        {"$ref": "#/$defs/A", "anyOf": [{"type": "null"}]},
        {
            "anyOf": [{"type": "null"}],
            "description": 'Must also satisfy {"allOf":[{"$ref":"#/$defs/A"}]}',
        },
    ),
    (
        {"anyOf": [{"const": 1}, {"type": "null"}], "oneOf": [{}]},
        {"anyOf": [{"enum": [1]}, {"type": "null"}], "oneOf": [{}]},
    ),
    ({"prefixItems": [{"const": 1}]}, {"prefixItems": [{"enum": [1]}]}),
]


@pytest.mark.parametrize(("schema", "adapted"), CASES)
def test_keywords(schema: dict[str, Any], adapted: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert adapt_schema(schema) == adapted
    assert schema == before


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = {"properties": {"pattern": {"type": "string"}, "const": {"type": "integer"}}}
    assert adapt_schema(schema) == schema


def test_a_recursive_type_stays_a_reference() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    assert adapt_schema(schema) == schema


def test_a_schema_that_contains_itself_does_no_harm() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["items"] = schema
    assert adapt_schema(schema)["items"]["type"] == "object"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["$ref", "$defs", "definitions", "allOf", "anyOf", "items", "properties", "const"]
            )
            | st.text(max_size=2),
            inner,
            max_size=3,
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["$ref", "allOf", "items", "properties", "x"]), JSON))
def test_any_schema_is_adapted_to_json(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    msgspec.json.encode(adapt_schema(schema))
    assert schema == before
