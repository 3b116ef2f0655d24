"""The part of JSON Schema that each API publishes; a schema outside it is refused with a 400."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

Schema: TypeAlias = dict[str, Any]

_WORDS = frozenset({"title", "description"})
_REFERENCES = frozenset({"$ref", "$defs"})
_STRUCTURE = frozenset({"type", "properties", "required", "additionalProperties", "items", "anyOf"})
_BOUNDS = frozenset({"minimum", "maximum"})
_SIZES = frozenset({"minItems", "maxItems"})
_CLOCK = frozenset({"date-time", "time", "date", "duration"})
_NET = frozenset({"email", "hostname", "ipv4", "ipv6", "uuid"})

_OPENAI = (_WORDS | _REFERENCES | _STRUCTURE | _BOUNDS | _SIZES) | {
    *("enum", "const", "format", "pattern", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
}
_ANTHROPIC = (_WORDS | _REFERENCES | _STRUCTURE) | {
    *("definitions", "enum", "const", "allOf", "format", "minItems", "default"),
}
_GEMINI = (_WORDS | _REFERENCES | _STRUCTURE | _BOUNDS | _SIZES) | {
    *("$id", "$anchor", "format", "enum", "prefixItems", "oneOf", "propertyOrdering"),
}


def check_openai(schema: Schema) -> None:
    """Strict mode of both OpenAI APIs; raises ValueError."""
    _refuse(schema.get("type") != "object" or "anyOf" in schema, schema, "the root is no object")
    found = list(_nodes(schema))
    for node in found:
        _known(node, _OPENAI)
        _refuse("$ref" in node and len(node) > 1, node, "$ref cannot have keywords beside it")
        _refuse(not node.keys() & {"type", "anyOf", "$ref"}, node, "there is no type")
        _refuse(node.get("format", "date") not in _CLOCK | _NET, node, "an unknown format")
        if "object" in _types(node):
            _closed(node)
            _refuse(
                set(node["properties"]) != set(node.get("required", ())),
                node,
                "required must name every property",
            )
        _refuse("array" in _types(node) and "items" not in node, node, "an array without items")
    _refuse(_depth(schema) > 10, schema, "more than 10 levels")
    _refuse(sum(len(node.get("properties", ())) for node in found) > 5000, schema, "too large")
    _refuse(sum(len(node.get("enum", ())) for node in found) > 1000, schema, "too many values")
    _resolve_all(schema)


def check_anthropic(schema: Schema) -> None:
    """Structured outputs and strict tools of Anthropic; raises ValueError."""
    _check_claude(schema)
    found = list(_nodes(schema))
    for node in found:
        _refuse(isinstance(node.get("type"), list), node, "one type at a time")
        _refuse("$ref" in node and bool(node.keys() - _REFERENCES), node, "beside a $ref")
    optional = sum(
        len(node.get("properties", {}).keys() - set(node.get("required", ()))) for node in found
    )
    _refuse(optional > 24, schema, f"{optional} optional parameters, 24 are the limit")
    unions = sum("anyOf" in node for node in found)
    _refuse(unions > 16, schema, f"{unions} parameters with unions, 16 are the limit")


def check_bedrock(schema: Schema) -> None:
    """Structured output of Converse; raises ValueError."""
    _check_claude(schema)


def check_gemini(schema: Schema) -> None:
    """`responseJsonSchema`; raises ValueError."""
    for node in _nodes(schema):
        _known(node, _GEMINI)
        beside = [key for key in node if not key.startswith("$")]
        _refuse("$ref" in node and bool(beside), node, "beside a $ref")
        for value in node.get("enum", ()):
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            _refuse(not plain, node, "enum is for strings and numbers")
    _resolve_all(schema)
    _refuse(_circle(schema, optional=False), schema, "a cycle of required properties")


def check_ollama(schema: Schema) -> None:
    """`format`, of which llama.cpp makes a grammar; raises ValueError."""
    for node in _nodes(schema):
        if (pattern := node.get("pattern")) is not None:
            _refuse(not re.fullmatch(r"\^.*\$", pattern), node, "a pattern must be anchored")
            _refuse(bool(re.search(r"\\[A-Za-z0-9]|\(\?", pattern)), node, "not in the grammar")
    _resolve_all(schema)


def _check_claude(schema: Schema) -> None:
    for node in _nodes(schema):
        _known(node, _ANTHROPIC)
        _refuse(node.get("minItems", 0) not in (0, 1), node, "minItems must be 0 or 1")
        _refuse(node.get("format", "date") not in _CLOCK | _NET | {"uri"}, node, "a format")
        if "object" in _types(node):
            _closed(node)
        for value in node.get("enum", ()):
            _refuse(isinstance(value, dict | list), node, "a complex type in an enum")
        references = [each for each in node.get("allOf", ()) if "$ref" in each]
        _refuse(bool(references), node, "allOf with $ref")
    _resolve_all(schema)
    _refuse(_circle(schema, optional=True), schema, "a circular reference")


def _refuse(wrong: bool, node: Schema, reason: str) -> None:
    if wrong:
        raise ValueError(f"{reason}: {node}")


def _known(node: Schema, keywords: frozenset[str]) -> None:
    _refuse(bool(node.keys() - keywords), node, f"unsupported {sorted(node.keys() - keywords)}")


def _closed(node: Schema) -> None:
    _refuse(node.get("additionalProperties") is not False, node, "the object is open")
    _refuse(not isinstance(node.get("properties", {}), dict), node, "properties are missing")


def _types(node: Schema) -> list[str]:
    kind: Any = node.get("type", [])
    return [kind] if isinstance(kind, str) else kind


def _inside(node: Schema, *, optional: bool = True) -> Iterator[Schema]:
    for key in ("properties", "$defs", "definitions"):
        named: Schema = node.get(key, {})
        for name, each in named.items():
            if optional or key != "properties" or name in node.get("required", ()):
                yield each
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from node.get(key, ())
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield node[key]


def _nodes(schema: Schema) -> Iterator[Schema]:
    assert isinstance(cast(object, schema), dict), f"{schema!r} is no schema"
    yield schema
    for each in _inside(schema):
        yield from _nodes(each)


def _depth(schema: Schema) -> int:
    deeper = max(map(_depth, _inside(schema)), default=0)
    return deeper + bool(schema.keys() & {"properties", "items"})


def _target(reference: str, schema: Schema) -> Schema:
    place: Any = schema
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            place = place[step.replace("~1", "/").replace("~0", "~")]
    return place


def _resolve_all(schema: Schema) -> None:
    for node in _nodes(schema):
        if "$ref" in node:
            try:
                _target(node["$ref"], schema)
            except (KeyError, TypeError):
                raise ValueError(f"{node['$ref']} leads nowhere") from None


def _circle(schema: Schema, *, optional: bool) -> bool:
    def reaches(node: Schema, above: tuple[str, ...]) -> bool:
        reference = node.get("$ref")
        if reference in above:
            return True
        if reference is not None:
            return reaches(_target(reference, schema), (*above, reference))
        return any(
            reaches(each, above)
            for each in _inside({**node, "$defs": {}, "definitions": {}}, optional=optional)
        )

    return reaches(schema, ("#",))
