"""Takes back the nulls by which strict schemas have a model say "left out"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from penstock.contract.messages import JSONObject

_DEEPEST = 100


def without_added_nulls(value: Any, schema: JSONObject) -> Any:
    """The value without each null that stands for a property which may be absent but not null."""
    return _cleaned(value, schema, schema, 0)


def _cleaned(value: Any, schema: Any, root: JSONObject, depth: int) -> Any:
    if depth > _DEEPEST:
        return value
    kinds = list(_branches(schema, root, value, 0))
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [
            _cleaned(item, _item_schema(kinds, n), root, depth + 1) for n, item in enumerate(items)
        ]
    if not isinstance(value, dict):
        return value
    return {
        name: _cleaned(inner, {"anyOf": _property(kinds, name)}, root, depth + 1)
        for name, inner in cast(JSONObject, value).items()
        if inner is not None or not _added(kinds, name, root)
    }


def _added(kinds: list[JSONObject], name: str, root: JSONObject) -> bool:
    """Whether all that may describe the object let this property be absent, and none be null."""
    known = [kind for kind in kinds if name in kind.get("properties", {})]
    return bool(known) and all(
        name not in kind.get("required", ()) and not _takes_null(kind["properties"][name], root)
        for kind in known
    )


def _takes_null(schema: Any, root: JSONObject) -> bool:
    for kind in _branches(schema, root, None, 0):
        type_names: Any = kind.get("type")
        if "enum" in kind or "const" in kind:
            if None in kind.get("enum", [kind.get("const", ...)]):
                return True
        elif type_names is None or type_names == "null" or "null" in cast(list[str], type_names):
            return True
    return False


def _property(kinds: list[JSONObject], name: str) -> list[Any]:
    found: list[Any] = []
    for kind in kinds:
        others = kind.get("additionalProperties")
        inner = kind.get("properties", {}).get(name, others)
        if isinstance(inner, dict):
            found.append(inner)
    return found


def _item_schema(kinds: list[JSONObject], index: int) -> JSONObject:
    found: list[Any] = []
    for kind in kinds:
        first: list[Any] = kind.get("prefixItems", [])
        inner = first[index] if index < len(first) else kind.get("items")
        if isinstance(inner, dict):
            found.append(inner)
    return {"anyOf": found}


def _branches(schema: Any, root: JSONObject, value: Any, depth: int) -> Iterator[JSONObject]:
    """The plain schemas that this one is made of, without those that the value's tags rule out."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    node = cast(JSONObject, schema)
    reference: Any = node.get("$ref")
    if isinstance(reference, str):
        yield from _branches(_resolved(reference, root), root, value, depth + 1)
    choices = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
    for choice in choices:
        yield from _branches(choice, root, value, depth + 1)
    if not choices and reference is None and not _ruled_out(node, value):
        yield node


def _ruled_out(schema: JSONObject, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    given = cast(JSONObject, value)
    properties: dict[str, JSONObject] = schema.get("properties", {})
    return any(
        "const" in inner and name in given and given[name] != inner["const"]
        for name, inner in properties.items()
    )


def _resolved(reference: str, root: JSONObject) -> Any:
    if reference == "#":
        return root
    name = reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
    return root.get("$defs", {}).get(name)
