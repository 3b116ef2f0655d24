"""JSON Schemas in, strict ones out."""

import copy
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from penstock.providers.openai_wire.schema import rooted, strict_schema
from tests.support.wire.subsets import check_openai


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def closed(**properties: Any) -> dict[str, Any]:
    return {**of(**properties), "additionalProperties": False}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("inner", "adapted"),
    [
        (TEXT, TEXT),
        ({"type": "string", "title": "A", "description": "d"},) * 2,
        ({"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},) * 2,
        ({"type": "string", "format": "date-time", "pattern": "^a"},) * 2,
        ({"type": "array", "items": TEXT, "minItems": 1},) * 2,
        ({"type": ["string", "null"]},) * 2,
        ({"anyOf": [TEXT, {"type": "null"}], "description": "d"},) * 2,
        ({"const": 1, "type": "integer"},) * 2,
        # A type follows from the values.
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["null", "string"]}),
        ({"const": True}, {"const": True, "type": "boolean"}),
        # What strict mode does not know is told in words.
        (
            {"type": "string", "minLength": 2, "default": "x", "description": "A name."},
            {"type": "string", "description": 'A name.\nminLength: 2; default: "x"'},
        ),
        (
            {"type": "string", "format": "uri", "pattern": "(?=a)"},
            {"type": "string", "description": 'format: "uri"; pattern: "(?=a)"'},
        ),
        (
            {"type": "integer", "not": {"const": 3}},
            {"type": "integer", "description": 'not: {"const":3}'},
        ),
        ({"type": "string", "$comment": "x", "deprecated": True}, TEXT),
        ({"oneOf": [TEXT, {"type": "integer"}]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"allOf": [TEXT], "description": "d"}, {"type": "string", "description": "d"}),
        (
            {"type": "array", "prefixItems": [TEXT, {"type": "integer"}]},
            {
                "type": "array",
                "items": {"anyOf": [TEXT, {"type": "integer"}]},
                "description": 'prefixItems: [{"type":"string"},{"type":"integer"}]',
            },
        ),
        (of(b=TEXT), closed(b=TEXT)),
        ({"type": "object", "properties": {}}, {**closed(), "required": []}),
    ],
)
def test_keywords(inner: dict[str, Any], adapted: dict[str, Any]) -> None:
    assert strict_schema(of(a=inner)) == closed(a=adapted)


@pytest.mark.parametrize(
    ("inner", "adapted", "exact"),
    [
        (TEXT, {"type": ["string", "null"]}, False),
        ({"type": ["string", "integer"]}, {"type": ["string", "integer", "null"]}, False),
        ({"enum": ["a"]}, {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]}, False),
        (
            {"anyOf": [TEXT, {"type": "integer"}]},
            {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]},
            False,
        ),
        (of(b=TEXT), {"anyOf": [closed(b=TEXT), {"type": "null"}]}, False),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}, True),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}, True),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["null", "string"]}, True),
    ],
)
def test_what_may_be_left_out_may_be_null(
    inner: dict[str, Any], adapted: dict[str, Any], exact: bool
) -> None:
    schema = {"type": "object", "properties": {"a": inner}}
    assert strict_schema(schema) == closed(a=adapted)
    expected = closed(a=adapted) if exact else None
    assert strict_schema(schema, null_for_absent=False) == expected


NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
    "required": ["next"],
}
CLOSED_NODE = {**NODE, "additionalProperties": False}


