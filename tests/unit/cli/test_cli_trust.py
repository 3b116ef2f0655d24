"""`penstock trust`, and the question at a terminal."""

import json
import os
import shlex
import signal
from pathlib import Path

import pytest

from penstock.cli.app import run
from penstock.config import trust
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal, started_penstock

PLAIN = '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
RISKY = f"{PLAIN}[budgets.total]\nlimit_usd = 1.0\n"
OTHER = f'{PLAIN}[models.other]\ntargets = ["fake/echo"]\n[prices.default]\ninput = 1\noutput = 1\n'


@pytest.fixture
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a configuration that needs trust."""
    monkeypatch.delenv("PENSTOCK_TRUST_FOLDER")
    (folder / "penstock.toml").write_text(RISKY)
    return folder


def test_without_a_terminal_it_is_one_error_with_the_command(
    work: Path, penstock_here: Cli
) -> None:
    finished = penstock_here("ask", "Hi")
    file = work / "penstock.toml"
    assert (finished.code, finished.out) == (2, "")
    assert finished.error_line == (
        f"penstock: error: {file} was found in the working folder and is not trusted: "
        "line 5, budgets.total.limit_usd: it weakens or changes budgets of your ledger. "
        f"Read the file, then run: penstock trust {file}"
    )
    command = shlex.split(finished.error_line.rpartition("run: ")[2])
    done = penstock_here(*command[1:])
    assert (done.code, done.out) == (0, f"trusted {file}\n")
    assert "line 5, budgets.total.limit_usd: it weakens" in done.err
    assert penstock_here("ask", "Hi").out == "Hi\n"


def test_it_lists_and_removes(work: Path, penstock_here: Cli) -> None:
    file = work / "penstock.toml"
    assert penstock_here("trust", "--list").out == "no file is trusted\n"
    assert json.loads(penstock_here("trust", "--json").out) == {
        "path": str(file),
        "sha256": trust.read(trust.ConfigFile(file)).digest,
        "trusted": True,
        "needs": ["line 5, budgets.total.limit_usd: it weakens or changes budgets of your ledger"],
    }
    assert "trusted" in penstock_here("trust", "--list").out
    file.write_text(PLAIN)
    (row,) = json.loads(penstock_here("trust", "--list", "--json").out)["files"]
    assert (row["path"], row["state"]) == (str(file), "changed")
    file.unlink()
    assert "missing" in penstock_here("trust", "--list").out
    # The file is gone, and its folder is enough of a name.
    assert penstock_here("trust", "--remove", str(work)).out == f"no longer trusted: {file}\n"
    again = penstock_here("trust", "--remove", str(work))
    assert (again.code, "is not trusted" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "No such file"), ("[", "is not TOML"), ("a = '\xff'", "not UTF-8")]
)
def test_what_cannot_be_read_is_not_trusted(
    text: str | None, said: str, work: Path, penstock_here: Cli
) -> None:
    file = work / "penstock.toml"
    if text is None:
        file.unlink()
    else:
        file.write_bytes(text.encode("latin-1"))
    finished = penstock_here("trust")
    assert (finished.code, said in finished.error_line) == (2, True)
    assert trust.entries() == []


def test_init_trusts_its_file(bare_folder: Path, penstock_here: Cli) -> None:
    assert penstock_here("init").code == 0
    assert [each.path for each in trust.entries()] == [str(bare_folder / "penstock.toml")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_init_works_where_no_list_can_be_written(
    bare_folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "/proc/nothing")
    assert penstock_here("init").code == 0


def test_a_person_is_asked_once(work: Path) -> None:
    with at_terminal("ask", "Hi", cwd=work) as terminal:
        terminal.expect("It needs your trust")
        terminal.expect("budgets.total.limit_usd")
        terminal.expect("Trust this file as it is now?")
        terminal.line("y")
        terminal.expect("Hi")
        assert terminal.wait() == 0
    assert run(["models"]) == 0


def test_a_no_is_the_same_error(work: Path) -> None:
    with at_terminal("models", cwd=work) as terminal:
        terminal.expect("Trust this file as it is now?")
        terminal.line("")
        terminal.expect("penstock: error:")
        assert terminal.wait() == 2
    assert trust.entries() == []


def test_a_found_file_that_changes_under_a_gateway_needs_trust(work: Path) -> None:
    file = work / "penstock.toml"
    file.write_text(PLAIN)
    with started_penstock("serve", "--port", "0", "--workers", "2", cwd=work) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while b"Ctrl-C stops" not in (line := process.stdout.readline()):
            assert line
        file.write_text(OTHER)
        while b"not reloaded" not in (line := process.stderr.readline()):
            assert line
        assert b"line 7, prices.default.input: it weakens" in line
        # To trust it is enough: the list of trusted files is watched too.
        trust.add(file, trust.read(trust.ConfigFile(file)).digest)
        seen = 0
        while seen < 2:
            line = process.stderr.readline()
            assert line
            seen += b"reloaded " in line and b"not reloaded" not in line
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == 0
