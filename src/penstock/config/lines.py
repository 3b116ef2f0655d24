"""Finds the lines of a TOML document at which keys are set, for error messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import islice

_HEADER = re.compile(r"""^\s*\[\[?((?:"[^"]*"|'[^']*'|[^\]"'])+)\]\]?\s*(?:#.*)?$""")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PIECE = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


_DEEPEST = 32
"""No setting has a longer path."""


class Lines:
    """The lines of one document; it is read once, and not before the first question."""

    def __init__(self, text: str) -> None:
        """A text that is TOML, or should be."""
        self._text = text

    def line_of(self, path: Sequence[str | int]) -> int | None:
        """The line, counted from 1, that sets the deepest part of the path that the text holds."""
        wanted = tuple(str(piece) for piece in path[:_DEEPEST])
        parts = (wanted[:length] for length in range(len(wanted), 0, -1))
        return next((self._found[part] for part in parts if part in self._found), None)

    @cached_property
    def _found(self) -> dict[tuple[str, ...], int]:
        found: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        # Not splitlines, which also splits at characters that TOML takes for text.
        for number, line in enumerate(self._text.split("\n"), 1):
            if header := _HEADER.match(line):
                table = place = _pieces(header[1])
            elif key := _KEY.match(line):
                place = table + _pieces(key[1])
            else:
                continue
            if len(place) <= _DEEPEST:
                found.setdefault(place, number)
        return found


def _pieces(dotted: str) -> tuple[str, ...]:
    pieces = islice(_PIECE.finditer(dotted), _DEEPEST + 1)
    return tuple(piece[0][1:-1] if piece[0][0] in "\"'" else piece[0] for piece in pieces)
