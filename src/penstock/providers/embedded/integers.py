"""The limits of the integers that the grammar of an answer allows; pure.

Integers stay within what every reader of JSON takes (RFC 8259, section 6): beyond it JavaScript has
other numbers, and a client may have taken its own limits out of the schema and hold the answer to
them all the same. llama.cpp needs limits, too: of a lowest value with more than sixteen digits it
makes a grammar that takes all memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from penstock.contract.messages import JSONObject
from penstock.providers.wire.schemas import nodes, referenced

LARGEST = 2**53 - 1


class UnreadableSchemaError(ValueError):
    """The schema wants what cannot be written; the message says what."""


def with_limits(schema: JSONObject) -> JSONObject:
    """A copy in which each integer has a lowest and a highest value, both whole and within reach.

    Raises UnreadableSchemaError when no integer is between them, or a reference leads nowhere.
    """
    copy: JSONObject = msgspec.json.decode(msgspec.json.encode(schema))
    for node in reachable(copy):
        if "integer" in kinds_of(node):
            low = _limit(node, "minimum", "exclusiveMinimum", 1)
            high = _limit(node, "maximum", "exclusiveMaximum", -1)
            if low > high:
                raise UnreadableSchemaError(_without_integer(low, high))
            node["minimum"], node["maximum"] = low, high
    return copy


def reachable(root: JSONObject) -> Iterator[JSONObject]:
    """Every schema, also those that only a reference leads to."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        for node in nodes(waiting.pop(), seen=seen):
            yield node
            if isinstance(reference := node.get("$ref"), str):
                target = referenced(reference, root)
                if target is None and reference.startswith("#/"):
                    # llama.cpp finds a place for some that lead nowhere: `/01` is an index to it.
                    raise UnreadableSchemaError(f"{reference!r}, which is not in it")
                waiting.append(target)


def _without_integer(low: int, high: int) -> str:
    if -LARGEST <= low <= LARGEST and -LARGEST <= high <= LARGEST:
        return f"an integer from {low} to {high}, and there is none"
    asked = f"{low} or more" if low > LARGEST else f"{high} or less"
    return f"an integer of {asked}, and this model writes those from {-LARGEST} to {LARGEST}"


def kinds_of(node: JSONObject) -> Sequence[Any]:
    """The types that a schema allows."""
    kind: Any = node.get("type")
    return cast(list[Any], kind) if isinstance(kind, list) else (kind,)


def _limit(node: JSONObject, at: str, beyond: str, sign: int) -> int:
    """The tighter of both keywords, as a value that is still allowed; a highest one has sign -1."""
    inclusive, exclusive = node.get(at), node.pop(beyond, None)
    if isinstance(exclusive, bool):  # older schemas say by it how the other keyword is meant
        inclusive, exclusive = (None, inclusive) if exclusive else (inclusive, None)
    lowest = -LARGEST
    if inclusive is not None:
        lowest = max(lowest, math.ceil(sign * _number(inclusive, at)))
    if exclusive is not None:
        lowest = max(lowest, math.floor(sign * _number(exclusive, beyond)) + 1)
    return sign * lowest


def _number(value: Any, keyword: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableSchemaError(f"an integer with {keyword} {value!r}, which is not a number")
    return value
