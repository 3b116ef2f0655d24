"""Keys in a decoded JSON body, masked by the names of its fields.

The readers of errors take single fields out of a body, and lose what stands beside them. Therefore
a body is masked before it is read:

- `{"x-api-key": ...}`: everything below a field that holds a credential.
- `["authorization", ...]`: the item behind such a name in a list, as servers write headers.
- `{"loc": ["header", "x-api-key"], "input": ...}`: the value that stands beside such a name.

A masked value is also masked in all other texts of the body. The texts themselves are searched for
labels later, by `redaction`.
"""

from __future__ import annotations

from typing import Any, cast

from penstock.providers.redaction.labels import NAME, announces, holds_a_value
from penstock.providers.redaction.text import MOST_REPEATED, SHOWN, is_like_a_key

_DEEPEST = 64
_TOO_DEEP = "…"
_LONGEST_NAME = 100


def without_named_keys(body: Any) -> Any:
    """The same body with `[key]` in the place of every value that a name announces."""
    if not isinstance(body, dict | list):
        return body
    found: set[str] = set()
    body = _masked(body, found, _DEEPEST)
    if not found:
        return body
    return _replaced(body, sorted(found, key=len, reverse=True)[:MOST_REPEATED])


def _masked(value: Any, found: set[str], depth: int) -> Any:
    if depth == 0 and isinstance(value, dict | list):
        return _TOO_DEEP
    if isinstance(value, list):
        return _masked_list(cast(list[Any], value), found, depth)
    if not isinstance(value, dict):
        return value
    fields = cast(dict[str, Any], value)
    named = any(map(_names_a_key, fields.values()))
    return {
        name: (
            _hidden(each, found, depth)
            if announces(name) or (named and holds_a_value(name))
            else _masked(each, found, depth - 1)
        )
        for name, each in fields.items()
    }


def _masked_list(values: list[Any], found: set[str], depth: int) -> list[Any]:
    masked: list[Any] = []
    announced = False
    for value in values:
        masked.append((_hidden if announced else _masked)(value, found, depth - 1))
        announced = isinstance(value, str) and len(value) <= _LONGEST_NAME and announces(value)
    return masked


def _names_a_key(value: Any) -> bool:
    """Whether a value is the name of a field with a credential, or the path to one."""
    if isinstance(value, list):
        return any(isinstance(each, str) and _is_name(each) for each in cast(list[Any], value))
    return isinstance(value, str) and _is_name(value)


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and NAME.search(text) is not None


def _hidden(value: Any, found: set[str], depth: int) -> Any:
    """`[key]`, unless there is nothing to hide; texts inside are noted as keys."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    waiting = [(value, depth)]
    while waiting:
        each, left = waiting.pop()
        if isinstance(each, str):
            if is_like_a_key(each):
                found.add(each)
        elif isinstance(each, list | dict) and left > 0:
            inner = cast(
                list[Any],
                list(cast(dict[str, Any], each).values()) if isinstance(each, dict) else each,
            )
            waiting += [(one, left - 1) for one in inner]
    return SHOWN


def _replaced(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, SHOWN)
        return value
    if isinstance(value, list):
        return [_replaced(each, secrets) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        return {
            name: _replaced(each, secrets) for name, each in cast(dict[str, Any], value).items()
        }
    return value
