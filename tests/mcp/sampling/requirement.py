"""What a row of the manifest is made of; the rows are in `manifest.py`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.mcp.host.connections import WAYS, Era, Transport

ROOT = Path(__file__).resolve().parents[3]
Way: TypeAlias = tuple[Transport, Era]
Check: TypeAlias = Callable[[Way], Awaitable[None]]
Level: TypeAlias = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"]
LEGACY_WAYS: tuple[Way, ...] = tuple(way for way in WAYS if way[1] == "legacy")
MODERN_WAYS: tuple[Way, ...] = tuple(way for way in WAYS if way[1] == "modern")
LEGACY, MODERN = "2025-11-25", "2026-07-28"
BOTH = (LEGACY, MODERN)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that the standard asks for, and what shows that it is so."""

    id: str
    level: Level
    party: Literal["host", "server"]
    text: str
    """In our own words."""
    place: str
    """The page and section of the standard."""
    check: Check | None = None
    """Runs over every way in `ways`."""
    ways: tuple[Way, ...] = WAYS
    tests: tuple[str, ...] = ()
    """Tests elsewhere that show it, as `path::function`."""
    gap: str = ""
    """Why nothing shows it."""
    revisions: tuple[str, ...] = BOTH

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of its tests that are not there."""
        return tuple(each for each in self.tests if not _exists(each))

    @property
    def status(self) -> Literal["shown", "pending", "gap"]:
        """Whether tests show it, or will when their part is there."""
        if self.gap:
            return "gap"
        return "pending" if self.missing else "shown"


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in _functions(ROOT / path)


@functools.cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
