"""Which model is the newer version of which, by their names.

    claude-sonnet-5 -> claude-sonnet-5-5      gpt-4o-2024-05-13 -> gpt-4o-2024-08-06

What is left of a name without its numbers is its line. Sizes (`70b`) belong to the line, dates and
counts to the version.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from penstock.contract.ports import Target

_DATE = re.compile(r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)(?!\d)")
_DAY = re.compile(r"(?<!\d)(\d\d-\d\d|\d{4})(?![\dbm])")
"""A date without its year, by which nothing can be ordered."""
_REVISION = re.compile(r"-v\d+(:\d+)?$|@.*$")
_SERVED = re.compile(
    r"^((us|eu|apac|jp|au|global)\.)?(anthropic|amazon|meta|mistral|openai|google)\."
)
_WORD = re.compile(r"\d+(?:\.\d+)?[bm](?![a-z])|\d+|[a-z]+")
_NOT_THE_LINE = frozenset({"latest", "preview", "exp", "experimental", "it", "instruct"})


class Version(NamedTuple):
    """A model's line, and where in it the model stands."""

    line: tuple[str, ...]
    numbers: tuple[int, ...]
    date: float
    """As yyyymmdd; without one, a name means the newest."""


def version_of(model: str) -> Version:
    """A model's name, read."""
    name = _REVISION.sub("", model.lower().rpartition("/")[2])
    name = _SERVED.sub("", name)
    date = math.inf
    if found := _DATE.search(name):
        date = float("".join(found.groups()))
        name = name[: found.start()] + name[found.end() :]
    name = _DAY.sub("", name)
    line: list[str] = []
    numbers: list[int] = []
    for word in _WORD.findall(name):
        if word.isdigit():
            numbers.append(int(word))
        elif word not in _NOT_THE_LINE:
            line.append(word)
    return Version(tuple(line), tuple(numbers), date)


def predecessor(target: Target, among: Iterable[Target]) -> Target | None:
    """The newest of those whose models are older versions of this one's, if there is any.

    At the same provider if there are several, and in whatever order they are given.
    """
    version = version_of(target.model)
    if not version.line:
        return None
    older = [
        (other.numbers, other.date, earlier.provider == target.provider, earlier)
        for earlier, other in ((each, version_of(each.model)) for each in among)
        if other.line == version.line
        and (other.numbers, other.date) < (version.numbers, version.date)
    ]
    return max(older, key=lambda each: (*each[:3], str(each[3])))[3] if older else None
