"""`penstock route`: who answers, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock route explain "Prove that there are infinitely many primes" --model assistant
  penstock route explain "Translate: good morning" --cost 1 --hint sonnet
  penstock route explain "Hello" --json | jq -r .reason
"""


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="See which targets would answer, and why.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("explain")(explain)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def explain(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What would be asked.")],
    *,
    model: options.Model = None,
    cost: Annotated[
        float | None,
        typer.Option("--cost", min=0, max=1, metavar="0..1", help="How much a low price counts."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", min=0, max=1, metavar="0..1", help="How much speed counts."),
    ] = None,
    intelligence: Annotated[
        float | None,
        typer.Option(
            "--intelligence", min=0, max=1, metavar="0..1", help="How much good answers count."
        ),
    ] = None,
    hint: Annotated[
        list[str] | None,
        typer.Option(
            "--hint", metavar="NAME", help="A part of a model's name; the first that fits counts."
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("--provider", "-p", metavar="NAME", help="Only targets of this provider."),
    ] = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Show the targets of a request in their order, with every score; nobody is asked."""
    from penstock.cli.route_explain import show_route
    from penstock.contract.options import ModelPreferences

    show_route(
        prompt,
        config,
        model=model,
        preferences=ModelPreferences(tuple(hint or ()), cost, speed, intelligence),
        provider=provider,
        max_tokens=max_tokens,
        as_json=json,
    )