def test_references() -> None:
    defs = {"$defs": {"Node": NODE}}
    closed_defs = {"$defs": {"Node": CLOSED_NODE}}
    reference = {"$ref": "#/$defs/Node"}
    assert strict_schema({**reference, **defs}) == {**CLOSED_NODE, **closed_defs}
    assert strict_schema({**of(a=reference), **defs}) == {**closed(a=reference), **closed_defs}
    old = {**of(a={"$ref": "#/definitions/Node"}), "definitions": {"Node": NODE}}
    assert strict_schema(old) == {**closed(a=reference), **closed_defs}
    # A reference stands alone.
    described = {**reference, "description": "d"}
    assert strict_schema({**of(a=described), **defs}) == {
        **closed(a={"anyOf": [reference], "description": "d"}),
        **closed_defs,
    }
    optional = {"type": "object", "properties": {"a": reference}, **defs}
    assert strict_schema(optional) == {
        **closed(a={"anyOf": [reference, {"type": "null"}]}),
        **closed_defs,
    }
    assert strict_schema(of(a={"$ref": "#"})) == closed(a={"$ref": "#"})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": TEXT},
        {"type": "string"},
        {"anyOf": [of(a=TEXT)]},
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True},
        {"type": "object", "properties": {}, "patternProperties": {"^a": TEXT}},
        {"type": "object", "properties": {}, "anyOf": [of(a=TEXT)]},
        of(a={}),
        of(a=True),
        of(a={"type": "object"}),
        of(a={"type": "array"}),
        of(a={"enum": []}),
        of(a={"enum": "abc"}),
        of(a={"type": "string", "default": object()}),
        of(a={"anyOf": [of(b=TEXT)], "properties": {"c": TEXT}}),
        of(a={"enum": [[]]}),
        of(a={"allOf": [TEXT, TEXT]}),
        of(a={"$ref": "https://example.com/x"}),
        of(a={"$ref": "#/$defs/Nobody"}),
        of(a={"$ref": "#/properties/b"}, b=TEXT),
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        of(a={"enum": [str(number) for number in range(1001)]}),
        of(**{f"p{number}": TEXT for number in range(5001)}),
    ],
)
def test_what_strict_mode_cannot_say(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_depth_has_a_limit() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = TEXT
        for _ in range(levels):
            schema = of(a=schema)
        return schema

    assert strict_schema(nested(10)) is not None
    assert strict_schema(nested(11)) is None
    assert strict_schema(nested(5000)) is None


class Person(BaseModel):
    name: str = Field(min_length=1, description="The full name.")
    age: int | None = None
    kind: Literal["a", "b"] = "a"
    friends: list["Person"] = []


class Point(msgspec.Struct):
    x: float
    label: Literal["p", "q"] | None = None


def test_the_schemas_of_real_types_are_taken() -> None:
    for schema in (Person.model_json_schema(), msgspec.json.schema(Point)):
        before = copy.deepcopy(schema)
        adapted = strict_schema(schema)
        assert adapted is not None
        check_openai(adapted)
        assert schema == before


def test_roots() -> None:
    assert rooted({"type": "object"}) == {"type": "object", "properties": {}}
    assert rooted(TEXT) is TEXT
    assert rooted({"$ref": "#/$defs/A", "$defs": {"A": TEXT}})["type"] == "string"


leaves = st.sampled_from(
    [
        TEXT,
        {"type": "integer", "minimum": 0},
        {"enum": ["a", "b"]},
        {"const": 1},
        {"type": ["string", "null"]},
        {"type": "string", "minLength": 1, "default": "x"},
    ]
)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


names = st.sampled_from(["a", "b", "c"])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(_object, st.dictionaries(names, inner, max_size=3), st.lists(names, unique=True)),
        inner.map(lambda each: {"type": "array", "items": each}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"oneOf": each}),
    ),
    max_leaves=6,
)


@given(st.dictionaries(names, schemas, max_size=3), st.lists(names, unique=True))
def test_any_schema_becomes_strict_and_stays_itself(
    properties: dict[str, Any], required: list[str]
) -> None:
    schema = _object(properties, required)
    before = copy.deepcopy(schema)
    adapted = strict_schema(schema)
    assert schema == before
    assert adapted is not None
    check_openai(adapted)
    Draft202012Validator.check_schema(adapted)
    exact = strict_schema(schema, null_for_absent=False)
    assert exact is None or exact == adapted
