"""The names that a JSON Schema knows at a place, for suggestions to callers who misspell one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from penstock.contract.messages import JSONObject


def names_in(schema: JSONObject, path: Sequence[str | int]) -> list[str]:
    """The names of the properties of the object at this path; none where there is no object."""
    found = list(_shapes(schema, schema))
    for part in path:
        found = [inner for each in found for inner in _inner(each, part, schema)]
    return list(dict.fromkeys(name for each in found for name in each.get("properties", ())))


def _inner(
    node: dict[str, Any], part: str | int, whole: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The shapes that a member of this name, or an item, may have."""
    own = node.get("properties", {}).get(part)
    if own is not None:
        yield from _shapes(own, whole)
        return
    for each in ("additionalProperties", "items"):
        yield from _shapes(node.get(each), whole)
    for each in node.get("patternProperties", {}).values():
        yield from _shapes(each, whole)


def _shapes(node: object, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not isinstance(node, dict):
        return
    shape = cast(dict[str, Any], node)
    if "$ref" in shape:
        yield from _shapes(whole["$defs"][shape["$ref"].rpartition("/")[2]], whole)
    for each in shape.get("anyOf", ()):
        yield from _shapes(each, whole)
    yield shape
