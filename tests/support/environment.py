"""Python packages that cannot live with ours, in an environment of their own.

As with `tests.support.node`: the packages are those of a lock file, with their hashes; whichever
test process comes first installs them, and they stay for later runs, which need no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.unmeasured import unmeasured_environment

CACHE = Path(sys.prefix) / "environments"
"""With the packages that they must not meet: `make clean` removes both."""
INSTALL_SECONDS = 300
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


class PipFailedError(RuntimeError):
    """The packages could not be installed; the message ends with what pip said."""

    def __init__(self, lock_file: Path, said: str) -> None:
        super().__init__(
            f"pip could not install requirements/{lock_file.name}. Its packages are fetched once, "
            "from the index that your pip is configured for, and kept in the virtual environment: "
            f"run `make test-peers` once where that index can be reached. pip said:\n{said}"
        )


def python_with(lock_file: Path, cache: Path = CACHE) -> Path:
    """The interpreter of an environment that has what this lock file names, and nothing else."""
    folder = cache / hashlib.sha256(lock_file.read_bytes()).hexdigest()[:16]
    python, installed = folder / "bin" / "python", folder / "installed"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{lock_file.stem}.lock").open("w") as lock:
        # The other test processes wait here for the one that installs.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run has left
            _run(lock_file, [sys.executable, "-m", "venv", "--without-pip", str(folder)])
            # Our own pip installs there: a second one would be forty megabytes more to unpack.
            install = [sys.executable, *_PIP, "--python", str(python), "install"]
            _run(lock_file, [*install, "--require-hashes", "--no-deps", "-r", str(lock_file)])
            installed.touch()
    return python


def required_python(lock_file: Path, cache: Path = CACHE) -> Path:
    """The same for a test, which fails when the packages cannot be had."""
    try:
        return python_with(lock_file, cache)
    except PipFailedError as error:
        pytest.fail(str(error), pytrace=False)


def _run(lock_file: Path, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            env=unmeasured_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PipFailedError(lock_file, f"nothing for {INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        raise PipFailedError(lock_file, done.stdout + done.stderr)
