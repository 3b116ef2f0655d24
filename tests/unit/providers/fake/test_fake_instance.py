"""Instances of schemas, judged by an independent validator."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.providers.fake.instance import instance_of

NODE: dict[str, Any] = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["value", "next", "children"],
        }
    },
    "$ref": "#/$defs/Node",
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "text"),
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2000-01-01"),
        ({"type": "string", "format": "unheard-of"}, "text"),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["null", "string"]}, None),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "integer", "minimum": 2.5}, 3),
        ({"type": "integer", "exclusiveMinimum": 3}, 4),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMaximum": 0}, -1),
        ({"type": "integer", "minimum": 7, "multipleOf": 5}, 10),
        ({"type": "integer", "minimum": 1, "multipleOf": 1.5}, 3),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "minimum": 0.25}, 0.25),
        ({"type": "number", "minimum": 0.3, "multipleOf": 0.25}, 0.5),
        ({"const": 7}, 7),
        ({"default": [1]}, [1]),
        ({"enum": ["red", "blue"]}, "red"),
        ({"type": "array"}, []),
        ({"type": "array", "minItems": 2, "items": {"type": "null"}}, [None, None]),
        ({"items": {"type": "null"}, "minItems": 1}, [None]),
        ({"type": "array", "minItems": 1, "items": True}, ["text"]),
        ({"type": "array", "prefixItems": [{"const": 1}, {}], "maxItems": 1}, [1]),
        ({"type": "array", "prefixItems": [{"const": 1}], "minItems": 2}, [1, "text"]),
        ({"type": "object"}, {}),
        ({"properties": {"a": {"const": 1}, "b": {}}, "required": ["a"]}, {"a": 1}),
        ({"required": ["a"], "additionalProperties": {"type": "null"}}, {"a": None}),
        ({"required": ["a"], "properties": {"a": True}}, {"a": "text"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 0),
        ({"oneOf": [{"type": "null"}]}, None),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3),
        (
            {
                "allOf": [
                    {"properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"properties": {"b": {"const": 2}}, "required": ["b"]},
                ]
            },
            {"a": 1, "b": 2},
        ),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, 1),
        ({"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": {"type": "integer"}}}, 5),
        (NODE, {"value": 0, "next": None, "children": []}),
    ],
)
def test_the_smallest_value_that_fits(schema: dict[str, Any], value: Any) -> None:
    assert instance_of(schema) == value
    jsonschema.validate(value, schema)


def test_a_schema_that_holds_itself_at_the_root_comes_to_an_end() -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    value = instance_of(schema)
    jsonschema.validate(value, schema)
    assert value == {"next": {"next": None}}


Schema = dict[str, Any]


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    low = draw(st.integers(0, 8))
    return {"type": "string", "minLength": low, "maxLength": low + draw(st.integers(0, 8))}


@st.composite
def integers(draw: st.DrawFn) -> Schema:
    low, step = draw(st.integers(-50, 50)), draw(st.integers(1, 9))
    high = low + step + draw(st.integers(0, 9))
    return {"type": "integer", "minimum": low, "maximum": high, "multipleOf": step}


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    low = draw(st.integers(-50, 50))
    high = low + draw(st.integers(1, 9))
    return {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}


constants: st.SearchStrategy[Schema] = st.sampled_from(
    [{"type": "boolean"}, {"type": "null"}, {}, {"enum": [3, "x"]}, {"const": None}]
)


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[Schema]) -> Schema:
    return {"type": "array", "items": draw(items), "minItems": draw(st.integers(0, 3))}


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(st.sampled_from("abcd"), values, max_size=4))
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties)[:2],
        "additionalProperties": False,
    }


@st.composite
def choices(draw: st.DrawFn, branches: st.SearchStrategy[Schema]) -> Schema:
    return {"anyOf": draw(st.lists(branches, min_size=1, max_size=3))}


schemas = st.recursive(
    strings() | integers() | numbers() | constants,
    lambda inner: arrays(inner) | objects(inner) | choices(inner),
    max_leaves=8,
)


@given(schemas)
def test_every_instance_is_valid(schema: Schema) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(instance_of(schema), schema)
    assert instance_of(schema) == instance_of(schema)
