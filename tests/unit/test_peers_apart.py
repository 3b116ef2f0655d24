"""`make test` installs no programs of others: those that do are left to `make test-peers`."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import PEERS, TESTS

INSTALLERS = frozenset(
    {"tests.support.node.npm_packages", "tests.support.node.required_packages"}
    | {"tests.support.environment.python_with", "tests.support.environment.required_python"}
)

INSTALLER_REPLACED = frozenset({"fuzz/test_run.py"})
"""Tests of programs that install, with a fixture that replaces the installer in all of them."""


def modules() -> dict[str, Path]:
    return {
        ".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts)): path
        for path in TESTS.rglob("*.py")
    }


def names_used(path: Path) -> set[str]:
    """The modules that a module imports, and what it takes of them."""
    tree = ast.parse(path.read_bytes())
    found: set[str] = set()
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{aliases.get(node.value.id, node.value.id)}.{node.attr}")
    return found | set(aliases.values())


def test_what_installs_programs_is_marked() -> None:
    uses = {name: names_used(path) for name, path in modules().items()}
    installs = {name for name, used in uses.items() if used & INSTALLERS}
    while more := {name for name, used in uses.items() if used & installs} - installs:
        installs |= more
    tests = {
        path.relative_to(TESTS).as_posix()
        for name, path in modules().items()
        if name in installs and path.name.startswith("test_")
    }
    assert tests, "the installers were not found: they have other names now"
    assert {path for path in tests if not path.startswith(PEERS)} == INSTALLER_REPLACED


def test_every_row_names_tests() -> None:
    missing = [row for row in PEERS if not (TESTS / row).exists()]
    assert not missing
