"""Schemas as llama.cpp follows them, and what is refused by what it asks for."""

import re
from typing import Any

import pytest

from penstock.providers.embedded.grammar import writable, written_pattern
from penstock.providers.embedded.integers import UnreadableSchemaError


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^\d{3}$", "^[0-9]{3}$"),
        (r"^[\d.-]+$", "^[0-9.-]+$"),
        (r"^\w+\s\w+$", "^[A-Za-z0-9_]+[ ][A-Za-z0-9_]+$"),
        (r"^[^a]$", r'^[^"\\\x00-\x1fa]$'),
        (r"^\D$", r'^[^"\\\x00-\x1f0-9]$'),
        (r"^\/a\-[\-\w]\.$", r"^/a-[\-A-Za-z0-9_]\.$"),
        (r"^(?:a|b)?c{2,5}$", r"^(?:a|b)?c{2,5}$"),
        ("^[$^(?!]$", "^[$^(?!]$"),
    ],
)
def test_a_pattern_keeps_its_meaning(pattern: str, written: str) -> None:
    assert written_pattern(pattern) == written
    assert re.compile(written)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a$", r"must begin with \^ and end with \$"),
        ("^a", r"must begin with \^ and end with \$"),
        (r"^\bfoo$", r"has the escape \\b"),
        (r"^a\$", r"has the escape \\\$"),
        (r"^(a)\1$", r"has the escape \\1"),
        (r"^[\D]$", r"has the escape \\D"),
        ("^(?!x)a$", r"group that begins with \(\?"),
        ("^(?P<x>a)$", r"group that begins with \(\?"),
        ("^(?$", r"group|regular expression"),
        ("^a^b$", r"\^ or \$ within"),
        ("^a{2001}$", "repeats more than 2000 times"),
        ("^a{1,999999999}$", "repeats more than 2000 times"),
        ("^a(b$", "is not a regular expression"),
        ("^[a$", "is not a regular expression"),
        ("^" + "a" * 1001 + "$", "up to 1000 characters"),
        (3, "must be a text"),
    ],
)
def test_a_pattern_that_cannot_be_followed_is_refused_with_the_reason(
    pattern: Any, reason: str
) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    with pytest.raises(UnreadableSchemaError, match=reason):
        writable(schema, validated=False)
    kept: Any = writable(schema, validated=True)
    assert kept["properties"]["a"] == {"type": "string"}
    assert schema["properties"]["a"]["pattern"] == pattern


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "nonsense"}, "the type 'nonsense', which JSON does not have"),
        ({"type": ["string", 3]}, "the type 3"),
        ({"properties": 3}, "the properties 3, which are not an object"),
        ({"properties": {"a": False}}, "'a', which the schema forbids"),
        ({"$ref": "http://x/y"}, "only references within a schema"),
        ({"$ref": "#/nope"}, "which is not in it"),
        ({"enum": []}, "enum without any entry"),
        ({"oneOf": []}, "oneOf without any entry"),
        ({"type": "string", "minLength": 3, "maxLength": 1}, "a text of 3 to 1 characters, and"),
        ({"type": "array", "minItems": 3, "maxItems": 1}, "a list of 3 to 1 items, and"),
        ({"type": "string", "minLength": 2001}, "the most that this model counts to is 2000"),
        ({"type": "string", "minLength": -1}, "minLength -1, which is not a natural number"),
        ({"type": "string", "maxLength": "x"}, "maxLength 'x', which is not a natural number"),
        ({"type": "string", "maxLength": True}, "maxLength True"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_what_it_asks_for(
    schema: dict[str, Any], reason: str
) -> None:
    for outer in (schema, {"type": "array", "items": schema}):
        if "#/nope" not in str(outer) or outer is schema:
            with pytest.raises(UnreadableSchemaError, match=reason):
                writable(outer, validated=False)


def test_sizes_that_llama_cpp_does_not_read_are_written_so_that_it_does() -> None:
    schema = {"type": "string", "minLength": 3.0, "maxLength": 9000}
    assert writable(schema, validated=False) == {"type": "string", "minLength": 3}
    schemas = {"properties": {"a": True, "b": {"items": True}}}
    assert writable(schemas, validated=False) == {"properties": {"a": {}, "b": {"items": {}}}}


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"type": "integer", "multipleOf": 7}, "multipleOf 7"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems True"),
        ({"type": "array", "contains": {"const": 1}}, "contains {'const': 1}"),
        ({"not": {"type": "string"}}, "not {'type': 'string'}"),
        ({"type": "object", "minProperties": 1}, "minProperties 1"),
        ({"type": "object", "maxProperties": 1}, "maxProperties 1"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "patternProperties {'^a': {}}"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames {'maxLength': 3}"),
        ({"if": {"type": "string"}, "then": {"minLength": 1}}, "if {'type': 'string'}"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"type": "object", "dependentSchemas": {"a": {}}}, "dependentSchemas"),
        ({"type": "object", "dependencies": {"a": ["b"]}}, "dependencies"),
        ({"type": "object", "minProperties": "x"}, "minProperties 'x'"),
    ],
)
def test_a_keyword_that_would_be_ignored_is_refused_by_name(node: Any, said: str) -> None:
    schema = {"type": "object", "properties": {"a": node}}
    with pytest.raises(UnreadableSchemaError) as caught:
        writable(schema, validated=False)
    assert str(caught.value).startswith(said)
    # Who checks the answer needs no refusal.
    kept = writable(schema, validated=True)["properties"]["a"]
    assert said.split(maxsplit=1)[0] not in kept


@pytest.mark.parametrize(
    "node",
    [
        {"type": "integer", "multipleOf": 1},
        {"type": "array", "items": {}, "uniqueItems": False},
        {"type": "object", "properties": {"b": {}}, "required": ["b"], "minProperties": 1},
        {
            "type": "object",
            "properties": {"b": {}},
            "additionalProperties": False,
            "maxProperties": 1,
        },
        {"if": {"type": "string"}},
        {"type": "object", "patternProperties": {}, "propertyNames": True},
        # Names of properties are no keywords.
        {"type": "object", "properties": {"not": {}, "if": {}, "then": {}, "contains": {}}},
        {"const": {"multipleOf": 7}},
        {"enum": [{"not": 1}]},
    ],
)
def test_a_keyword_that_asks_for_nothing_is_taken(node: Any) -> None:
    assert writable({"type": "object", "properties": {"a": node}}, validated=False)
