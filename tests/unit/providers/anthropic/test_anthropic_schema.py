"""A user's schema in, the API's subset out; what the official SDK does is in the oracle tests."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.providers.anthropic.schema import adapt

ANYTHING = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        pytest.param(
            {"type": "integer", "minimum": 1, "default": None, "examples": [1, True]},
            {"type": "integer", "description": "{minimum: 1, default: null, examples: [1,true]}"},
            id="values are written as JSON",
        ),
        pytest.param(
            {"$schema": "x", "$id": "y", "$comment": "z", "type": "null"},
            {"type": "null"},
            id="what speaks of the schema itself is left out",
        ),
        pytest.param(
            {"type": ["string", "null"], "format": "date", "description": "When"},
            {
                "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                "description": "When",
            },
            id="a list of types",
        ),
        pytest.param(
            {"type": ["array", "integer"], "items": True, "minimum": 2},
            {
                "anyOf": [{"type": "array", "items": {"anyOf": ANYTHING}}, {"type": "integer"}],
                "description": "{minimum: 2}",
            },
            id="keywords go with their type",
        ),
        pytest.param({"type": ["string"]}, {"type": "string"}, id="a list of one type"),
        pytest.param({"type": []}, {"anyOf": ANYTHING}, id="an empty list of types"),
        pytest.param(True, {"anyOf": ANYTHING}, id="true"),
        pytest.param({}, {"anyOf": ANYTHING}, id="no type at all"),
        pytest.param(
            {"title": "Any", "minLength": 1},
            {"anyOf": ANYTHING, "title": "Any", "description": "{minLength: 1}"},
            id="no type, but words",
        ),
        pytest.param(
            {"properties": {"a": {"type": "null"}}},
            {
                "type": "object",
                "properties": {"a": {"type": "null"}},
                "additionalProperties": False,
            },
            id="an object without its type",
        ),
        pytest.param(
            {"items": {"type": "null"}},
            {"type": "array", "items": {"type": "null"}},
            id="an array without its type",
        ),
        pytest.param(
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "string", "minLength": 1}}},
            {
                "definitions": {"A": {"type": "string", "description": "{minLength: 1}"}},
                "$ref": "#/definitions/A",
            },
            id="the older word for definitions",
        ),
        pytest.param(
            {"enum": [{"a": 1}]},
            {"anyOf": ANYTHING, "description": '{enum: [{"a":1}]}'},
            id="an enum of objects",
        ),
        pytest.param(
            {"type": "object", "properties": None},
            {"type": "object", "properties": {}, "additionalProperties": False},
            id="nonsense is survived",
        ),
    ],
)
def test_what_the_subset_lacks(schema: Any, adapted: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert adapt(schema) == adapted
    assert schema == before


words = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "format"),
        *("required", "$ref", "$defs", "minItems", "minimum", "description", "string", "object"),
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, values, max_size=5))
def test_any_schema_becomes_one_and_stays_as_it_was(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert msgspec.json.encode(adapt(schema))
    assert schema == before
