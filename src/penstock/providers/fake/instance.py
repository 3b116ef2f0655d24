"""The smallest value that fits a JSON Schema, so that a fake model can obey one."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias, cast

Schema: TypeAlias = dict[str, Any]

_BY_FORMAT = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_COMPARE = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}
_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_TYPE_OF_KEYWORD = {"properties": "object", "required": "object", "items": "array"}


def instance_of(schema: Schema) -> Any:
    """A deterministic value for the common part of JSON Schema; patterns are not looked at."""
    return _build(schema, schema, ())


def _build(schema: Any, root: Schema, path: tuple[str, ...]) -> Any:
    """`path` holds the references that are being followed, for a schema may hold itself."""
    if not isinstance(schema, dict):
        schema = {}
    node, path = _flatten(cast(Schema, schema), root, path)
    for key in ("const", "default"):
        if key in node:
            return node[key]
    if choices := node.get("enum"):
        return choices[0]
    kind: Any = node.get("type") or _implied_type(node)
    return _of_type(kind if isinstance(kind, str) else kind[0], node, root, path)


def _flatten(schema: Schema, root: Schema, path: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """The schema with references, `allOf` and one branch of each choice merged into it."""
    node = {key: value for key, value in schema.items() if key not in _COMBINING}
    branches = list(schema.get("allOf", ()))
    branches += [_finite(schema[key], path) for key in ("anyOf", "oneOf") if schema.get(key)]
    if reference := schema.get("$ref"):
        path = (*path, reference)
        branches.append(_resolve(reference, root))
    for branch in branches:
        part, path = _flatten(branch, root, path)
        node = _merge(part, node)
    return node, path


def _finite(branches: list[Schema], path: tuple[str, ...]) -> Schema:
    """The first branch that does not lead back to where we come from."""
    return next((branch for branch in branches if branch.get("$ref") not in path), branches[0])


def _merge(first: Schema, second: Schema) -> Schema:
    merged = {**first, **second}
    if "properties" in first and "properties" in second:
        merged["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return merged


def _implied_type(node: Schema) -> str:
    return next((kind for key, kind in _TYPE_OF_KEYWORD.items() if key in node), "string")


def _of_type(kind: str, node: Schema, root: Schema, path: tuple[str, ...]) -> Any:
    if kind == "object":
        properties: Mapping[str, Any] = node.get("properties", {})
        others = node.get("additionalProperties")
        required = node.get("required", [])
        return {name: _build(properties.get(name, others), root, path) for name in required}
    if kind == "array":
        items = [_build(item, root, path) for item in node.get("prefixItems", [])]
        more = max(0, node.get("minItems", 0) - len(items))
        items += [_build(node.get("items"), root, path) for _ in range(more)]
        return items[: node["maxItems"]] if "maxItems" in node else items
    if kind in ("integer", "number"):
        return _number(kind, node)
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    text = _BY_FORMAT.get(node.get("format", ""), "text")
    text = text.ljust(node.get("minLength", 0), "x")
    return text[: node["maxLength"]] if "maxLength" in node else text


def _number(kind: str, node: Schema) -> int | float:
    """Zero where it fits, else a number at or next to a bound; exact, as floats do not divide."""
    step = Fraction(str(node.get("multipleOf", 1)))
    stepped = kind == "integer" or "multipleOf" in node
    if kind == "integer":
        step = Fraction(step.numerator)  # the least whole number that is a multiple of the step
    rules = {key: Fraction(str(node[key])) for key in _COMPARE if key in node}
    bounds = list(rules.values())
    candidates = [Fraction(0), *bounds, sum(bounds, Fraction(0)) / max(1, len(bounds))]
    for bound in bounds:
        below = bound // step * step
        candidates += [below, below + step, below - step]
    fitting = (
        value
        for value in candidates
        if all(_COMPARE[key](value, bound) for key, bound in rules.items())
        and not (stepped and value % step)
    )
    value = next(fitting, Fraction(0))
    return int(value) if value.denominator == 1 else float(value)


def _resolve(reference: str, root: Schema) -> Schema:
    node: Any = root
    for piece in reference.removeprefix("#").strip("/").split("/"):
        node = node.get(piece.replace("~1", "/").replace("~0", "~"), {}) if piece else node
    return cast(Schema, node)
