"""The user's JSON Schema, in the part of JSON Schema that Bedrock's structured output takes.

Objects are closed (`additionalProperties: false`) and `oneOf` becomes `anyOf`. Limits that the API
does not know (of numbers, lengths, patterns, most formats) move into the description, where the
model still reads them; the answer is checked against the user's own type in any case. A type that
holds itself and a map with free keys cannot be said at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import has_free_keys, is_circular

_DEPTH_LIMIT = 100
_KEPT = frozenset({"type", "enum", "const", "title", "default", "required", "$ref"})
_LISTS = ("anyOf", "allOf")
_MAPS = ("$defs", "definitions", "properties")
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_SILENT = frozenset({"$schema", "$id", "$comment", "examples"})
"""What says nothing that the model should know."""


def is_sayable(schema: JSONObject) -> bool:
    """Whether the API takes the schema without losing what it allows."""
    return not is_circular(schema) and not has_free_keys(schema)


def adapt(schema: JSONObject) -> JSONObject:
    """An equal or narrower schema that the API takes; the given one stays as it is."""
    return _adapt(schema, 0)


def _adapt(schema: Mapping[str, Any], depth: int) -> JSONObject:
    if depth > _DEPTH_LIMIT:
        raise InvalidRequest.of(
            [Problem("output_schema", f"is nested more than {_DEPTH_LIMIT} levels deep")]
        )
    adapted: JSONObject = {}
    notes: JSONObject = {}
    for key, value in schema.items():
        if key in _KEPT or (key == "format" and isinstance(value, str) and value in _FORMATS):
            adapted[key] = value
        elif key in _MAPS and isinstance(value, dict):
            parts = cast(dict[str, Any], value)
            adapted[key] = {name: _inner(part, depth) for name, part in parts.items()}
        elif key in _LISTS and isinstance(value, list):
            adapted[key] = [_inner(part, depth) for part in cast(list[Any], value)]
        elif key == "oneOf" and isinstance(value, list) and "anyOf" not in schema:
            adapted["anyOf"] = [_inner(part, depth) for part in cast(list[Any], value)]
        elif key == "items" and isinstance(value, dict):
            adapted[key] = _inner(value, depth)
        elif key == "minItems" and value in (0, 1):
            adapted[key] = value
        elif key not in ("description", "additionalProperties") and key not in _SILENT:
            notes[key] = value
    _close(schema, adapted, notes)
    _describe(schema, adapted, notes)
    return adapted


def _inner(value: Any, depth: int) -> Any:
    return _adapt(cast(dict[str, Any], value), depth + 1) if isinstance(value, dict) else value


def _close(schema: Mapping[str, Any], adapted: JSONObject, notes: JSONObject) -> None:
    kind: Any = schema.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if is_object or "properties" in schema:
        adapted["additionalProperties"] = False
        if isinstance(schema.get("additionalProperties"), dict):
            notes["additionalProperties"] = schema["additionalProperties"]


def _describe(schema: Mapping[str, Any], adapted: JSONObject, notes: JSONObject) -> None:
    given: Any = schema.get("description")
    lines = [given] if isinstance(given, str) and given else []
    if notes:
        try:
            said = (f"{key}: {msgspec.json.encode(value).decode()}" for key, value in notes.items())
            lines.append(f"({', '.join(said)})")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidRequest.of(
                [Problem("output_schema", f"cannot be written as JSON: {error}")]
            ) from error
    if lines:
        adapted["description"] = " ".join(lines)
