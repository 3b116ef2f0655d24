"""Takes back the nulls by which strict schemas have a model say "left out"."""

from __future__ import annotations

from typing import Any, cast

from penstock.contract.messages import JSONObject

_DEEPEST = 100


def without_added_nulls(value: Any, schema: JSONObject) -> Any:
    """The value without each null that stands for a property which may be absent but not null."""
    return _cleaned(value, schema, schema, 0)


def _cleaned(value: Any, schema: Any, root: JSONObject, depth: int) -> Any:
    if depth > _DEEPEST:
        return value
    kinds = _branches(schema, root, value)
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
    if schema is True:
        return True
    for kind in _branches(schema, root, None):
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


def _branches(schema: Any, root: JSONObject, value: Any) -> list[JSONObject]:
    """The plain schemas that this one is made of, without those that the value's tags rule out.

    Each is there once, whatever refers to it: unions of types that hold themselves would double
    with every level of the value.
    """
    found: list[JSONObject] = []
    seen: set[int] = set()
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict) or id(cast(object, each)) in seen:
            continue
        node = cast(JSONObject, each)
        seen.add(id(node))
        reference: Any = node.get("$ref")
        choices = [*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())]
        if isinstance(reference, str):
            choices.append(_resolved(reference, root))
        waiting += reversed(choices)
        if not choices and not _ruled_out(node, value):
            found.append(node)
    return found


def _ruled_out(schema: JSONObject, value: Any) -> bool:
    """Whether a property that has few values in this schema has another one here.

    Null says nothing: it may be one of those that stand for "absent".
    """
    if not isinstance(value, dict):
        return False
    given = cast(JSONObject, value)
    properties: dict[str, Any] = schema.get("properties", {})
    return any(
        given.get(name) is not None and given[name] not in allowed
        for name, inner in properties.items()
        if (allowed := _literals(inner)) is not None
    )


def _literals(schema: Any) -> list[Any] | None:
    if not isinstance(schema, dict):
        return None
    node = cast(JSONObject, schema)
    return [node["const"]] if "const" in node else node.get("enum")


def _resolved(reference: str, root: JSONObject) -> Any:
    if reference == "#":
        return root
    name = reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
    return root.get("$defs", {}).get(name)
