"""Child processes that take no code from the working folder.

All processes of Penstock are started here. The folder in which a command runs may belong to a
stranger: it must be on no search path of a child, for modules, programs or libraries.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from penstock.runtime.search_paths import ROOT, absolute_entries, safe_environment

Finished: TypeAlias = subprocess.CompletedProcess[str]


def interpreter(*arguments: str) -> list[str]:
    """The command line of this Python, with neither script nor working folder on `sys.path`."""
    if not sys.executable or not os.path.isabs(sys.executable):  # noqa: PTH117
        raise OSError("the path of the Python interpreter is unknown")
    return [sys.executable, "-P", *arguments]


def find_program(name: str) -> str | None:
    """The absolute path of a program; a relative entry of PATH is not searched."""
    if os.path.dirname(name):  # noqa: PTH120
        return shutil.which(name) if os.path.isabs(name) else None  # noqa: PTH117
    return shutil.which(name, path=absolute_entries(os.environ.get("PATH", os.defpath)))


def typed_program(word: str) -> str:
    """The absolute path of a program that a user has typed; raises OSError.

    A word with a separator, such as `./server`, is a path. Any other word is searched on PATH.
    """
    if not os.path.dirname(word):  # noqa: PTH120
        if (program := find_program(word)) is None:
            raise FileNotFoundError(f"there is no program {word} on PATH")
        return program
    if (program := shutil.which(os.path.abspath(word))) is None:  # noqa: PTH100
        raise FileNotFoundError(f"{word} is not a program: no such file, or not executable")
    return program


def server_environment() -> dict[str, str]:
    """What an MCP server gets besides the few variables that the MCP SDK passes on.

    The names of `search_paths` that the SDK does not pass on stay away.
    """
    safe = safe_environment()
    return {
        "PATH": safe.get("PATH") or absolute_entries(os.defpath),
        "PYTHONSAFEPATH": safe["PYTHONSAFEPATH"],
    }


def run(command: Sequence[str], *, cwd: Path) -> Finished:
    """Run a program without input to its end and capture what it prints; raises OSError."""
    return subprocess.run(  # noqa: S603 - callers pass fixed programs, by absolute path
        command,
        cwd=cwd,
        env=safe_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


async def start_worker(
    arguments: Sequence[str], variables: Mapping[str, str], descriptors: Sequence[int]
) -> asyncio.subprocess.Process:
    """Start `python -m penstock` with these arguments, variables and inherited descriptors.

    It keeps the working folder: relative paths of its configuration begin there.
    """
    return await asyncio.create_subprocess_exec(
        *interpreter("-m", "penstock", *arguments),
        env={**_own_package(), **variables},
        pass_fds=descriptors,
        # A terminal's Ctrl-C reaches the parent only, which stops the workers once.
        start_new_session=True,
    )


async def start_editor(command: Sequence[str], *, cwd: Path) -> asyncio.subprocess.Process:
    """Start a program at this terminal, in a folder of its own; raises OSError."""
    program = find_program(command[0])
    if program is None:
        raise FileNotFoundError(f"there is no program {command[0]} on PATH")
    return await asyncio.create_subprocess_exec(
        program, *command[1:], cwd=cwd, env=safe_environment()
    )


def _own_package() -> dict[str, str]:
    """A safe environment in which a child also finds a package that is not installed."""
    environment = safe_environment()
    if ROOT not in sys.path:
        paths = [ROOT, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
