"""`penstock budget`: what may be spent."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock budget set total 100
  penstock budget set claude 20 --period week --provider claude --soft
  penstock budget list
  penstock budget reset total
  penstock budget verify
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the budget.")]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="Limit what may be spent, and see what is left.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("list")(list_budgets)
    # So that a negative limit is one, and no unknown option; what is wrong with it is said.
    group.command("set", context_settings={"ignore_unknown_options": True})(set_budget)
    group.command("reset")(reset)
    group.command("remove")(remove)
    group.command("verify")(verify)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def list_budgets(*, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """Show the budgets and what is left of them."""
    from penstock.cli.actions import budget

    budget.show(config, as_json=json)


def set_budget(
    name: Name,
    limit: Annotated[str, typer.Argument(metavar="USD", help="US dollars a period; 0 is none.")],
    *,
    period: Annotated[
        str,
        typer.Option(
            "--period",
            metavar="NAME",
            help="hour, day, week, month or forever, by the calendar; weeks begin on Monday.",
        ),
    ] = "month",
    timezone: Annotated[
        str,
        typer.Option("--timezone", metavar="ZONE", help="Whose calendar, such as Europe/Berlin."),
    ] = "UTC",
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Only calls of this provider.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Only calls of this upstream model."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="NAME", help="Only requests with this key."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="NAME=VALUE",
            help="Only requests whose metadata says so; may be repeated.",
            show_default=False,
        ),
    ] = None,
    soft: Annotated[
        bool, typer.Option("--soft", help="Warn when it is spent, and refuse nothing.")
    ] = False,
    warn_at: Annotated[
        list[float] | None,
        typer.Option(
            "--warn-at",
            metavar="SHARE",
            help="Warn when this share is spent; may be repeated.",
            show_default="0.8",
        ),
    ] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Set a budget, also in place of one of that name.

    It takes effect at once, also in a running gateway, and counts what its period has used
    already. It overrides one of the same name in the configuration.
    """
    from penstock.cli.actions import audit, budget

    with audit.budget_change(config, "set_budget", name):
        budget.set_budget(
            config,
            name,
            limit,
            as_json=json,
            period=period,
            timezone=timezone,
            provider=provider,
            model=model,
            key=key,
            tags=tag or (),
            hard=not soft,
            warn_at=warn_at,
        )


def reset(name: Name, *, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """Reset the present period.

    Reservations of running requests stay.
    """
    from penstock.cli.actions import audit, budget

    with audit.budget_change(config, "reset_budget", name):
        budget.reset(config, name, as_json=json)


def remove(name: Name, *, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """Remove a budget that was set by hand.

    Remove one of the configuration in its file.
    """
    from penstock.cli.actions import audit, budget

    with audit.budget_change(config, "remove_budget", name):
        budget.remove(config, name, as_json=json)


def verify(*, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """Add up the whole ledger and compare.

    The exit code is 1 when something is off.
    """
    from penstock.cli.actions import budget
    from penstock.cli.errors import FAILED

    if not budget.verify(config, as_json=json):
        raise typer.Exit(FAILED)
