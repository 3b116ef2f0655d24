"""Help that teaches, and a start that is quick."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config.settings import Config
from penstock.config.trust import ConfigFile
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import LIMIT_S, at_terminal, environment, run_penstock

TALK = ["ask", "chat", "embed"]
COMMANDS = [
    *TALK,
    "models",
    "providers",
    "usage",
    "audit",
    "requests",
    "targets",
    "doctor",
    "init",
    "serve",
    "budget",
    "embedded",
    "route",
]
HEAVY = {"aiohttp", "asyncio", "granian", "mcp", "numpy", "rich", "sqlite3", "uvicorn"}


def test_version(bare_folder: Path) -> None:
    finished = run_penstock("--version", cwd=bare_folder)
    assert (finished.code, finished.out) == (0, f"penstock {penstock.__version__}\n")


def test_alone_it_shows_help_with_every_command(bare_folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here()
    assert (finished.code, finished.err) == (0, "")
    assert finished.out == penstock_here("--help").out
    for command in COMMANDS:
        assert f"\n  {command} " in finished.out
    assert "..." not in finished.out.partition("Commands:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example(
    bare_folder: Path, penstock_here: Cli, command: str
) -> None:
    finished = penstock_here(command, "--help")
    assert (finished.code, finished.err) == (0, "")
    examples = finished.out.partition("Examples:")[2]
    assert f"penstock {command}" in examples
    assert penstock_here(command, "-h").out == finished.out


def test_help_is_drawn_at_a_terminal_and_plain_in_a_pipe(
    bare_folder: Path, penstock_here: Cli
) -> None:
    with at_terminal("--help", cwd=bare_folder) as terminal:
        assert terminal.wait() == 0
    assert "╭─ Talk to models" in terminal.screen
    assert "╭" not in penstock_here("--help").out


@pytest.mark.parametrize(
    ("arguments", "ends"), [(["ask", "--help"], 0), (["mcp", "call", "python", "tool", "{"], 2)]
)
def test_help_and_a_mistake_import_nothing_heavy(
    bare_folder: Path, arguments: list[str], ends: int
) -> None:
    code = (
        f"import json, sys; from penstock.cli.app import run; code = run({arguments!r}); "
        "print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment(),
        timeout=LIMIT_S,
        check=True,
    )
    exit_code, modules = json.loads(finished.stdout.splitlines()[-1])
    assert exit_code == ends
    # A run that measures coverage brings a database along.
    own = {"sqlite3"} if "coverage" in modules else set[str]()
    assert not (HEAVY - own) & set(modules)


def test_serve_hands_over_the_configuration_and_the_address(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Config, dict[str, Any]]] = []

    def serve(config: Config, **options: Any) -> None:
        calls.append((config, options))

    monkeypatch.setattr("penstock.server.process.serve.serve", serve)
    assert penstock_here("serve", "--port", "0").code == 0
    named = ("--host", "127.0.0.2", "-c", "penstock.toml", "--workers", "3")
    assert penstock_here("serve", *named).code == 0
    (folder / "penstock.toml").unlink()
    assert penstock_here("serve").code == 0
    assert list(calls[0][0].models) == ["default", "words"]
    found = str(folder / "penstock.toml")
    assert [options for _, options in calls] == [
        {
            "host": "127.0.0.1",
            "port": 0,
            "source": found,
            "file": ConfigFile(Path(found), found=True),
            "workers": None,
        },
        {
            "host": "127.0.0.2",
            "port": 8400,
            "source": "penstock.toml",
            "file": ConfigFile(Path("penstock.toml")),
            "workers": 3,
        },
        {
            "host": "127.0.0.1",
            "port": 8400,
            "source": "no file: the embedded model",
            "file": None,
            "workers": None,
        },
    ]
