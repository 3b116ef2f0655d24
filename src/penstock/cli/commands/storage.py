"""`penstock storage`: the file that keeps the ledger and the keys."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock storage accept
  penstock storage accept --yes --config penstock.toml
"""


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="The file that keeps the ledger and the keys.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("accept")(accept)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def accept(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Accept the store at the configured path as it is.

    A gateway that has had keys, an admin key or budgets refuses a store that is missing, replaced,
    emptied or older than the one it knew. This takes the store as it is: what it lacks is lost.
    Stop the gateway first, and start it afterwards.
    """
    from penstock.cli.actions import audit
    from penstock.cli.ui import terminal
    from penstock.config.load import load
    from penstock.engine.build.storage import store_guards

    settings = load(config)
    path = settings.storage.path
    if not yes and not typer.confirm(
        f"Accept {path} as it is? Keys, budgets and spending that it lacks are lost.", err=True
    ):
        raise typer.Abort
    found = store_guards(durable=True).of(path).accept()
    if path.exists():
        audit.record(settings, "accept_store", str(path), after=found)
    if json:
        terminal.print_json({"path": str(path), "found": found})
    else:
        print(f"accepted {path}: {found}")
