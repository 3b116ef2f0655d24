"""Which settings there are at a place of the configuration, for who has misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, cast

from penstock.config.settings import Config


def no_such_setting(path: Sequence[str | int]) -> str:
    """What is wrong with a name that no setting has, and which it might have been."""
    there, name = names_at(path[:-1]), str(path[-1])
    near = difflib.get_close_matches(name, there, 1)
    if near:
        return f"there is no such setting; did you mean {near[0]}?"
    known = f"there are {', '.join(sorted(there))}; " if there else ""
    return f"there is no such setting; {known}`penstock init` explains them all"


def names_at(path: Sequence[str | int]) -> list[str]:
    """The names of the settings in the table at this path; none where there is no table."""
    schema = _schema()
    found = [schema]
    for part in path:
        found = [inner for each in found for inner in _inner(each, part, schema)]
    return list(dict.fromkeys(name for each in found for name in each.get("properties", ())))


@cache
def _schema() -> dict[str, Any]:
    return Config.model_json_schema()


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
