"""Which settings there are at a place of the configuration, for who has misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from typing import Any

from penstock.config.settings import Config
from penstock.contract.checks.schema_names import names_in

_MOST_LISTED = 10


def no_such_setting(path: Sequence[str | int]) -> str:
    """What is wrong with a name that no setting has, and which it might have been."""
    there, name = names_at(path[:-1]), str(path[-1])
    near = difflib.get_close_matches(name, there, 1)
    if near:
        return f"there is no such setting; did you mean {near[0]}?"
    known = f"there are {_listed(sorted(there))}; " if there else ""
    return f"there is no such setting; {known}`penstock init` explains them all"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join([*names[:_MOST_LISTED], *([f"and {more} more"] if more > 0 else [])])


def names_at(path: Sequence[str | int]) -> list[str]:
    """The names of the settings in the table at this path; none where there is no table."""
    return names_in(_schema(), path)


@cache
def _schema() -> dict[str, Any]:
    return Config.model_json_schema()
