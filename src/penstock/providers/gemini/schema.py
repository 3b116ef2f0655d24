"""The caller's JSON Schema in the part of JSON Schema that this API enforces.

What the API does not know is moved into the description, where the model still reads it; the answer
is validated against the caller's own schema in the end, so nothing more is accepted by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import is_circular

_PLAIN = frozenset(
    {
        "$id",
        "$anchor",
        "type",
        "format",
        "title",
        "description",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "required",
        "propertyOrdering",
    }
)
_ONE = frozenset({"items", "additionalProperties"})
_LISTS = frozenset({"prefixItems", "anyOf", "oneOf"})
_MAPS = frozenset({"properties", "$defs"})
_SILENT = frozenset({"$schema", "$comment", "default", "examples", "deprecated"})
"""What constrains nothing, and so need not be said."""
_DEEPEST = 100
_OLD_DEFINITIONS = "#/definitions/"


def is_sayable(schema: JSONObject) -> bool:
    """Whether the API takes it: a type may hold itself only where it may be left out."""
    return not is_circular(schema, optional=False)


def adapt_schema(schema: Mapping[str, Any]) -> JSONObject:
    """A schema of its own; the given one stays as it is."""
    return _adapt(schema, 0)


def _adapt(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping):
        # `true` and `false` have a meaning of their own only as `additionalProperties`.
        return schema if depth == 0 else {}
    given = _merged(cast(Mapping[str, Any], schema))
    if depth >= _DEEPEST:
        return dict(given)
    adapted: JSONObject = {}
    rest: JSONObject = {}
    for key, value in given.items():
        if key in _PLAIN or (key == "enum" and _are_countable(value)):
            adapted[key] = value
        elif key == "const" and _are_countable([value]):
            adapted.setdefault("enum", [value])
        elif key == "$ref":
            adapted["$ref"] = _reference(value)
        elif key in _ONE:
            adapted[key] = value if isinstance(value, bool) else _adapt(value, depth + 1)
        elif key in _LISTS and isinstance(value, list | tuple):
            adapted[key] = [_adapt(each, depth + 1) for each in cast(list[Any], value)]
        elif (key in _MAPS or key == "definitions") and isinstance(value, Mapping):
            inner = cast(Mapping[str, Any], value)
            name = "$defs" if key == "definitions" else key
            known: JSONObject = adapted.get(name, {})
            adapted[name] = known | {each: _adapt(inner[each], depth + 1) for each in inner}
        elif key not in _SILENT:
            rest[key] = value
    if rest:
        adapted["description"] = _described(adapted.get("description"), rest)
    return _lone_reference(adapted)


def _are_countable(values: Any) -> bool:
    """Whether these are texts and numbers, the only values that an `enum` of this API takes."""
    return isinstance(values, list) and all(
        isinstance(value, str | int | float) and not isinstance(value, bool)
        for value in cast(list[Any], values)
    )


def _merged(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take the members of `allOf` in, as pydantic writes them, where they do not contradict."""
    members: Any = schema.get("allOf")
    if not isinstance(members, list) or not members:
        return schema
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    for member in cast(list[Any], members):
        if not isinstance(member, Mapping) or merged.keys() & cast(Mapping[str, Any], member):
            return schema
        merged |= cast(Mapping[str, Any], member)
    return merged


def _reference(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_OLD_DEFINITIONS):
        return "#/$defs/" + value.removeprefix(_OLD_DEFINITIONS)
    return value


def _lone_reference(schema: JSONObject) -> JSONObject:
    """The API allows nothing beside a `$ref` but what begins with `$`."""
    if "$ref" not in schema or all(key.startswith("$") for key in schema):
        return schema
    others = {key: value for key, value in schema.items() if key != "$ref"}
    if "anyOf" in others:
        rule = {"allOf": [{"$ref": schema["$ref"]}]}
        return {**others, "description": _described(others.get("description"), rule)}
    return {**others, "anyOf": [{"$ref": schema["$ref"]}]}


def _described(description: Any, rest: JSONObject) -> str:
    try:
        rules = msgspec.json.encode(rest).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # The caller's own schema has no JSON form, which is reported where the body is written.
        rules = ", ".join(map(str, rest))
    rule = f"Must also satisfy {rules}"
    return f"{description}\n{rule}" if description else rule
