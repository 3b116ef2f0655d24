"""The configuration without its wrong values, so that its other problems are found too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "models": {"targets": ["embedded/smollm2"]},
    "providers": {"kind": "embedded"},
}
"""Tables that other settings name: they must not seem to be missing."""


def without(
    document: Mapping[str, Any], places: Iterable[tuple[str | int, ...]]
) -> dict[str, Any] | None:
    """The document without the settings at these places; None where too little would be left."""
    rest = {
        name: dict(cast("dict[str, Any]", each)) if isinstance(each, dict) else each
        for name, each in document.items()
    }
    for place in places:
        if not place:
            return None
        section = str(place[0])
        table: Any = rest.get(section)
        if len(place) > 1 and isinstance(table, dict):
            settings = cast("dict[str, Any]", table)
            name = str(place[1])
            settings.pop(name, None)
            if section in _STAND_INS and place[-1] != "[key]":
                settings[name] = _STAND_INS[section]
        elif section in _STAND_INS:
            return None
        else:
            rest.pop(section, None)
    return rest
