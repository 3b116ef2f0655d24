"""Finds the line of a TOML document at which a key is set, for error messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"""^\s*\[\[?((?:"[^"]*"|'[^']*'|[^\]"'])+)\]\]?\s*(?:#.*)?$""")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PIECE = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line, counted from 1, that sets the deepest part of the path that the text holds."""
    wanted = [str(piece) for piece in path]
    best: tuple[int, int] | None = None
    table: list[str] = []
    # Not splitlines, which also splits at characters that TOML takes for text.
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = _pieces(header[1])
            found = table
        elif key := _KEY.match(line):
            found = table + _pieces(key[1])
        else:
            continue
        if found == wanted[: len(found)] and (best is None or len(found) > best[0]):
            best = (len(found), number)
    return best[1] if best else None


def _pieces(dotted: str) -> list[str]:
    return [piece[1:-1] if piece[0] in "\"'" else piece for piece in _PIECE.findall(dotted)]
