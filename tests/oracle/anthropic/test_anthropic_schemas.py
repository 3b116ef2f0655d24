"""A schema becomes what the official SDK makes of it, wherever the SDK takes it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic import transform_schema

from penstock.providers.anthropic.schema import adapt

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {"type": "null"},
        {"type": "boolean", "title": "Flag"},
        {"type": "integer", "minimum": 1, "maximum": 10, "description": "A number"},
        {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
        {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^a"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uuid", "description": "An id"},
        {"type": "string", "format": "binary"},
        {"type": "string", "enum": ["a", "b"], "description": "One of"},
        {"enum": [1, None, True, "x"]},
        {"const": "a", "title": "A"},
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": "object", "additionalProperties": TEXT, "description": "A map"},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}},
        {"type": "object", "properties": {"a": TEXT}, "minProperties": 1},
        {"type": "array", "items": TEXT},
        {"type": "array", "items": TEXT, "minItems": 0},
        {"type": "array", "items": TEXT, "minItems": 1},
        {"type": "array", "items": TEXT, "minItems": 2},
        {"type": "array"},
        {"anyOf": [TEXT, {"type": "null"}], "default": "x"},
        {"oneOf": [TEXT, {"type": "integer", "minimum": 0}], "title": "Either"},
        {"allOf": [{"type": "object", "properties": {"a": TEXT}}, {"$ref": "#/$defs/B"}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer", "minimum": 1}}},
        {"$ref": "#/$defs/A", "description": "beside a reference"},
        {
            "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "type": "object",
            "properties": {"head": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
        },
    ],
)
def test_the_same_schema(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert adapt(schema) == transform_schema(copy.deepcopy(schema))
    assert schema == before
