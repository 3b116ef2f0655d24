"""The command line: the same facade as everyone else's, with people in front of it."""

from __future__ import annotations

import sys

from penstock.cli.app import run


def main() -> None:
    """The `penstock` command."""
    sys.exit(run(sys.argv[1:]))
