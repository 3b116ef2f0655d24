"""Which configuration files of working folders the user trusts.

A file is trusted by its absolute path and the SHA-256 of its contents, so that each change asks
again. The list is `trusted.json` in PENSTOCK_HOME, which only its owner may write.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.config.settings import home
from penstock.contract.errors import ConfigurationError

STORE_NAME = "trusted.json"
FOLDER_VARIABLE = "PENSTOCK_TRUST_FOLDER"
MAX_BYTES = 8 * 1024 * 1024
"""Size limit of a configuration file, and of the list of trusted files."""
_YES, _NO = ("1", "true", "yes"), ("", "0", "false", "no")


class ConfigFile(NamedTuple):
    """A configuration file, and how it was chosen."""

    path: Path
    found: bool = False
    """Whether it was found in the working folder; otherwise the user has named it."""


class Contents(NamedTuple):
    """What a file holds, and what its place tells against it."""

    data: bytes
    unsafe: str = ""
    """Why the file or its folder may hold what another user of this machine has written."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the data."""
        return hashlib.sha256(self.data).hexdigest()


class TrustedFile(msgspec.Struct, frozen=True):
    """An entry of the list."""

    path: str
    sha256: str
    at: float


class UntrustedFile(NamedTuple):
    """A file that was found in the working folder and needs trust for what it says."""

    path: Path
    digest: str
    needs: tuple[str, ...]
    """A line and a reason each."""

    def __str__(self) -> str:
        """The message for the user, with the remedy."""
        return (
            f"{self.path} was found in the working folder and is not trusted: "
            f"{'; '.join(self.needs)}. Read the file, then run: {command(self.path)}"
        )


def command(path: Path) -> str:
    """The command that trusts this file."""
    return f"penstock trust {shlex.quote(str(path))}"


def read(file: ConfigFile) -> Contents:
    """The contents; raises OSError, or ConfigurationError for a file that is too large."""
    with file.path.open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
        status = os.fstat(opened.fileno())
    if len(data) > MAX_BYTES:
        raise ConfigurationError(
            f"{file.path} is larger than {MAX_BYTES // 1024 // 1024} MiB, the limit of a "
            "configuration file"
        )
    if not file.found:
        return Contents(data)
    folder = file.path.parent
    unsafe = _unsafe(status, "the file") or _unsafe(folder.stat(), f"its folder {folder}")
    return Contents(data, unsafe)


def is_trusted(file: ConfigFile, contents: Contents) -> bool:
    """Whether the user trusts this file with these contents."""
    if not file.found:
        return True
    named = _trusted_folders()
    if named is None:
        if not contents.unsafe:
            return True
    elif any(file.path.is_relative_to(folder) for folder in named):
        return True
    if store_file() is None:
        return False
    entry = next((each for each in entries() if each.path == str(file.path)), None)
    return entry is not None and entry.sha256 == contents.digest


def entries() -> list[TrustedFile]:
    """The files that are trusted, sorted by path."""
    store = _store()
    try:
        with store.open("rb") as opened:
            status, data = os.fstat(opened.fileno()), opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigurationError(f"cannot read {store}: {error.strerror}") from error
    if unsafe := _unsafe(status, "the file"):
        raise ConfigurationError(f"{store} is not used, because {unsafe}; run: chmod 600 {store}")
    try:
        found = msgspec.json.decode(data, type=list[TrustedFile])
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{store} is damaged ({error}); delete it, and trust your folders again"
        ) from error
    return sorted(found, key=lambda each: each.path)


def add(path: Path, digest: str) -> None:
    """Trust this file as long as it has these contents."""
    kept = [each for each in entries() if each.path != str(path)]
    _write([*kept, TrustedFile(str(path), digest, time.time())])


def remove(path: Path) -> bool:
    """Stop trusting this file; whether it was trusted."""
    before = entries()
    kept = [each for each in before if each.path != str(path)]
    if len(kept) == len(before):
        return False
    _write(kept)
    return True


def in_folder(folder: Path, name: str) -> Path:
    """The path under which a file of this folder is trusted.

    The folder's symbolic links are resolved. The file's is not: what it names relative to the
    folder would be another file.
    """
    return folder.resolve() / name


def _write(files: Sequence[TrustedFile]) -> None:
    store = _store()
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It is made with mode 600.
        descriptor, temporary = tempfile.mkstemp(prefix=STORE_NAME, dir=store.parent)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(files)) + b"\n")
            Path(temporary).replace(store)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {store}: {error.strerror}; set PENSTOCK_HOME to a folder that can be "
            "written to"
        ) from error


def store_file() -> Path | None:
    """The list; None where PENSTOCK_HOME is relative, and so a part of the working folder."""
    return home() / STORE_NAME if home().is_absolute() else None


def _store() -> Path:
    store = store_file()
    if store is None:
        raise ConfigurationError(
            f"PENSTOCK_HOME is the relative path {str(home())!r}, which is another folder in each "
            "working folder; make it absolute to trust files"
        )
    return store


def _trusted_folders() -> list[Path] | None:
    """The folders of the variable; None: it trusts every working folder."""
    value = os.environ.get(FOLDER_VARIABLE, "").strip()
    if value.lower() in _NO:
        return []
    if value.lower() in _YES:
        return None
    folders = [Path(each) for each in value.split(os.pathsep) if each]
    for folder in folders:
        if not folder.is_absolute():
            raise ConfigurationError(
                f"{FOLDER_VARIABLE}: {str(folder)!r} is not an absolute path; give 1, or absolute "
                f"paths separated by {os.pathsep!r}"
            )
    return [folder.resolve() for folder in folders]


def _unsafe(status: os.stat_result, what: str) -> str:
    """Why another user may have written this; empty where the system has no owners."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"{what} belongs to another user (uid {status.st_uid})"
    if status.st_mode & stat.S_IWOTH and not _is_sticky_folder(status):
        return f"{what} can be written by all users"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()):
        return f"{what} can be written by another group (gid {status.st_gid})"
    return ""


def _is_sticky_folder(status: os.stat_result) -> bool:
    # Such as /tmp: others can add files, but not replace those of their owners.
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
