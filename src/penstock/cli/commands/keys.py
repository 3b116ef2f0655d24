"""`penstock keys`: who may call the gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock keys create ci --models assistant --requests-per-minute 600
  penstock keys create trial --expires 30d --budget 5 --tag team=search
  penstock keys set ci --models assistant,embedder --budget 20 --unset expires
  penstock keys create prometheus --scope metrics
  penstock keys rotate ci --grace 1h
  penstock keys revoke ci
  penstock keys list --json | jq -r '.keys[].name'

A gateway that runs notices changes within a second or two. Its keys are also those that stand in
penstock.toml as [keys.NAME].
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="Make, list, change, replace and revoke the keys of the gateway.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("create")(create)
    group.command("list")(list_keys)
    group.command("set")(set_key)
    group.command("rotate")(rotate)
    group.command("revoke")(revoke)
    group.command("hash")(hash_key)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def create(
    name: Name,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            "-m",
            metavar="NAME,...",
            help="What it may ask for: configured models, provider/model or provider/*.",
            show_default="everything",
        ),
    ] = None,
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="NAME", help="calls, or metrics: /metrics and no more."),
    ] = "calls",
    requests_per_minute: Annotated[
        int | None,
        typer.Option("--requests-per-minute", min=1, metavar="N", help="In any 60 seconds."),
    ] = None,
    tokens_per_minute: Annotated[
        int | None,
        typer.Option(
            "--tokens-per-minute", min=1, metavar="N", help="In any 60 seconds, in and out."
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="30d|DATE", help="After a time, or at a date in UTC."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="NAME=VALUE", help="For budgets and reports; repeatable."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="USD", help="What it may spend of its own in a period."),
    ] = None,
    period: Annotated[
        str,
        typer.Option("--period", metavar="NAME", help="hour, day, week, month or forever."),
    ] = "month",
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Make a key and show it, once.

    It cannot be shown again: only its hash is kept.
    """
    from penstock.cli.actions import audit, keys

    with audit.key_change(config, "create_key", name):
        keys.create(
            name,
            keys.Wanted(
                models=models or (),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                expires=expires,
                tags=tag or (),
                budget=budget,
                period=period,
                scope=scope,
            ),
            config,
            as_json=json,
        )


def set_key(
    name: Name,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            "-m",
            metavar="NAME,...",
            help="What it may ask for, in the place of what it may now.",
            show_default=False,
        ),
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        typer.Option(
            "--requests-per-minute",
            min=1,
            metavar="N",
            help="In any 60 seconds; --unset removes it.",
        ),
    ] = None,
    tokens_per_minute: Annotated[
        int | None,
        typer.Option(
            "--tokens-per-minute",
            min=1,
            metavar="N",
            help="In any 60 seconds, in and out; --unset removes it.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="30d|DATE", help="After a time, or at a date in UTC."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="NAME=VALUE",
            help="All of its tags, in the place of those that it has; repeatable.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="USD", help="What it may spend of its own in a period."),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option("--period", metavar="NAME", help="hour, day, week, month or forever."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="NAME,...",
            help="Take away models, requests-per-minute, tokens-per-minute, budget, expires, tags.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Change what a key allows.

    What is not named stays, and so does the key itself.
    """
    from penstock.cli.actions import audit, keys

    with audit.key_change(config, "set_key", name):
        keys.change(
            name,
            keys.Changed(
                models=models or (),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
                expires=expires,
                tags=tag or (),
                budget=budget,
                period=period,
                unset=unset or (),
            ),
            config,
            as_json=json,
        )


def list_keys(*, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """List the keys with what they allow; never their text."""
    from penstock.cli.actions import keys

    keys.show(config, as_json=json)


def rotate(
    name: Name,
    *,
    grace: Annotated[
        str,
        typer.Option(
            "--grace", metavar="1h", help="How long the old one works beside it: 30s, 10m, 1h, 7d."
        ),
    ] = "0s",
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Replace a key by a new one and show that, once."""
    from penstock.cli.actions import audit, keys

    with audit.key_change(config, "rotate_key", name):
        keys.rotate(name, grace, config, as_json=json)


def revoke(name: Name, *, json: options.Json = False, config: options.ConfigFile = None) -> None:
    """Disable this key."""
    from penstock.cli.actions import audit, keys

    with audit.key_change(config, "revoke_key", name):
        keys.revoke(name, config, as_json=json)


def hash_key(
    *,
    stdin: Annotated[
        bool,
        typer.Option("--stdin", help="Read a key of your own from standard input instead."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Make a key, and the hash that stands for it in penstock.toml."""
    from penstock.cli.actions import keys

    keys.show_hash(from_stdin=stdin, as_json=json)
