"""`penstock providers`: who can answer."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock providers --check
  penstock providers --all
"""


def providers(
    *,
    all_kinds: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that are not configured.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Ask each configured one whether it answers.")
    ] = False,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """List the providers, and whether their keys are set."""
    from penstock.cli.actions import models

    models.show_providers(config, all_kinds=all_kinds, check=check, as_json=json)
