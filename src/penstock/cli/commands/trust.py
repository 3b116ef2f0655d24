"""`penstock trust`: which configuration files of working folders may do everything."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock trust
  penstock trust ~/project/penstock.toml
  penstock trust --list
  penstock trust --remove ~/project/penstock.toml
"""


def trust(
    path: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A file or its folder.", show_default="penstock.toml"),
    ] = "penstock.toml",
    show: Annotated[bool, typer.Option("--list", help="List the trusted files.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Stop trusting this file.")] = False,
    json: options.Json = False,
) -> None:
    """Trust the penstock.toml of a folder, as it is now.

    A file that is found in the working folder may come from a stranger. Without trust it cannot
    read environment variables, other than a provider's own key for that provider's own address, or
    send prompts to an address that it chooses. A change of the file needs trust again. A file that
    --config or PENSTOCK_CONFIG names, or the one in PENSTOCK_HOME, needs none.
    """
    from penstock.cli.actions import trust as trusted

    if show:
        trusted.list_files(as_json=json)
    elif remove:
        trusted.remove(path, as_json=json)
    else:
        trusted.add(path, as_json=json)
