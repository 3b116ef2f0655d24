"""A user's JSON Schema in the subset that structured outputs take.

What the subset lacks (limits of numbers, lengths and patterns, most formats, defaults) moves into
the description, where the model may still heed it; the answer is checked against the user's own
type in the end. Every object is closed, `oneOf` becomes `anyOf`, a list of types becomes one
variant each, and a schema without a type gets one. Three things cannot be said at all: a type that
holds itself, a map with free keys, and too many optional properties or unions. The input is never
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import has_free_keys, is_circular, nodes, required_names

_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
        "uuid",
    }
)
_DEFINITIONS = ("$defs", "definitions")
_ABOUT_THE_SCHEMA = ("$schema", "$id", "$comment")
_MOST_OPTIONAL = 24
_MOST_UNIONS = 16
_ANYTHING = ("string", "number", "boolean", "null")
_KEYWORDS_OF: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems"),
    "string": ("format",),
}


def is_sayable(schema: JSONObject) -> bool:
    """Whether the API takes the schema without losing what it allows."""
    if is_circular(schema) or has_free_keys(schema):
        return False
    found = list(nodes(schema))
    optional = sum(len(node.get("properties", {}).keys() - required_names(node)) for node in found)
    unions = sum("anyOf" in node or "oneOf" in node for node in found)
    unions += sum(isinstance(node.get("type"), list) for node in found)
    return optional <= _MOST_OPTIONAL and unions <= _MOST_UNIONS


def adapt(schema: Any) -> JSONObject:
    """The schema as the API takes it."""
    if not isinstance(schema, dict):
        # `true` takes anything; `false` has no place in a schema that can be met.
        return _variants(_ANYTHING, {})
    rest = dict(cast(JSONObject, schema))
    for name in _ABOUT_THE_SCHEMA:
        rest.pop(name, None)
    out: JSONObject = {}
    for name in _DEFINITIONS:
        inner = rest.pop(name, None)
        if isinstance(inner, dict):
            out[name] = _each(cast(JSONObject, inner))
    if "$ref" in rest:
        # Nothing may stand beside a reference.
        out["$ref"] = rest["$ref"]
        return out
    kind: Any = rest.pop("type", None)
    _take_literals(rest, out)
    literal = "enum" in out or "const" in out
    combined = _take_combination(rest, out)
    if literal:
        kind = None
    elif not combined:
        kinds = _types(kind or _implied_type(rest))
        if len(kinds) != 1:
            return out | _variants(kinds or _ANYTHING, rest)
        out["type"] = kind = kinds[0]
    for name in ("description", "title"):
        if (value := rest.pop(name, None)) is not None:
            out[name] = value
    if isinstance(kind, str) and kind in _TAKERS:
        _TAKERS[kind](rest, out)
    _describe(rest, out)
    return out


def _each(schemas: JSONObject) -> JSONObject:
    return {name: adapt(inner) for name, inner in schemas.items()}


def _variants(kinds: tuple[str, ...], rest: JSONObject) -> JSONObject:
    """One variant a type, each with the keywords that speak of it; the others stand beside them."""
    common = dict(rest)
    variants: list[JSONObject] = []
    for kind in kinds:
        variant: JSONObject = {"type": kind}
        for name in _KEYWORDS_OF.get(kind, ()):
            if name in rest:
                variant[name] = rest[name]
                common.pop(name, None)
        variants.append(adapt(variant))
    out: JSONObject = {"anyOf": variants}
    for name in ("description", "title"):
        if (value := common.pop(name, None)) is not None:
            out[name] = value
    _describe(common, out)
    return out


def _types(kind: Any) -> tuple[str, ...]:
    kinds = cast(list[Any], kind) if isinstance(kind, list) else [kind]
    # Each once, or a type that is there many times would be adapted as often.
    return tuple(dict.fromkeys(each for each in kinds if isinstance(each, str)))


def _implied_type(rest: JSONObject) -> str | None:
    if "properties" in rest or "required" in rest or "additionalProperties" in rest:
        return "object"
    if "items" in rest or "prefixItems" in rest or "minItems" in rest:
        return "array"
    return None


def _take_literals(rest: JSONObject, out: JSONObject) -> None:
    values = rest.get("enum")
    if isinstance(values, list) and values and all(map(_is_plain, cast(list[Any], values))):
        out["enum"] = rest.pop("enum")
    if "const" in rest and _is_plain(rest["const"]):
        out["const"] = rest.pop("const")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _take_combination(rest: JSONObject, out: JSONObject) -> bool:
    """Take the first of the keywords that combine schemas; the wire takes one beside each other."""
    for name, said in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if isinstance(variants := rest.get(name), list):
            del rest[name]
            out[said] = [adapt(variant) for variant in cast(list[Any], variants)]
            return True
    return False


def _take_object(rest: JSONObject, out: JSONObject) -> None:
    properties = rest.pop("properties", None)
    out["properties"] = _each(cast(JSONObject, properties)) if isinstance(properties, dict) else {}
    rest.pop("additionalProperties", None)
    out["additionalProperties"] = False
    required = rest.pop("required", None)
    if required is not None:
        out["required"] = required


def _take_array(rest: JSONObject, out: JSONObject) -> None:
    items = rest.pop("items", None)
    if items is not None:
        out["items"] = adapt(items)
    if rest.get("minItems") in (0, 1):
        out["minItems"] = rest.pop("minItems")


def _take_string(rest: JSONObject, out: JSONObject) -> None:
    kind = rest.get("format")
    if isinstance(kind, str) and kind in _FORMATS:
        out["format"] = rest.pop("format")


_TAKERS: Mapping[str, Callable[[JSONObject, JSONObject], None]] = {
    "object": _take_object,
    "array": _take_array,
    "string": _take_string,
}


def _describe(rest: JSONObject, out: JSONObject) -> None:
    """Say in words what has no place in the schema."""
    if not rest:
        return
    said = ", ".join(f"{name}: {_words(value)}" for name, value in rest.items())
    before = out.get("description")
    out["description"] = f"{before}\n\n{{{said}}}" if before else f"{{{said}}}"


def _words(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
