"""How large a request is, without writing it out: a huge one must not become two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import BaseModel

_BESIDE = 8
"""For each value: its name, its quotes, its comma."""


def bytes_of(value: object, enough: int) -> int:
    """About how many bytes of JSON this is; counting ends once there are more than `enough`."""
    total = 0
    stack: list[object] = [value]
    while stack and total <= enough:
        each = stack.pop()
        total += _BESIDE
        if isinstance(each, str):
            total += len(each) if each.isascii() else len(each.encode(errors="replace"))
        elif isinstance(each, BaseModel):
            stack.extend(each.__dict__.values())
            stack.extend((each.__pydantic_extra__ or {}).values())
        elif isinstance(each, Mapping):
            table = cast(Mapping[object, object], each)
            stack.extend(table)
            stack.extend(table.values())
        elif isinstance(each, Sequence) and not isinstance(each, bytes):
            stack.extend(cast(Sequence[object], each))
    return total
