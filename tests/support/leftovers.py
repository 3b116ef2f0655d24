"""A pytest plug-in: a run that leaves processes behind fails, and they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "TEST_RUN_OF_PENSTOCK"
"""Every process of a run inherits it; its value names the run."""
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that a test started and did not end."""

    pid: int
    command: str

    def kill(self) -> None:
        """End it; it may have ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def __str__(self) -> str:
        return f"{self.pid}: {self.command}"


def pytest_configure() -> None:
    """Give this run a name, which its children inherit."""
    os.environ.setdefault(VARIABLE, uuid.uuid4().hex)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Look for leftovers when fixtures and test processes are gone."""
    yield
    if "PYTEST_XDIST_WORKER" in os.environ or not (found := leftovers()):
        return
    lines = [f"still alive at the end of the run: {len(found)}", *map(str, found)]
    sys.stdout.write("\n" + "\n  ".join(lines) + "\n")
    for each in found:
        each.kill()
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


def leftovers() -> list[Leftover]:
    """List all other processes of this run, oldest first. Always empty without a /proc."""
    marker = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
    family = set(_ancestors(os.getpid()))
    found = [
        Leftover(pid, command)
        for pid in _processes()
        if pid not in family and marker in _read(pid, "environ").split(b"\0")
        # A zombie has no command line: it has ended, and its parent has not asked yet.
        if (command := _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip())
    ]
    return sorted(found, key=lambda each: each.pid)


def _processes() -> Iterator[int]:
    if _PROC.is_dir():
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        # The command stands in parentheses and may hold anything: what follows the last is ours.
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
