"""`penstock audit`, and what commands that change the store leave in it."""

import getpass
import json
from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import Cli


def entries(run: Cli, *arguments: str) -> list[dict[str, Any]]:
    """The oldest first."""
    shown = run("audit", "--json", *arguments)
    assert (shown.code, shown.err) == (0, "")
    return json.loads(shown.out)["entries"][::-1]


def test_changes_of_commands_are_recorded(folder: Path, penstock_here: Cli) -> None:
    run = penstock_here
    key = run("keys", "create", "ci", "--models", "default").out.strip()
    other = run("keys", "rotate", "ci").out.strip()
    run("keys", "revoke", "ci")
    run("budget", "set", "total", "5")
    run("budget", "set", "total", "50")
    run("budget", "reset", "total")
    run("budget", "remove", "total")
    found = entries(run)
    assert [(each["action"], each["subject"]) for each in found] == [
        ("create_key", "ci"),
        ("rotate_key", "ci"),
        ("revoke_key", "ci"),
        ("set_budget", "total"),
        ("set_budget", "total"),
        ("reset_budget", "total"),
        ("remove_budget", "total"),
    ]
    assert {(each["actor"], each["origin"]) for each in found} == {
        (getpass.getuser(), "command line")
    }
    created, _, revoked, first, second, _, removed = found
    assert (created["before"], created["after"]["models"]) == (None, ["default"])
    assert (revoked["before"]["state"], revoked["after"]["state"]) == ("active", "revoked")
    assert first["before"] is None
    assert second["before"]["limit_nanos"] * 10 == second["after"]["limit_nanos"]
    assert removed["after"] is None
    assert key not in str(found)
    assert other not in str(found)
    assert "sha256" not in str(found)


def test_what_fails_or_only_looks_is_not_recorded(folder: Path, penstock_here: Cli) -> None:
    run = penstock_here
    assert run("keys", "create", "ci", "--models", "nope").code == 2
    assert run("keys", "revoke", "nope").code == 2
    assert run("budget", "set", "total", "-5").code == 2
    assert run("budget", "reset", "nope").code == 2
    run("keys", "list")
    run("budget", "list")
    assert entries(run) == []
    assert run("audit").err == "no change is recorded\n"


def test_the_table_has_pages_filters_and_80_columns(folder: Path, penstock_here: Cli) -> None:
    run = penstock_here
    for name in ("a", "b", "c"):
        run("budget", "set", name, "5")
    page = run("audit", "--limit", "2")
    assert [line.split()[-1] for line in page.out.splitlines()] == ["WHAT", "c", "b"]
    assert all(len(line) <= 80 for line in page.out.splitlines())
    before = page.err.split("--before ")[1].strip()
    assert run("audit", "--before", before).out.splitlines()[1].split()[-1] == "a"
    assert [each["subject"] for each in entries(run, "--subject", "b")] == ["b"]
    assert entries(run, "--action", "create_key") == []
    assert entries(run, "--since", "2999-01-01") == []
    wrong = run("audit", "--since", "soon")
    assert (wrong.code, wrong.out) == (2, "")
