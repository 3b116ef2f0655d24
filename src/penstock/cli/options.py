"""The options that several commands share, so that each means the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_MAX_TOKENS = 512

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="A model of the configuration, or provider/model.",
        show_default="the configuration's default",
    ),
]
System = Annotated[
    str | None,
    typer.Option("--system", "-s", metavar="TEXT", help="Instructions that come first."),
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=1, metavar="N", help="Longest answer, in tokens.")
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        "-t",
        metavar="X",
        help="0 is the most predictable; higher is more varied.",
        show_default="the model's own",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="Give up when it takes longer."),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The configuration file.",
        show_default="PENSTOCK_CONFIG, ./penstock.toml, or the one in ~/.penstock",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document; errors still go to stderr."),
]
GatewayURL = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The address of the gateway; its admin key is then PENSTOCK_ADMIN_KEY, if set.",
        show_default="that of the configuration",
    ),
]
