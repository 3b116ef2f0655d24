r"""The JSON Schema of tools and of answers, as far as Ollama reads it.

A tool's parameters are read into fixed fields, and `$ref` is none of them: a property behind one
would reach the model without a type. So references are written out; one that leads into itself
becomes an object that says so. A schema that is just `true` or `false` would be refused.

The schema of an answer becomes a grammar. It knows references, and of patterns only anchored ones
without classes such as `\d`, assertions or named groups; any other would refuse the whole request,
so it goes into the description, and the answer is held to the caller's own type later anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import overlaid, referenced

_Visit: TypeAlias = Callable[[Any], Any]

_BYTES_A_STEP = 256
_SHELVES = frozenset({"$defs", "definitions"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"}) | _SHELVES
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
)
_NESTED = _MAPS | _LISTS | _SINGLE
"""What holds schemas, each of which is a step of its own."""
_PLAIN_PATTERN = re.compile(r"\^(?:[^\\]|\\[^A-Za-z0-9])*\$")


class Room:
    """How much the schemas of one request may grow, in steps: a schema, or some bytes beside it.

    References to references can grow without bounds, and tools come from strangers too.
    """

    __slots__ = ("left",)

    def __init__(self, steps: int = 60_000) -> None:
        """All tools of a request share it."""
        self.left = steps

    def take(self, size: int) -> None:
        """Account for a schema with so many bytes beside its subschemas; raises TooLarge."""
        self.left -= 1 + size // _BYTES_A_STEP
        if self.left < 0:
            raise TooLarge


def for_tool(schema: JSONObject, room: Room | None = None) -> JSONObject:
    """A tool's parameters, with every local reference written out.

    A schema for which there is no room stays as it is.
    """
    try:
        return cast(JSONObject, _WriteOut(schema, room or Room()).visit(schema))
    except (TooLarge, RecursionError):
        return schema


def for_answer(schema: JSONObject) -> JSONObject:
    """An answer's schema, with patterns that no grammar can be made of moved into words."""
    try:
        return cast(JSONObject, _without_patterns(schema))
    except RecursionError:
        return schema


class TooLarge(Exception):
    """The schemas would grow beyond the limit."""


class _WriteOut:
    """Writes the references of one schema out."""

    __slots__ = ("_above", "_room", "_root")

    def __init__(self, root: JSONObject, room: Room) -> None:
        self._root = root
        self._room = room
        self._above: set[str] = set()
        """The references that have led to what is visited."""

    def visit(self, value: Any) -> Any:
        """This schema without references."""
        if isinstance(value, bool):
            self._room.take(0)
            return {} if value else {"description": "Nothing fits here."}
        if not isinstance(value, dict):
            self._room.take(_size(value))
            return value
        node = cast(JSONObject, value)
        self._room.take(sum(_size(inner) for key, inner in node.items() if key not in _NESTED))
        if isinstance(node.get("$ref"), str):
            return self._written_out(node)
        # Definitions are written out where they are referred to.
        plain = {key: inner for key, inner in node.items() if key not in _SHELVES}
        return _children(plain, self.visit)

    def _written_out(self, node: JSONObject) -> Any:
        """What the reference leads to, with what stands beside it and beside further references."""
        chain = [node]
        entered: list[str] = []
        again = ""
        while isinstance(reference := chain[-1].get("$ref"), str):
            self._room.take(len(reference))
            if reference in self._above:
                again = reference
                break
            target = referenced(reference, self._root)
            if not isinstance(target, dict):
                break
            self._above.add(reference)
            entered.append(reference)
            chain.append(cast(JSONObject, target))
        whole = overlaid(chain, "$ref")
        if again:
            del whole["$ref"]
            name = again.rpartition("/")[2]
            whole = {"type": "object", "description": f"Again a {name}.", **whole}
        elif "$ref" not in whole:
            whole = self.visit(whole)
        self._above.difference_update(entered)
        return whole


def _without_patterns(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    node = _children(cast(JSONObject, value), _without_patterns)
    pattern = node.get("pattern")
    if not isinstance(pattern, str) or (_PLAIN_PATTERN.fullmatch(pattern) and "(?" not in pattern):
        return node
    del node["pattern"]
    said = node.get("description")
    rule = f"Matches the regular expression {pattern}"
    node["description"] = f"{said} {rule}" if isinstance(said, str) and said else rule
    return node


def _size(value: Any) -> int:
    """About how many bytes a value takes in JSON."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list | dict):
        return 0
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError):
        return 0  # which is reported where the body is written


def _children(node: JSONObject, visit: _Visit) -> JSONObject:
    """A copy of the node whose subschemas have been visited; literals stay as they are."""
    found: JSONObject = {}
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            inner = cast(JSONObject, value)
            found[key] = {name: visit(each) for name, each in inner.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [visit(each) for each in cast(list[Any], value)]
        elif key in _SINGLE and isinstance(value, dict):
            found[key] = visit(value)
        else:
            found[key] = value
    return found
