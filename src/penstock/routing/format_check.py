"""Whether an answer has the form that was asked for: a label that nobody has to give.

An answer under a JSON Schema must be JSON that fits it, and a tool call must name a tool that was
offered, with arguments that fit. What is checked is the form that models get wrong: kinds, required
and unknown names, enumerations, items. Other keywords of JSON Schema are taken as fulfilled, for a
label must never be wrong in the direction of a fault that is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Content, Text, ToolUse

Schema: TypeAlias = Mapping[str, Any]

_DEEPEST = 32
_MOST_STEPS = 20_000
"""A schema may refer to itself many times over, and whoever asks has written it: what takes longer
to check than some hundredths of a second is not checked."""
_A_STEP = 16
"""So many names, literals or characters are compared in one step."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def validity(request: SamplingRequest, answer: Sequence[Content]) -> bool | None:
    """Whether the answer fits what the request demands of its form; None when it demands nothing.

    None also when that would take too long to find out. An answer without tool calls to a request
    that offers tools is as good as one with them.
    """
    calls = [part for part in answer if isinstance(part, ToolUse)]
    if calls and request.tools:
        schemas = {tool.name: tool.input_schema for tool in request.tools}
        found = [
            fits(call.input, schemas[call.name]) if call.name in schemas else False
            for call in calls
        ]
        return False if False in found else None if None in found else True
    if request.output_schema is None or calls:
        return None
    text = "".join(part.text for part in answer if isinstance(part, Text))
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return fits(value, request.output_schema.schema)


def fits(value: object, schema: Schema) -> bool | None:
    """Whether a value has the form that a JSON Schema describes, as far as it is checked here.

    None when that would take too long.
    """
    try:
        return _fits(value, schema, _Root(schema), 0)
    except _TooLong:
        return None


class _TooLong(Exception):
    """There are too many steps."""


class _Root:
    """The whole schema, and the steps that are left."""

    __slots__ = ("_left", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._left = _MOST_STEPS

    def spend(self, steps: int) -> None:
        """Raise _TooLong when so many are not left."""
        self._left -= steps
        if self._left < 0:
            raise _TooLong


def _fits(value: object, schema: object, root: _Root, depth: int) -> bool:
    root.spend(1)
    if schema is False:
        return False
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return True
    node = cast(dict[str, Any], schema)
    if isinstance(pointer := node.get("$ref"), str):
        root.spend(len(pointer) // _A_STEP)
        return _fits(value, _found(root.schema, pointer), root, depth + 1)
    if not _is_of_kind(value, node.get("type")):
        return False
    if isinstance(allowed := node.get("enum"), list):
        root.spend(len(cast(list[object], allowed)) // _A_STEP)
        if value not in allowed:
            return False
    if "const" in node and value != node["const"]:
        return False
    for word, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        if isinstance(options := node.get(word), list) and not enough(
            _fits(value, each, root, depth + 1) for each in cast(list[object], options)
        ):
            return False
    if isinstance(value, dict):
        return _object_fits(cast(dict[str, object], value), node, root, depth)
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)
        return all(_fits(each, node.get("items"), root, depth + 1) for each in items)
    return True


def _object_fits(value: Mapping[str, object], schema: Schema, root: _Root, depth: int) -> bool:
    required = schema.get("required")
    if isinstance(required, list):
        names = cast(list[object], required)
        root.spend(len(names) // _A_STEP)
        if not all(name in value for name in names):
            return False
    named: Any = schema.get("properties")
    known = cast(dict[str, object], named) if isinstance(named, dict) else {}
    others = schema.get("additionalProperties") if "patternProperties" not in schema else None
    return all(
        _fits(each, known.get(name, others), root, depth + 1) for name, each in value.items()
    )


def _is_of_kind(value: object, kinds: object) -> bool:
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list):
        return True
    return any(_is(value, kind) for kind in cast(list[object], kinds))


def _is(value: object, kind: object) -> bool:
    expected = _KINDS.get(kind) if isinstance(kind, str) else None
    if expected is None:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, expected)


def _found(root: Schema, pointer: str) -> object:
    """What a reference within the schema points to; True, which everything fits, for others."""
    node: object = root
    if not pointer.startswith("#"):
        return True
    for part in pointer[1:].strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not name:
            continue
        if not isinstance(node, dict) or name not in node:
            return True
        node = cast(dict[str, object], node)[name]
    return node
