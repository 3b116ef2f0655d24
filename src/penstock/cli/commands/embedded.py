"""`penstock embedded`: the model that comes along."""

from __future__ import annotations

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock embedded install
  penstock embedded status --json
"""


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="Install or look at the model that needs no key and no network.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("install")(install)
    group.command("status")(status)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def install() -> None:
    """Install the engine and the weights.

    About 300 MB on disk; says so at once when they are there.
    """
    from penstock.cli.actions import embedded

    embedded.install()


def status(json: options.Json = False) -> None:
    """Show the installed versions and the weights' path."""
    from penstock.cli.actions import embedded

    embedded.show_status(as_json=json)
