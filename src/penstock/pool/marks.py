"""Targets that are marked down by hand: by name, by provider, or by pattern."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

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


class Marks:
    """Rules in the order in which they were made; the last one that covers a target decides."""

    def __init__(self, rules: Iterable[tuple[str, str | None]] = ()) -> None:
        """`rules` are those of `Marks.rules`."""
        self._rules: dict[str, str | None] = dict(rules)

    def __bool__(self) -> bool:
        """Whether anything is marked down."""
        return bool(self._rules)

    @property
    def rules(self) -> list[tuple[str, str | None]]:
        """Full patterns with the reason, or None for what is excepted from earlier ones."""
        return list(self._rules.items())

    def down(self, pattern: str, reason: str) -> None:
        """Mark down what this pattern covers; raises ConfigurationError beyond `MAX_MARKS`."""
        self._append(full_pattern(pattern), reason)

    def up(self, pattern: str) -> None:
        """Lift the marks of what this pattern covers, and of nothing else."""
        pattern = full_pattern(pattern)
        for rule in list(self._rules):
            if rule == pattern or (is_exact(rule) and covers(pattern, rule)):
                del self._rules[rule]
        # A wider rule may still hold for it.
        self._append(pattern, None)
        for rule, reason in list(self._rules.items()):
            if reason is not None:
                break
            # Nothing is left that it excepts from.
            del self._rules[rule]

    def reason(self, name: str) -> str | None:
        """Why `provider/model` is marked down; None when it is not."""
        for pattern in reversed(self._rules):
            if covers(pattern, name):
                return self._rules[pattern]
        return None

    def _append(self, pattern: str, reason: str | None) -> None:
        self._rules.pop(pattern, None)
        if len(self._rules) >= MAX_MARKS:
            raise ConfigurationError(
                f"there are {MAX_MARKS} marks already: mark a whole provider, or mark targets up"
            )
        self._rules[pattern] = reason
