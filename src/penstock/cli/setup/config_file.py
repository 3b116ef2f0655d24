"""The configuration of a command; a person at a terminal is asked whether to trust its file."""

from __future__ import annotations

import sys

from penstock.cli.ui import terminal
from penstock.config import load as files
from penstock.config import trust
from penstock.config.settings import Config
from penstock.config.trust import UntrustedFile
from penstock.contract.errors import ConfigurationError


def load(config_file: str | None) -> Config:
    """The configuration; without a terminal, a file that needs trust is an error."""
    if _at_terminal():
        untrusted = files.find_untrusted(config_file)
        if untrusted is not None and _confirmed(untrusted):
            trust.add(untrusted.path, untrusted.digest)
    return files.load(config_file)


def settle_trust(config_file: str | None) -> None:
    """Ask now, for a command that draws on the terminal later and reports errors itself."""
    try:
        load(config_file)
    except ConfigurationError:
        return


def _at_terminal() -> bool:
    return terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)


def _confirmed(untrusted: UntrustedFile) -> bool:
    import typer

    terminal.say(f"{untrusted.path} was found in the working folder. It needs your trust:")
    for need in untrusted.needs:
        terminal.say(f"  {need}")
    return typer.confirm("Trust this file as it is now?", default=False, err=True)
