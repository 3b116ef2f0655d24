"""Every command in a folder of poisoned modules, programs and settings.

The commands run as `penstock` runs them: the interpreter has no working folder on its path, and
`main` takes it off the other search paths. Most of them share one process: a module that one of
them imports from the folder leaves its mark all the same.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.app import build
from tests.security.hostile import SECRETS, HostileFolder, recording, victim

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "ask": ("Hi",),
    "embed": ("Hi",),
    "route explain": ("Hi",),
    "route feedback": ("some-id", "1"),
    "route train": ("outcomes.csv",),
    "route export": ("out.jsonl",),
    "budget set": ("total", "5"),
    "budget reset": ("total",),
    "budget remove": ("total",),
    "keys create": ("ci",),
    "keys rotate": ("ci",),
    "keys revoke": ("ci",),
    "keys set": ("ci", "--requests-per-minute", "5"),
    "requests show": ("some-id",),
    "requests stop": ("some-id",),
    "targets down": ("evil/m",),
    "targets up": ("evil/m",),
    "mcp tools": ("poisoned-server",),
    "mcp call": ("poisoned-server", "tool"),
    "mcp sample-test": ("poisoned-server", "tool"),
    "trust": ("--list",),
    "init": ("-",),
}
"""What a command needs besides its name; one that is not here runs without arguments."""
READS_NO_FILE = {
    "embedded install",
    "embedded status",
    "init",
    "keys hash",
    "mcp call",
    "mcp tools",
    "trust",
}
DRIVER = """
import contextlib, io, json, sys
# Not installed here: `doctor` says so, instead of loading the model.
sys.modules["xllamacpp"] = None
from penstock.cli import main
found = {}
for words in json.loads(sys.argv[1]):
    sys.argv = ["penstock", *words]
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            found[" ".join(words)] = [exit.code, out.getvalue(), err.getvalue()]
import penstock
for name, use in {"open": penstock.open, "ask": lambda: penstock.ask("Hi")}.items():
    try:
        use()
    except penstock.ConfigurationError as error:
        found[f"penstock.{name}"] = [2, "", str(error)]
print(json.dumps(found))
"""
SERVER = """\
#!/usr/bin/env python
from mcp.server.mcpserver import MCPServer

server = MCPServer("tides")

@server.tool()
def tide(place: str = "here") -> str:
    return f"high {place}"

server.run("stdio")
"""
TYPED = ("python server.py", "python ./server.py", f"{sys.executable} server.py", "./server.py")
"""Commands that name a file of the folder, and no module and no program of it."""
RUNPY = (
    "collections",
    "contextlib",
    "functools",
    "importlib",
    "keyword",
    "operator",
    "reprlib",
    "types",
    "warnings",
)
"""What Python itself imports from the working folder for `-m`, before any code of ours."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands."""
    members = getattr(group, "commands", None)
    if not members:
        yield " ".join(words)
        return
    for name, member in members.items():
        yield from commands(member, (*words, name))


ALL = sorted(commands(typer.main.get_command(build(rich=False))))


@pytest.fixture
def port_and_requests() -> Generator[tuple[int, list[bytes]]]:
    with recording() as recorder:
        yield recorder.port, recorder.requests


@pytest.fixture
def hostile(tmp_path: Path, port_and_requests: tuple[int, list[bytes]]) -> HostileFolder:
    return HostileFolder(tmp_path, port_and_requests[0])


