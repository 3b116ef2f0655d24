"""The command line: the same facade as everyone else's, with people in front of it."""

from __future__ import annotations

import sys

from penstock.runtime.search_paths import leave_working_folder


def main() -> None:
    """The `penstock` command."""
    leave_working_folder()
    # Now, because it imports most of what there is.
    from penstock.cli.app import run

    sys.exit(run(sys.argv[1:]))
