"""Targets that are marked down by hand: by name, by provider, or by pattern."""

from __future__ import annotations

import time
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from penstock.contract.errors import ConfigurationError

MAX_MARKS = 256
LONGEST_PATTERN = 512
_WILDCARDS = frozenset("*?[")


def full_pattern(pattern: str) -> str:
    """The pattern on `provider/model`; without a slash it is that of whole providers."""
    return pattern if "/" in pattern else f"{pattern}/*"


def is_exact(pattern: str) -> bool:
    """Whether it can be the name of one target only."""
    return "/" in pattern and _WILDCARDS.isdisjoint(pattern)


def covers(pattern: str, name: str) -> bool:
    """Whether this full pattern covers the target `provider/model`, with case."""
    return name == pattern or fnmatchcase(name, pattern)


class Mark(msgspec.Struct, frozen=True):
    """One rule: what is marked down, or excepted from earlier rules."""

    pattern: str
    reason: str | None
    """Why it is marked down; None for an exception."""
    at: float
    """Unix time."""


class Marks:
    """Rules in the order in which they were made; the last one that covers a target decides."""

    def __init__(self) -> None:
        """Nothing is marked down."""
        self._rules: dict[str, Mark] = {}

    def __bool__(self) -> bool:
        """Whether anything is marked down."""
        return bool(self._rules)

    @property
    def rules(self) -> list[Mark]:
        """All rules, the oldest first."""
        return list(self._rules.values())

    def adopt(self, rules: Iterable[Mark]) -> None:
        """Add rules of another process that are newer than those of the same pattern here."""
        for rule in rules:
            own = self._rules.get(rule.pattern)
            if own is None or own.at < rule.at:
                self._append(rule)

    def down(self, pattern: str, reason: str) -> None:
        """Mark down what this pattern covers; raises ConfigurationError beyond `MAX_MARKS`."""
        self._append(Mark(full_pattern(pattern), reason, time.time()))

    def up(self, pattern: str) -> None:
        """Lift the marks of what this pattern covers, and of nothing else."""
        pattern = full_pattern(pattern)
        for rule in list(self._rules):
            if rule == pattern or (is_exact(rule) and covers(pattern, rule)):
                del self._rules[rule]
        # A wider rule may still hold for it.
        self._append(Mark(pattern, None, time.time()))
        for rule, mark in list(self._rules.items()):
            if mark.reason is not None:
                break
            # There is no rule before it from which it could be an exception.
            del self._rules[rule]

    def of(self, name: str) -> Mark | None:
        """The mark that takes `provider/model` out of service; None when there is none."""
        for pattern, mark in reversed(self._rules.items()):
            if covers(pattern, name):
                return mark if mark.reason is not None else None
        return None

    def _append(self, mark: Mark) -> None:
        self._rules.pop(mark.pattern, None)
        if len(self._rules) >= MAX_MARKS:
            raise ConfigurationError(
                f"there are {MAX_MARKS} marks already: mark a whole provider, or mark targets up"
            )
        self._rules[mark.pattern] = mark
