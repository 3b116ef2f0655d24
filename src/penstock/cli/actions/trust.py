"""The work of `penstock trust`."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.cli.ui import terminal
from penstock.config import trust
from penstock.config.load import FILE_NAME, describe_needs
from penstock.config.trust import ConfigFile
from penstock.contract.errors import ConfigurationError


def add(path: str, *, as_json: bool) -> None:
    """Trust this file, and show what it may do now."""
    file = ConfigFile(_place(path), found=True)
    try:
        contents = trust.read(file)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file.path}: {error.strerror}") from error
    needs = describe_needs(contents, str(file.path))
    trust.add(file.path, contents.digest)
    if as_json:
        terminal.print_json(
            {"path": str(file.path), "sha256": contents.digest, "trusted": True, "needs": needs}
        )
        return
    for need in needs:
        terminal.say(f"  {need}")
    print(f"trusted {terminal.visible(str(file.path))}")


def remove(path: str, *, as_json: bool) -> None:
    """Stop trusting this file, whether or not it exists."""
    place = _place(path)
    if not trust.remove(place):
        raise ConfigurationError(f"{place} is not trusted; see: penstock trust --list")
    if as_json:
        terminal.print_json({"path": str(place), "trusted": False})
    else:
        print(f"no longer trusted: {terminal.visible(str(place))}")


def list_files(*, as_json: bool) -> None:
    """The files, and whether they are still what was trusted."""
    rows = [
        {"path": each.path, "sha256": each.sha256, "at": each.at, "state": _state(each)}
        for each in trust.entries()
    ]
    if as_json:
        terminal.print_json({"files": rows})
        return
    if not rows:
        print("no file is trusted")
        return
    terminal.print_table(
        ("file", "state", "since", "sha256"),
        [
            (
                str(row["path"]),
                str(row["state"]),
                time.strftime("%Y-%m-%d %H:%M", time.localtime(float(row["at"]))),
                str(row["sha256"])[:12],
            )
            for row in rows
        ],
    )


def _place(path: str) -> Path:
    given = Path(path).expanduser()
    file = given / FILE_NAME if given.is_dir() else given
    return trust.in_folder(file.parent, file.name)


def _state(entry: trust.TrustedFile) -> str:
    try:
        contents = trust.read(ConfigFile(Path(entry.path), found=True))
    except (OSError, ConfigurationError):
        return "missing"
    return "trusted" if contents.digest == entry.sha256 else "changed"
