"""What a schema may ask of an answer that llama.cpp writes by a grammar; pure.

llama.cpp leaves out what it cannot follow with a line on stderr, refuses some schemas in words of
its own, and never ends on a text whose shortest length is above its longest. Here a schema is
written as llama.cpp follows it, or refused by what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from penstock.contract.messages import JSONObject
from penstock.providers.embedded.integers import (
    UnreadableSchemaError,
    kinds_of,
    reachable,
    with_limits,
)

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_LONGEST_REPETITION = 2000
"""llama.cpp's own limit."""
_LONGEST_PATTERN = 1000
_SIZES = (
    ("minLength", "maxLength", "a text of {} characters"),
    ("minItems", "maxItems", "a list of {} items"),
)
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
"""A blank stands for `\\s`: JSON cannot hold the others as they are."""
_UNWRITTEN = '"\\\\\\x00-\\x1f'
"""What a text in JSON cannot hold as it is, in a class: left out where a class is a negation."""
_SPECIAL = "^$.[]()|{}*+?\\"
_REPEATED = re.compile(r"\{(\d{0,9})(?:,(\d{0,9}))?\}")
_SHOWN = 80


def writable(schema: JSONObject, *, validated: bool) -> JSONObject:
    """A copy that llama.cpp follows; raises UnreadableSchemaError by what it asks for.

    `validated`: the caller checks the answer itself. Then patterns and keywords are left out that
    cannot be followed.
    """
    copy = with_limits(schema)
    for node in reachable(copy):
        _check_types(node)
        _check_alternatives(node)
        for least, most, what in _SIZES:
            _check_size(node, least, most, what)
        _write_pattern(node, validated)
        for name in [each for each, holds in _UNFOLLOWED.items() if each in node and holds(node)]:
            if not validated:
                raise UnreadableSchemaError(f"{name} {_shown(node[name])}")
            del node[name]
    return copy


def _more_properties(node: JSONObject) -> bool:
    least, required = node["minProperties"], node.get("required", [])
    named = len(cast("list[Any]", required)) if isinstance(required, list) else 0
    return not isinstance(least, int) or least > named


def _fewer_properties(node: JSONObject) -> bool:
    most, known = node["maxProperties"], cast(JSONObject, node.get("properties", {}))
    closed = node.get("additionalProperties") is False
    return not (closed and isinstance(most, int) and most >= len(known))


_UNFOLLOWED: Mapping[str, Callable[[JSONObject], bool]] = {
    "contains": lambda _: True,
    "dependentRequired": lambda node: bool(node["dependentRequired"]),
    "dependentSchemas": lambda node: bool(node["dependentSchemas"]),
    "dependencies": lambda node: bool(node["dependencies"]),
    "if": lambda node: "then" in node or "else" in node,
    "maxProperties": _fewer_properties,
    "minProperties": _more_properties,
    "multipleOf": lambda node: (node["multipleOf"], node.get("type")) != (1, "integer"),
    "not": lambda _: True,
    "patternProperties": lambda node: bool(node["patternProperties"]),
    "propertyNames": lambda node: node["propertyNames"] not in (True, {}),
    "uniqueItems": lambda node: bool(node["uniqueItems"]),
}
"""Keywords that llama.cpp ignores without a word, and whether one asks for something here."""


def _check_types(node: JSONObject) -> None:
    if "type" in node:
        for kind in kinds_of(node):
            if not isinstance(kind, str) or kind not in _TYPES:
                raise UnreadableSchemaError(f"the type {_shown(kind)}, which JSON does not have")
    properties: Any = node.get("properties", {})
    if not isinstance(properties, dict):
        raise UnreadableSchemaError(f"the properties {_shown(properties)}, which are not an object")
    named = cast(JSONObject, properties)
    places: list[tuple[JSONObject, str]] = [(node, "items"), *((named, name) for name in named)]
    for holder, name in places:
        if holder.get(name) is True:
            holder[name] = {}
        elif holder.get(name) is False:
            raise UnreadableSchemaError(f"{_shown(name)}, which the schema forbids")
    reference = node.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise UnreadableSchemaError(
            f"the schema at {_shown(reference)}; only references within a schema are followed"
        )


