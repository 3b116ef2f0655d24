"""JSON Schema as strict mode takes it.

Strict mode makes the model's answer fit a schema for certain, but knows a part of JSON Schema only:
an object at the root, every property required, no other properties, no `oneOf`, `allOf` or `not`.

- What it does not know is written into the description, where the model reads it, and is checked by
  whoever validates the answer.
- A property that may be left out becomes required and may be null, so the model says null for
  "absent". A tool's arguments go to the tool as they are, so there only properties that take null
  anyway are treated so.
- A schema that cannot be said at all (a map with free keys, a value of any type) gives None, and
  the caller sends the original without strict mode.

Nothing here changes the schema that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import msgspec

from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import overlaid, required_names

_KEPT = frozenset(
    {
        *("type", "title", "enum", "const", "multipleOf", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    }
)
_HANDLED = frozenset(
    {
        *("description", "properties", "required", "additionalProperties", "items", "prefixItems"),
        *("anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "format", "pattern"),
    }
)
_SILENT = frozenset(
    {
        *("$schema", "$id", "$comment", "$anchor", "discriminator"),
        *("deprecated", "readOnly", "writeOnly"),
    }
)
_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email"),
        *("hostname", "ipv4", "ipv6", "uuid"),
    }
)
_TYPE_NAMES: Mapping[object, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
_MAX_PROPERTIES = 5000
_MAX_ENUM_VALUES = 1000
_MAX_DEPTH = 10
_NULL: JSONObject = {"type": "null"}


class _Inexpressible(Exception):
    """Strict mode has no words for this schema."""


def strict_schema(schema: JSONObject, *, null_for_absent: bool = True) -> JSONObject | None:
    """The schema for strict mode; None when strict mode cannot say it.

    Without `null_for_absent`, a property that may be left out but may not be null cannot be said.
    """
    adapter = _Adapter(schema, null_for_absent)
    try:
        return adapter.root()
    except (_Inexpressible, RecursionError):
        return None


def tool_schema(schema: JSONObject, strict: bool | None) -> tuple[JSONObject, bool]:
    """The schema of a tool's arguments, and whether it is strict; the tool's own wish wins."""
    if strict is not False:
        adapted = strict_schema(schema, null_for_absent=strict is True)
        if adapted is not None:
            return adapted, True
    return rooted(schema), strict is True


def rooted(schema: JSONObject) -> JSONObject:
    """The schema itself, with the root that the wire wants: an object that names its properties."""
    root = _without_root_reference(schema)
    if root.get("type") == "object" and "properties" not in root:
        nothing: JSONObject = {}
        return {**root, "properties": nothing}
    return root


def _without_root_reference(schema: JSONObject) -> JSONObject:
    definitions = _definitions(schema)
    chain = [schema]
    seen: set[str] = set()
    while isinstance(reference := chain[-1].get("$ref"), str):
        name = _name(reference)
        target: Any = definitions.get(name)
        if name in seen or not isinstance(target, dict):
            break
        seen.add(name)
        chain.append(cast(JSONObject, target))
    return overlaid(chain, "$ref") if len(chain) > 1 else schema


def _definitions(schema: JSONObject) -> JSONObject:
    found: JSONObject = {}
    for key in ("definitions", "$defs"):
        value: Any = schema.get(key)
        if isinstance(value, dict):
            found |= cast(JSONObject, value)
    return found


def _name(reference: str) -> str:
    """The name of a definition; empty when the reference leads anywhere else."""
    for place in ("#/$defs/", "#/definitions/"):
        if reference.startswith(place):
            return reference.removeprefix(place).replace("~1", "/").replace("~0", "~")
    return ""


class _Adapter:
    """One walk over one schema."""

    def __init__(self, schema: JSONObject, null_for_absent: bool) -> None:
        self._schema = schema
        self._definitions = _definitions(schema)
        self._null_for_absent = null_for_absent
        self._properties = 0
        self._enum_values = 0

    def root(self) -> JSONObject:
        root = _without_root_reference(self._schema)
        if root.get("type") != "object" or "anyOf" in root or "oneOf" in root or "$ref" in root:
            raise _Inexpressible
        adapted = self._adapt(root, 0)
        if self._definitions:
            adapted["$defs"] = {
                name: self._adapt(value, 1) for name, value in self._definitions.items()
            }
        if self._properties > _MAX_PROPERTIES or self._enum_values > _MAX_ENUM_VALUES:
            raise _Inexpressible
        return adapted

    def _adapt(self, value: Any, depth: int) -> JSONObject:
        if not isinstance(value, dict) or depth > _MAX_DEPTH:
            raise _Inexpressible
        schema = _merged(cast(JSONObject, value))
        notes = [
            _note(key, value)
            for key, value in schema.items()
            if key not in _KEPT and key not in _HANDLED and key not in _SILENT
        ]
        out: JSONObject = {key: value for key, value in schema.items() if key in _KEPT}
        for key, supported in (("format", _is_format), ("pattern", _is_pattern)):
            if key in schema:
                if supported(schema[key]):
                    out[key] = schema[key]
                else:
                    notes.append(_note(key, schema[key]))
        if "$ref" in schema:
            # A reference stands alone on this wire; what stands beside it goes around it.
            reference = self._reference(schema["$ref"])
            if not (out or notes or "description" in schema):
                return reference
            out["anyOf"] = [reference]
        branches: Any = schema.get("anyOf") or schema.get("oneOf")
        if branches is not None:
            out["anyOf"] = [self._adapt(branch, depth) for branch in _list(branches)]
            # An object around its branches would close each of them to the others' properties.
            if "properties" in schema:
                raise _Inexpressible
        self._add_type(out)
        if "object" in _types(out):
            self._add_object(schema, out, depth)
        if "array" in _types(out):
            self._add_items(schema, out, notes, depth)
        description = "\n".join(filter(None, (schema.get("description"), "; ".join(notes))))
        if description:
            out["description"] = description
        return out

    def _reference(self, reference: Any) -> JSONObject:
        if reference == "#":
            return {"$ref": "#"}
        name = _name(reference) if isinstance(reference, str) else ""
        if name not in self._definitions:
            raise _Inexpressible
        return {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1")}

    def _add_type(self, out: JSONObject) -> None:
        values = _list(out["enum"]) if "enum" in out else []
        self._enum_values += len(values)
        if "type" in out or "anyOf" in out:
            return
        if "const" in out:
            values = [out["const"]]
        names = {_TYPE_NAMES.get(cast(object, type(value))) for value in values}
        if not names or None in names:
            raise _Inexpressible
        ordered = sorted(cast(set[str], names))
        out["type"] = ordered[0] if len(ordered) == 1 else ordered

    def _add_object(self, schema: JSONObject, out: JSONObject, depth: int) -> None:
        properties: Any = schema.get("properties")
        free = schema.get("additionalProperties", False) is not False
        if not isinstance(properties, dict) or free or "patternProperties" in schema:
            raise _Inexpressible
        required = required_names(schema)
        adapted: JSONObject = {}
        for name, value in cast(JSONObject, properties).items():
            inner = self._adapt(value, depth + 1)
            if name not in required and not self._nullable(inner):
                if not self._null_for_absent:
                    raise _Inexpressible
                inner = _or_null(inner)
            adapted[name] = inner
        self._properties += len(adapted)
        out["properties"] = adapted
        out["required"] = list(adapted)
        out["additionalProperties"] = False

    def _add_items(self, schema: JSONObject, out: JSONObject, notes: list[str], depth: int) -> None:
        if "prefixItems" in schema:
            notes.append(_note("prefixItems", schema["prefixItems"]))
            kinds = [self._adapt(each, depth + 1) for each in _list(schema["prefixItems"])]
            out["items"] = {"anyOf": kinds}
        else:
            out["items"] = self._adapt(schema.get("items"), depth + 1)

    def _nullable(self, schema: JSONObject) -> bool:
        takes_null, names = _alternatives(schema)
        return takes_null or not self._nullable_names.isdisjoint(names)

    @cached_property
    def _nullable_names(self) -> set[str]:
        """The definitions that take null, by themselves or by what they refer to."""
        referring: dict[str, list[str]] = {}
        found: list[str] = []
        for name, schema in self._definitions.items():
            takes_null, names = _alternatives(schema)
            if takes_null:
                found.append(name)
            for each in names:
                referring.setdefault(each, []).append(name)
        known = set(found)
        for name in found:
            further = [each for each in referring.get(name, ()) if each not in known]
            known.update(further)
            found += further
        return known


def _alternatives(schema: Any) -> tuple[bool, list[str]]:
    """Whether a schema itself takes null, and the definitions that may do so in its place."""
    takes_null = False
    names: list[str] = []
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict):
            continue
        node = cast(JSONObject, each)
        if "$ref" in node:
            names += [_name(node["$ref"])] if isinstance(node["$ref"], str) else []
        elif "enum" in node:
            takes_null = takes_null or None in node["enum"]
        elif isinstance(branches := node.get("anyOf"), list):
            waiting += cast(list[Any], branches)
        else:
            takes_null = takes_null or "null" in _types(node)
    return takes_null, names


def _merged(schema: JSONObject) -> JSONObject:
    """An `allOf` of one is that one; of more, there is no way to say it."""
    chain = [schema]
    while "allOf" in chain[-1]:
        parts = _list(chain[-1]["allOf"])
        if len(parts) != 1 or not isinstance(parts[0], dict):
            raise _Inexpressible
        chain.append(cast(JSONObject, parts[0]))
    return overlaid(chain, "allOf")


def _or_null(schema: JSONObject) -> JSONObject:
    if schema.keys() <= {"anyOf", "description", "title"}:
        return {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    if schema.keys() & {"$ref", "enum", "const", "anyOf", "properties"}:
        return {"anyOf": [schema, _NULL]}
    return {**schema, "type": [*_types(schema), "null"]}


def _types(schema: JSONObject) -> Sequence[Any]:
    kind: Any = schema.get("type", ())
    return [kind] if isinstance(kind, str) else cast(Sequence[Any], kind)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _Inexpressible
    return cast(list[Any], value)


def _is_format(value: Any) -> bool:
    return isinstance(value, str) and value in _FORMATS


def _is_pattern(value: Any) -> bool:
    # Lookarounds and flags are not in the wire's regular expressions.
    return isinstance(value, str) and "(?" not in value


def _note(key: str, value: Any) -> str:
    try:
        return f"{key}: {msgspec.json.encode(value).decode()}"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _Inexpressible from error