def run(
    hostile: HostileFolder, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run this Python in the folder, with the environment of a victim."""
    home = hostile.path.parent / "home"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=hostile.path,
        env=victim(home, **(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_penstock(
    hostile: HostileFolder, *words: str, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `penstock` as a program; PATH begins with the working folder, then has this Python."""
    found = path or os.pathsep.join((".", "", str(Path(sys.executable).parent), os.defpath))
    code = "from penstock.cli import main\nmain()"
    return run(hostile, "-P", "-c", code, *words, env={"PATH": found})


def add_server(hostile: HostileFolder) -> None:
    """A harmless MCP server in the hostile folder."""
    server = hostile.path / "server.py"
    server.write_text(SERVER)
    server.chmod(0o755)


def run_all(
    hostile: HostileFolder, names: list[str], **env: str
) -> dict[str, tuple[int, str, str]]:
    lines = json.dumps([[*name.split(), *ARGUMENTS.get(name, ())] for name in names])
    finished = run(hostile, "-P", "-c", DRIVER, lines, env=env)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_no_command_runs_code_or_sends_a_secret(
    hostile: HostileFolder, port_and_requests: tuple[int, list[bytes]]
) -> None:
    found = run_all(hostile, ALL)
    assert hostile.used == []
    assert port_and_requests[1] == []
    assert len(found) == len(ALL) + 2
    for name, (code, out, err) in found.items():
        assert not any(secret in out + err for secret in SECRETS.values()), name
        assert "--help)" not in err, f"{name} needs arguments: add them to ARGUMENTS: {err}"
        if name == "doctor":
            assert code == 1
            assert f"penstock trust {hostile.config}" in out
        elif not any(name.startswith(each) for each in READS_NO_FILE):
            assert code == 2, (name, out, err)
            assert f"run: penstock trust {hostile.config}" in err
            assert "it reads the environment variable OPENAI_API_KEY" in err


def test_with_trust_the_file_does_what_it_says(
    hostile: HostileFolder, port_and_requests: tuple[int, list[bytes]]
) -> None:
    """The control: without this, nothing above would show anything."""
    run_all(hostile, ["ask"], PENSTOCK_TRUST_FOLDER="1")
    assert hostile.used == []
    sent = b"".join(port_and_requests[1])
    assert all(secret.encode() in sent for secret in SECRETS.values())
    assert run(hostile, "-c", "import uvloop").returncode == 0
    assert hostile.used == ["hostile.uvloop"]


def test_workers_import_nothing_from_the_folder(hostile: HostileFolder) -> None:
    hostile.config.write_text(
        "[server]\nworkers = 2\nport = 0\n[providers.fake]\n[models.default]\n"
        'targets = ["fake/echo"]\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", "serve"],
        cwd=hostile.path,
        env=victim(hostile.path.parent / "home"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        screen = ""
        while "Ctrl-C stops" not in screen:
            line = process.stdout.readline()
            if not line:
                break
            screen += line
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "Ctrl-C stops" in screen, said
    assert process.returncode == 0
    assert hostile.used == []


def test_the_installer_runs_nothing_from_the_folder(
    hostile: HostileFolder, port_and_requests: tuple[int, list[bytes]]
) -> None:
    code = (
        "import sys\nsys.modules['tokenizers'] = None\nsys.argv = ['penstock', 'embedded', "
        "'install']\nfrom penstock.cli import main\nmain()"
    )
    finished = run(hostile, "-P", "-c", code, env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""})
    assert (finished.returncode, finished.stderr) == (0, "installing tokenizers (1 of 1)\n")
    assert hostile.used == []
    assert port_and_requests[1] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((("mcp", "tools", command), "tide") for command in TYPED),
        (("mcp", "call", TYPED[0], "tide", '{"place": "there"}'), "high there"),
        (("mcp", "sample-test", TYPED[0], "tide", "--config", "../own.toml"), "high here"),
    ],
)
def test_a_server_that_is_named_runs_and_imports_nothing_beside_it(
    hostile: HostileFolder, words: tuple[str, ...], said: str
) -> None:
    add_server(hostile)
    (hostile.path / "../own.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
    )
    finished = run_penstock(hostile, *words)
    assert (finished.returncode, hostile.used) == (0, []), finished.stderr
    assert said in finished.stdout


@pytest.mark.parametrize("command", ["tools", "call", "sample-test"])
def test_a_server_is_no_program_of_the_folder(hostile: HostileFolder, command: str) -> None:
    more = () if command == "tools" else ("tool",)
    options = ("--config", "../own.toml") if command == "sample-test" else ()
    (hostile.path / "../own.toml").write_text("[providers.embedded]\n")
    server = "poisoned-server --quiet"
    finished = run_penstock(hostile, "mcp", command, server, *more, *options, path=".::bin")
    assert (finished.returncode, hostile.used) == (1, [])
    assert "there is no program poisoned-server on PATH" in finished.stderr


def test_a_server_with_the_safe_path_switched_off_is_the_users_choice(
    hostile: HostileFolder,
) -> None:
    """The control, and the remedy of the documentation for a server of several files."""
    add_server(hostile)
    for command in ("env -u PYTHONSAFEPATH python server.py", "./poisoned-server"):
        run_penstock(hostile, "mcp", "tools", command)
    assert "poisoned-server" in hostile.used
    assert any(name.startswith("hostile.") for name in hostile.used)


def test_as_a_module_only_python_itself_looks_into_the_folder(hostile: HostileFolder) -> None:
    hostile.forgive(*RUNPY)
    for name in ("__init__", "__main__", "cli"):
        (hostile.path / "penstock" / f"{name}.py").unlink()
    (hostile.path / "penstock").rmdir()
    finished = run(hostile, "-m", "penstock", "models")
    assert hostile.used == []
    assert finished.returncode == 2
    assert f"run: penstock trust {hostile.config}" in finished.stderr
