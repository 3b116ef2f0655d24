"""Keys in a decoded JSON body, masked by the names of its fields.

The readers of errors take single fields out of a body, and lose what stands beside them. Therefore
a body is masked before it is read:

- `{"x-api-key": ...}`: everything below a field that holds a credential.
- `["authorization", ...]`: the item behind such a name in a list, as servers write headers.
- `{"loc": ["header", "x-api-key"], "input": ...}`: the value that stands beside such a name.

A masked value is also masked in all other texts of the body. The texts themselves are searched for
labels later, by `redaction`.

Of a body as large as an answer may be, only so much is kept as an error message can need.
"""

from __future__ import annotations

import string
from itertools import islice
from typing import Any, cast

from penstock.providers.redaction.labels import NAME, announces, holds_a_value
from penstock.providers.redaction.text import MOST_REPEATED, SHOWN, is_like_a_key

_DEEPEST = 64
_LEFT_OUT = "…"
_LONGEST_NAME = 100
_LONGEST_TEXT = 4096
"""More than is shown of any text."""
_MOST, _VALUE = 65_536, 16
"""Characters of all values that are kept, and what a value counts for, however short it is."""
_IN_WORDS = string.ascii_letters + string.digits + string.punctuation


def without_named_keys(body: Any) -> Any:
    """The same body with `[key]` in the place of every value that a name announces."""
    if not isinstance(body, dict | list):
        return body
    masking = _Masking()
    body = masking.masked(body, _DEEPEST)
    if not masking.found:
        return body
    return _replaced(body, sorted(masking.found, key=len, reverse=True)[:MOST_REPEATED])


class _Masking:
    """Goes once through a body, up to a limit."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        """The values that were masked."""
        self._left = _MOST

    def masked(self, value: Any, depth: int) -> Any:
        self._left -= _VALUE
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, list | dict):
            return value
        if depth == 0 or self._left <= 0:
            return _LEFT_OUT
        if isinstance(value, list):
            return self._list(cast(list[Any], value), depth)
        return self._fields(cast(dict[str, Any], value), depth)

    def _text(self, text: str) -> str:
        if len(text) > _LONGEST_TEXT:
            # The word at the end may be the beginning of a key.
            text = text[:_LONGEST_TEXT].rstrip(_IN_WORDS) + _LEFT_OUT
        self._left -= len(text)
        return text if self._left > 0 else _LEFT_OUT

    def _fields(self, fields: dict[str, Any], depth: int) -> Any:
        names = islice(fields, self._left // _VALUE + 1)
        kept = {name: fields[name] for name in names}
        named = any(map(_names_a_key, kept.values()))
        masked: dict[str, Any] = {}
        for name, each in kept.items():
            if self._left <= 0:
                break
            self._left -= len(name)
            if announces(name) or (named and holds_a_value(name)):
                masked[name] = self._hidden(each, depth)
            else:
                masked[name] = self.masked(each, depth - 1)
        return masked

    def _list(self, values: list[Any], depth: int) -> list[Any]:
        masked: list[Any] = []
        announced = False
        for value in values:
            if self._left <= 0:
                break
            masked.append((self._hidden if announced else self.masked)(value, depth - 1))
            announced = isinstance(value, str) and len(value) <= _LONGEST_NAME and announces(value)
        return masked

    def _hidden(self, value: Any, depth: int) -> Any:
        """`[key]`, unless there is nothing to hide; texts inside are noted as keys."""
        if value is None or isinstance(value, bool) or value == "":
            return value
        waiting = [(value, depth)]
        while waiting and self._left > 0:
            each, left = waiting.pop()
            self._left -= _VALUE
            if isinstance(each, str):
                self._left -= min(len(each), _LONGEST_TEXT)
                if is_like_a_key(each):
                    self.found.add(each)
            elif isinstance(each, list | dict) and left > 0:
                fields = cast(dict[str, Any], each).values() if isinstance(each, dict) else None
                inner = cast(list[Any], each) if fields is None else fields
                few = islice(inner, self._left // _VALUE + 1)
                waiting += [(one, left - 1) for one in few]
        return SHOWN


def _names_a_key(value: Any) -> bool:
    """Whether a value is the name of a field with a credential, or the path to one."""
    if isinstance(value, list):
        return any(isinstance(each, str) and _is_name(each) for each in cast(list[Any], value))
    return isinstance(value, str) and _is_name(value)


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and NAME.search(text) is not None


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
