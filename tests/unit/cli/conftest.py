"""A folder with a configuration in it, and ways to run commands there."""

import io
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from penstock.cli.app import run
from tests.unit.cli.harness import Finished, run_penstock
from tests.unit.cli.trickle import TrickleServer, trickling

FAKE_CONFIG = """\
[providers.fake]
[models.default]
targets = ["fake/echo"]
[models.words]
targets = ["fake/words-60"]
"""

Cli = Callable[..., Finished]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: its `penstock.toml` knows the fake provider only."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "penstock.toml").write_text(FAKE_CONFIG)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def bare_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without any configuration."""
    folder = tmp_path / "bare"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def penstock_process(folder: Path) -> Cli:
    """Run a command as a process of its own."""

    def call(*arguments: str, stdin: str | bytes = "") -> Finished:
        return run_penstock(*arguments, cwd=folder, stdin=stdin)

    return call


@pytest.fixture
def penstock_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process, which is faster; combine with `folder` or `bare_folder`."""

    def call(*arguments: str, stdin: str | bytes = "") -> Finished:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = run(arguments)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return call


@pytest.fixture
def trickle_server(folder: Path) -> Generator[TrickleServer]:
    """A server that stops in mid-answer; `slow.toml` in the folder points to it."""
    with trickling() as server:
        (folder / "slow.toml").write_text(server.config())
        yield server
