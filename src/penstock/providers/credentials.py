"""Keys that cannot be printed by accident."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn


class Secret:
    """A key; only `reveal()` shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Keep the value out of every repr."""
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one place that sends it."""
        return self._value

    def __repr__(self) -> str:
        """Stars, whatever the key."""
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        """Whether it is the same key."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        """Itself: a copy would be one more place to look after."""
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        """Itself, also inside of settings that are copied."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refused: what is pickled is stored, or sent to another process, as it is."""
        raise TypeError("a Secret cannot be pickled; pickle the name of its variable instead")


def key_from_environment(variables: Sequence[str]) -> Secret | None:
    """The first of these variables that is set and not empty."""
    for variable in variables:
        if value := os.environ.get(variable, "").strip():
            return Secret(value)
    return None


def bearer(key: str) -> Mapping[str, str]:
    """The header that carries a key on most wires."""
    return {"authorization": f"Bearer {key}"}