def _check_alternatives(node: JSONObject) -> None:
    for name in ("enum", "anyOf", "oneOf", "allOf"):
        if name in node and not (isinstance(node[name], list) and node[name]):
            raise UnreadableSchemaError(f"{name} without any entry")


def _check_size(node: JSONObject, least: str, most: str, what: str) -> None:
    for name in (least, most):
        value: Any = node.get(name, 0)
        if isinstance(value, float) and value.is_integer():
            node[name] = value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UnreadableSchemaError(f"{name} {_shown(value)}, which is not a natural number")
    low = cast(int, node.get(least, 0))
    if low > cast(int, node.get(most, low)):
        both = what.format(f"{low} to {node[most]}")
        raise UnreadableSchemaError(f"{both}, and there is none")
    if low > _LONGEST_REPETITION:
        raise UnreadableSchemaError(
            f"{what.format(f'{low} or more')}; the most that this model counts to is "
            f"{_LONGEST_REPETITION}"
        )
    if low and cast(int, node.get(most, 0)) > _LONGEST_REPETITION:
        # Longer than any answer of this model: nothing is lost without it.
        del node[most]


def _write_pattern(node: JSONObject, validated: bool) -> None:
    pattern: Any = node.get("pattern")
    if "pattern" not in node:
        return
    try:
        node["pattern"] = written_pattern(pattern)
    except UnreadableSchemaError:
        if not validated:
            raise
        del node["pattern"]


def written_pattern(pattern: object) -> str:
    """The same pattern without the escapes that llama.cpp does not know.

    Raises UnreadableSchemaError for one that needs more than literals, classes, groups,
    alternatives and repetitions between `^` and `$`.
    """
    refuse = _refusal(pattern)
    if not isinstance(pattern, str) or len(pattern) > _LONGEST_PATTERN:
        raise refuse(f"it must be a text of up to {_LONGEST_PATTERN} characters")
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise refuse("it must begin with ^ and end with $")
    out, inside, place, end = ["^"], False, 1, len(pattern) - 1
    while place < end:
        piece, here = "", pattern[place]
        if here == "\\":
            piece = _escape(pattern[place + 1], inside) if place + 1 < end else ""
            if not piece:
                raise refuse(f"it has the escape {pattern[place : place + 2]}")
            place += 2
        else:
            if not inside:
                _check_outside(pattern, place, refuse)
            inside = here != "]" if inside else here == "["
            piece, place = here, place + 1
            if inside and here == "[" and pattern[place : place + 1] == "^":
                piece, place = f"[^{_UNWRITTEN}", place + 1
        out.append(piece)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise refuse(f"it is not a regular expression: {error}") from None
    return "".join([*out, "$"])


def _check_outside(
    pattern: str, place: int, refuse: Callable[[str], UnreadableSchemaError]
) -> None:
    here = pattern[place]
    if here in "^$":
        raise refuse("it has ^ or $ within")
    if here == "(" and pattern[place + 1] == "?" and pattern[place + 2] != ":":
        raise refuse("it has a group that begins with (?")
    found = _REPEATED.match(pattern, place)
    if found and max(int(each or 0) for each in found.groups()) > _LONGEST_REPETITION:
        raise refuse(f"it repeats more than {_LONGEST_REPETITION} times")


def _escape(letter: str, inside: bool) -> str:
    """This escape as llama.cpp knows it, or nothing."""
    if letter in "tnr" or letter in _SPECIAL:
        return f"\\{letter}"
    if letter in "xu":
        return f"\\{letter}"
    if letter in _CLASSES:
        return _CLASSES[letter] if inside else f"[{_CLASSES[letter]}]"
    if letter.lower() in _CLASSES and not inside:
        return f"[^{_UNWRITTEN}{_CLASSES[letter.lower()]}]"
    if inside and letter == "-":
        return "\\-"
    return "" if letter.isalnum() else letter


def _refusal(pattern: object) -> Callable[[str], UnreadableSchemaError]:
    return lambda why: UnreadableSchemaError(f"the pattern {_shown(pattern)}; {why}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
