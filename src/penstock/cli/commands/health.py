"""`penstock health`: whether the gateway of a configuration answers, for containers and scripts."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock health
  penstock health --config /etc/penstock/penstock.toml
  penstock health --port 9000 --ready
"""


def health(
    *,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            metavar="N",
            help="Port of the gateway.",
            show_default="the configuration's, or 8400",
        ),
    ] = None,
    ready: Annotated[
        bool,
        typer.Option("--ready", help="Ask whether a request would be served now."),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, max=60, metavar="SECONDS", help="Longest wait."),
    ] = 3.0,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Check the gateway that runs on this machine.

    The certificate must be the configured one. Exit code 0: it answers; 1: it does not.
    """
    from penstock.cli.actions import health as health_check
    from penstock.cli.setup.config_file import load

    health_check.check(load(config).server, port=port, ready=ready, timeout=timeout, as_json=json)
