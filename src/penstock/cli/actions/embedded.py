"""Installs the packages of the embedded model, and tells about them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from penstock.cli.ui import terminal
from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded import install as packages
from penstock.providers.embedded import weights
from penstock.providers.embedded.install import PACKAGES, REMEDY, Progress

_MIB = 1024 * 1024


def install() -> None:
    """Bring what is missing, with a bar that moves while it comes."""
    with contextlib.ExitStack() as shown:
        show = _shower(shown)
        total = 0

        def step(progress: Progress) -> None:
            nonlocal total
            total = progress.total
            show(progress)

        _install(step)
    if total == 0:
        print("the embedded model is already installed")
        return
    print("the embedded model is installed")
    terminal.note('Try it: penstock ask "Name three colours"')


def _install(step: Callable[[Progress], None]) -> None:
    try:
        packages.install(step)
    except ConfigurationError as error:
        first, *details = str(error).splitlines()
        if not details:
            raise
        for line in details:
            terminal.say(f"  {line}")
        raise ConfigurationError(
            f"{first.rstrip(':')}; the lines above say why, and what to do"
        ) from error


def show_status(*, as_json: bool) -> None:
    """Versions, and the weights with their size."""
    found = status()
    if as_json:
        terminal.print_json(found)
        return
    facts = {"installed": "yes" if found["installed"] else f"no; run: {REMEDY}"}
    facts |= {name: version or "missing" for name, version in found["packages"].items()}
    if found["weights"]:
        facts["weights"] = found["weights"]["path"]
        facts["size"] = f"{found['weights']['bytes'] / _MIB:.0f} MiB"
    terminal.print_facts(facts)


def status() -> dict[str, Any]:
    """What is there, as a JSON document."""
    return {
        "installed": not packages.missing(),
        "packages": {package.name: _version(package.name) for package in PACKAGES},
        "weights": _weights(),
    }


def _shower(shown: contextlib.ExitStack) -> Callable[[Progress], None]:
    """What shows a step: a bar in a terminal, which appears with the first one, else a line."""
    if not terminal.is_terminal(sys.stderr):
        return _say
    from rich import progress as rich

    columns = (
        rich.SpinnerColumn(),
        "{task.description}",
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
    )
    bar = rich.Progress(*columns, console=terminal.console(stderr=True), transient=True)

    def show(step: Progress) -> None:
        if not bar.tasks:
            shown.enter_context(bar)
            bar.add_task("")
        text = f"installing {step.package}" if step.package else "done"
        bar.update(bar.tasks[0].id, description=text, completed=step.done, total=step.total)

    return show


def _say(step: Progress) -> None:
    if step.package:
        terminal.say(f"installing {step.package} ({step.done + 1} of {step.total})")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _weights() -> dict[str, Any] | None:
    try:
        path = weights.find(weights.BUNDLED).path
    except ConfigurationError:
        return None
    return {"model": weights.BUNDLED, "path": str(path), "bytes": path.stat().st_size}
