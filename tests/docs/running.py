"""Runs a program of the documentation in a process of its own, on loopback only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.support.unmeasured import unmeasured_environment

LIMIT_S = 50
# The process may talk to this machine only, like every test.
_GUARDED = """
import runpy, sys
from tests.support.network import install_network_guard
install_network_guard()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(command: Sequence[str], folder: Path) -> str:
    """What the command prints; fails when it does not end well."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_python(file: Path, folder: Path, *options: str) -> str:
    """What the program prints; `options` are the interpreter's own."""
    return run([sys.executable, *options, "-c", _GUARDED, str(file)], folder)


def _environment() -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {
        **unmeasured_environment(),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
