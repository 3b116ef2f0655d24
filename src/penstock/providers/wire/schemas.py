"""What some APIs cannot say in the schema of an answer, and how it is asked for then."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject

_BY_NAME = ("properties", "$defs", "definitions")
_IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ALONE = ("items", "additionalProperties")
_SHELVES = ("$defs", "definitions")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def in_words(request: SamplingRequest, sayable: Callable[[JSONObject], bool]) -> SamplingRequest:
    """The request with its schema as an instruction, where the API's own way cannot say it.

    Only if the caller takes that: then it is the caller who makes sure that the answer fits.
    """
    output = request.output_schema
    if output is None or not output.prompted or sayable(output.schema):
        return request
    return request.with_schema_in_words()


def nodes(
    schema: Any, *, optional: bool = True, seen: set[int] | None = None
) -> Iterator[JSONObject]:
    """The schema and all schemas in it, or without those of `optional` properties.

    References are not followed. With `seen`, the ids of schemas, those are left out and the others
    are added.
    """
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if seen is not None:
                if id(cast(object, node)) in seen:
                    continue
                seen.add(id(cast(object, node)))
            yield cast(JSONObject, node)
            waiting += _inside(cast(JSONObject, node), optional)


def has_free_keys(schema: JSONObject) -> bool:
    """Whether some object is a map: any keys may be there, and none is named."""
    return any(_is_map(node) for node in nodes(schema))


def is_circular(schema: JSONObject, *, optional: bool = True) -> bool:
    """Whether some definition leads back to itself, or does so without `optional` properties."""
    parts: dict[str, Any] = {
        f"#/{shelf}/{_escaped(name)}": inner
        for shelf in _SHELVES
        if isinstance(schema.get(shelf), dict)
        for name, inner in schema[shelf].items()
    }
    parts["#"] = {key: value for key, value in schema.items() if key not in _SHELVES}
    leads_to = {place: _references(part, optional) & parts.keys() for place, part in parts.items()}
    entered = Counter(target for targets in leads_to.values() for target in targets)
    # A part that no other refers to is taken away, until only circles and what they enter are left.
    free = [place for place in parts if not entered[place]]
    for place in free:
        for target in leads_to.pop(place):
            entered[target] -= 1
            if not entered[target]:
                free.append(target)
    return bool(leads_to)


def referenced(reference: str, root: JSONObject) -> Any:
    """What a reference within this schema leads to, or None."""
    place: Any = root
    if reference == "#":
        return place
    if not reference.startswith("#/"):
        return None
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = cast(Mapping[str, Any], place).get(name)
        elif isinstance(place, list) and _INDEX.fullmatch(name):
            place = next(iter(cast(list[Any], place)[int(name) : int(name) + 1]), None)
        else:
            return None
    return place


def _references(part: Any, optional: bool) -> set[str]:
    found = (node.get("$ref") for node in nodes(part, optional=optional))
    return {reference for reference in found if isinstance(reference, str)}


def required_names(schema: JSONObject) -> frozenset[str]:
    """The names of the properties that a schema requires."""
    given: Any = schema.get("required")
    names = cast(list[Any], given) if isinstance(given, list | tuple) else []
    return frozenset(name for name in names if isinstance(name, str))


def overlaid(chain: Sequence[JSONObject], link: str) -> JSONObject:
    """The schemas of a chain as a new one: earlier ones win, and the `link` is that of the last."""
    whole = dict(chain[-1])
    for schema in reversed(chain[:-1]):
        whole |= {key: value for key, value in schema.items() if key != link}
    return whole


def _inside(node: JSONObject, optional: bool) -> Iterator[Any]:
    required = frozenset[str]() if optional else required_names(node)
    for key in _BY_NAME:
        if isinstance(inner := node.get(key), dict):
            for name, each in cast(JSONObject, inner).items():
                if optional or key != "properties" or name in required:
                    yield each
    for key in _IN_LISTS:
        if isinstance(inner := node.get(key), list):
            yield from cast(list[Any], inner)
    for key in _ALONE:
        inner = node.get(key)
        # Older schemas have a list of items, one for each place.
        yield from cast(list[Any], inner) if isinstance(inner, list) else (inner,)


def _is_map(node: JSONObject) -> bool:
    free = node.get("additionalProperties", False) is not False or "patternProperties" in node
    return free and not node.get("properties")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
