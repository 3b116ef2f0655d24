"""`penstock targets`: which targets the gateway calls, and which it leaves alone."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock targets list
  penstock targets down openai/gpt-6-luna --reason "maintenance until noon"
  penstock targets up openai/gpt-6-luna
  penstock targets down openai
  penstock targets up "openai/gpt-*"

They ask the admin API of the running gateway, with [server] host, port, TLS and admin_key of the
configuration. A mark holds in all workers until it is taken back or the gateway restarts.
"""

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="provider/model as `targets list` shows it, a provider, or a pattern with *.",
    ),
]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="See targets, and take them out of use.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("list")(list_targets)
    group.command("down")(down)
    group.command("up")(up)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def list_targets(
    *,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """List the targets that were called, with their health and load."""
    from penstock.cli.actions import targets

    targets.list_targets(config, url, as_json=json)


def down(
    target: Target,
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is shown and logged.")
    ] = None,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Take targets out of use until they are marked up.

    Requests go to the next target of their model. A provider or a pattern also covers targets that
    are called later.
    """
    from penstock.cli.actions import targets

    targets.mark_down(config, url, target, reason, as_json=json)


def up(
    target: Target,
    *,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Call targets again, and close their circuit breakers."""
    from penstock.cli.actions import targets

    targets.mark_up(config, url, target, as_json=json)
