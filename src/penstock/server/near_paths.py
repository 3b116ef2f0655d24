"""Suggestions for paths at which there is nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

_LONGEST_COMPARED = 100
_ALIKE = 0.85
"""How much of a path must be right for a suggestion, from 0 to 1."""


def suggestion(path: str, known: Collection[str], prefixes: Collection[str] = ()) -> str:
    """`; did you mean PATH?`, where endpoints below this path are, or nothing.

    `prefixes` end in a slash; endpoints below them are not known one by one.
    """
    if len(path) > _LONGEST_COMPARED:
        return ""
    # A base URL with `/v1`, joined with a path that is not below it.
    if (outside := path.removeprefix("/v1")) not in (path, "/") and outside in known:
        return _did_you_mean(outside)
    folder = f"{path.rstrip('/')}/"
    if folder != "/":
        inside = [each for each in known if each.startswith(folder)]
        if inside:
            example = min(inside, key=lambda each: (len(each), each))
            return f"; the endpoints are below it, such as {example}"
        if below := [each for each in prefixes if each.startswith(folder)]:
            return f"; the endpoints are below {min(below)}"
    near = difflib.get_close_matches(path, sorted(known), 1, _ALIKE)
    return _did_you_mean(near[0]) if near else ""


def filled(templates: Iterable[Sequence[str]], given: Sequence[str]) -> frozenset[str]:
    """The templates as paths, with the pieces of the given path in place of `{name}`."""
    return frozenset(
        "/" + "/".join(_filled(template, given))
        for template in templates
        if len(template) <= len(given) or not any(map(_is_open, template[len(given) :]))
    )


def _filled(template: Sequence[str], given: Sequence[str]) -> Iterable[str]:
    for index, piece in enumerate(template):
        yield given[index] if _is_open(piece) else piece


def _is_open(piece: str) -> bool:
    return piece.startswith("{")


def _did_you_mean(path: str) -> str:
    return f"; did you mean {path}?"
