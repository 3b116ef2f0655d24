"""`penstock models`: what may be asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock models
  penstock models --provider groq
  penstock models --prices
  penstock models --json | jq -r '.models[].name'
"""


def models(
    *,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            "-p",
            metavar="NAME",
            help="Ask this provider which models it offers.",
        ),
    ] = None,
    prices: Annotated[
        bool,
        typer.Option(
            "--prices", help="Show what they cost, in USD per million tokens, and who says so."
        ),
    ] = False,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """List the configured models, or those that a provider offers."""
    from penstock.cli.actions import models as catalogue

    if provider is None:
        catalogue.show_models(config, prices=prices, as_json=json)
    else:
        catalogue.show_offers(provider, config, prices=prices, as_json=json)
