"""Child processes: one module starts them all, and none looks into the working folder."""

import ast
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.mcp.stdio import over_stdio
from penstock.runtime import child_processes, search_paths

PACKAGE = Path(penstock.__file__).parent
ROOT = PACKAGE.parents[1]
STARTERS = {
    "Popen",
    "ProcessPoolExecutor",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "subprocess_exec",
    "subprocess_shell",
    "fork",
    "forkpty",
    "popen",
    "startfile",
    "system",
}
MODULES = {"subprocess", "multiprocessing", "pty", "runpy", "webbrowser"}
PREFIXES = ("exec", "spawn", "posix_spawn")
OF_THE_MCP_SDK = {"StdioServerParameters", "stdio_client"}
"""Calls by which the MCP SDK starts a server."""


def starts(tree: ast.AST) -> Iterator[int]:
    """The lines that start a process, or import what does."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                used = any(each.name.partition(".")[0] in MODULES for each in names)
            case ast.ImportFrom(module=module, names=names):
                named = any(each.name in STARTERS for each in names)
                used = (named and not (module or "").startswith("penstock.")) or (
                    module or ""
                ).partition(".")[0] in MODULES
            case ast.Attribute(value=ast.Name(id="os"), attr=name):
                used = name in STARTERS or name.startswith(PREFIXES)
            case ast.Attribute(value=ast.Name(id="shutil"), attr=name):
                used = name == "which"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                used = name in OF_THE_MCP_SDK
            case ast.Attribute(attr=name):
                used = name in STARTERS - {"system"}
            case _:
                used = False
        if used:
            yield getattr(node, "lineno", 0)


def test_one_module_starts_all_processes() -> None:
    """And one gives the MCP SDK what it starts a process with."""
    found = {
        str(file.relative_to(PACKAGE)): lines
        for file in PACKAGE.rglob("*.py")
        if (lines := list(starts(ast.parse(file.read_text()))))
    }
    assert set(found) == {"runtime/child_processes.py", "mcp/stdio.py"}, found


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "from subprocess import run",
        "from os import system",
        "import os\nos.execv('x', [])",
        "import os\nos.posix_spawn('x', [], {})",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from concurrent.futures import ProcessPoolExecutor",
        "loop.subprocess_exec(f)",
        "import shutil\nshutil.which('uv')",
        "from mcp import StdioServerParameters\nStdioServerParameters(command='x')",
        "import mcp\nmcp.StdioServerParameters(command='x')",
        "from mcp.client.stdio import stdio_client\nstdio_client(x)",
    ],
)
def test_the_check_sees_every_way(code: str) -> None:
    assert list(starts(ast.parse(code)))


def test_our_interpreters_have_no_working_folder() -> None:
    """Each command line of Python in the set-up script has -P."""
    tree = ast.parse((ROOT / "scripts" / "setup_venv.py").read_text())
    commands = [
        [ast.unparse(each) for each in node.elts]
        for node in ast.walk(tree)
        if isinstance(node, ast.List) and node.elts
    ]
    pythons = [each for each in commands if each[0] in ("sys.executable", "str(python)")]
    assert len(pythons) == 4
    assert all(each[1] in ("'-P'", "*PIP") for each in pythons)
    (pip,) = [each for each in commands if "'pip'" in each]
    assert pip[0] == "'-P'"
    assert child_processes.interpreter("-m", "x") == [sys.executable, "-P", "-m", "x"]


def test_relative_entries_leave_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "::.:bin:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", ":src")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib:")
    monkeypatch.setenv("PYTHONUSERBASE", "base")
    safe = search_paths.safe_environment({"MORE": "1"})
    assert (safe["PATH"], safe["LD_LIBRARY_PATH"], safe["MORE"]) == ("/usr/bin", "/opt/lib", "1")
    assert safe["PYTHONSAFEPATH"] == "1"
    assert "PYTHONPATH" not in safe
    assert "PYTHONUSERBASE" not in safe
    assert child_processes.find_program("tool") is None
    assert child_processes.find_program("./tool") is None
    assert child_processes.find_program(str(tool)) == str(tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert child_processes.find_program("tool") == str(tool)


def test_a_server_of_a_command_line_takes_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (tmp_path / "place", tmp_path / "bin"):
        place.mkdir()
        (place / "server").write_text("#!/bin/sh\n")
        (place / "server").chmod(0o755)
    (tmp_path / "place" / "notes").write_text("")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("PATH", f"::.:{tmp_path}/bin")
    found = over_stdio(["server", "./one", "--two"])
    assert (found.command, found.args) == (f"{tmp_path}/bin/server", ["./one", "--two"])
    assert found.env == {"PATH": f"{tmp_path}/bin", "PYTHONSAFEPATH": "1"}
    assert over_stdio(["./server"]).command == f"{tmp_path}/place/server"
    assert over_stdio(["../bin/server"]).command == f"{tmp_path}/bin/server"
    for word in ("notes", "./notes", "./nothing", "nothing", ".", ""):
        with pytest.raises(FileNotFoundError, match=r"no program|not a program"):
            over_stdio([word])
    # The SDK passes PATH on unless another one is given.
    monkeypatch.setenv("PATH", ".")
    assert over_stdio(["./server"]).env == {"PATH": os.defpath, "PYTHONSAFEPATH": "1"}


def test_a_command_leaves_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}/opt/mine")
    monkeypatch.setenv("PYTHONSTARTUP", "start.py")
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", ["", "relative", str(tmp_path / "lib"), "/opt/mine", *before])
    search_paths.leave_working_folder()
    assert sys.path == ["/opt/mine", *(each for each in before if Path(each).is_absolute())]
    assert (os.environ["PATH"], os.environ["PYTHONPATH"]) == ("/usr/bin", "/opt/mine")
    assert "PYTHONSTARTUP" not in os.environ


async def test_an_editor_runs_in_the_folder_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor, work = tmp_path / "ed", tmp_path / "place"
    editor.write_text('#!/bin/sh\npwd > "$1"\n')
    editor.chmod(0o755)
    work.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    process = await child_processes.start_editor(["ed", str(tmp_path / "said")], cwd=work)
    assert await process.wait() == 0
    assert (tmp_path / "said").read_text() == f"{work}\n"
    with pytest.raises(FileNotFoundError, match="no program nothing-here"):
        await child_processes.start_editor(["nothing-here"], cwd=work)


async def test_a_child_finds_a_package_that_only_the_working_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PACKAGE.parent)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != search_paths.ROOT])
    read, write = os.pipe()
    code = f"import os, sys, json; os.write({write}, json.dumps(sys.path).encode())"

    def interpreter(*_: str) -> list[str]:
        return [sys.executable, "-P", "-c", code]

    monkeypatch.setattr(child_processes, "interpreter", interpreter)
    process = await child_processes.start_worker((), {}, (write,))
    os.close(write)
    assert await process.wait() == 0
    with os.fdopen(read, "rb") as pipe:
        assert search_paths.ROOT in json.loads(await asyncio.to_thread(pipe.read))
