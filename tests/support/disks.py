"""Disks that cannot be written: by a mount where that is allowed, and by rights everywhere."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Disk: TypeAlias = Literal["mount", "rights"]

_WITHOUT_OVERRIDE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
    raise OSError(ctypes.get_errno(), "the right to write everything cannot be given up")
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Even root may then write only what its mode allows."""


def mounted(script: str, folder: Path) -> tuple[str, ...]:
    """A command in front of another one that sees other mounts; `$0` in the script: the folder."""
    own = ("unshare", "--map-root-user", "--mount", "sh", "-c", f'set -e; {script}; exec "$@"')
    return (*own, str(folder))


@cache
def mounts_allowed() -> bool:
    """Whether this machine lets us mount something for a process of ours."""
    if shutil.which("unshare") is None:
        return False
    command = mounted('mount -t tmpfs tmpfs "$0"', Path("/mnt"))
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def read_only_disks() -> tuple[Disk, ...]:
    """Those that can be had here: there is always one."""
    return ("mount", "rights") if mounts_allowed() else ("rights",)


@contextmanager
def read_only(folder: Path, disk: Disk) -> Generator[tuple[str, ...]]:
    """A command in front of another one that cannot write in this folder."""
    if disk == "mount":
        yield mounted('mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"', folder)
        return
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (*folder.iterdir(), folder)}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield (sys.executable, "-c", _WITHOUT_OVERRIDE) if os.geteuid() == 0 else ()
    finally:
        for path, mode in modes.items():
            # What was there may be gone, as the log of a database is that was closed.
            if path.exists():
                path.chmod(mode)
