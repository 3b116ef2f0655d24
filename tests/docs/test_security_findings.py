"""The page of security findings names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security-findings.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [
    line
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| finding")
]


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the tests of this file, those of its classes included."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(each.name for each in ast.walk(tree) if isinstance(each, functions))


def missing(row: str) -> list[str]:
    """The tests of this row that do not exist."""
    return [
        f"{file}::{name}"
        for file, name in NAMED.findall(row)
        if not (ROOT / file).is_file() or name not in functions_of(file)
    ]


def test_all_findings_are_there() -> None:
    """9 high, 3 medium and 10 low ones, and those that were found later."""
    assert len(ROWS) >= 22


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_each_finding_names_tests_that_exist(row: str) -> None:
    _, finding, promise, tests, _ = row.split("|")
    assert finding.strip()
    assert promise.strip()
    assert NAMED.sub("", tests).strip() == ""
    assert NAMED.search(tests)
    assert missing(row) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    here = "tests/docs/test_security_findings.py"
    row = f"| a | b | `{here}::test_all_findings_are_there` `{here}::test_of_nothing` |"
    assert missing(row) == [f"{here}::test_of_nothing"]
    assert missing("| a | b | `tests/docs/nowhere.py::test_x` |") == [
        "tests/docs/nowhere.py::test_x"
    ]
