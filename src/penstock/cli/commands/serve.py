"""`penstock serve`: the gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock serve
  penstock serve --config penstock.toml --port 9000
  penstock serve --workers 4
  curl http://127.0.0.1:8400/v1/models
"""


def serve(
    *,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on.",
            show_default="the configuration's, or 127.0.0.1",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            metavar="N",
            help="Port to listen on; 0 takes a free one.",
            show_default="the configuration's, or 8400",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-w",
            min=1,
            max=256,
            metavar="N",
            help="Processes that share the port, the ledger and the limits of keys.",
            show_default="the configuration's, or 1",
        ),
    ] = None,
    config: options.ConfigFile = None,
    found: Annotated[
        bool,
        typer.Option(
            "--found", hidden=True, help="The file of --config was found, and needs to be trusted."
        ),
    ] = False,
) -> None:
    """Serve the models over HTTP, to the clients of others."""
    from penstock.cli.setup.config_file import load
    from penstock.config.load import load_file, locate
    from penstock.server.process.serve import serve as serve_forever

    file = locate(config)
    if found and file is not None:
        file = file._replace(found=True)
        loaded = load_file(file)
    else:
        loaded = load(config)
    serve_forever(
        loaded,
        host=host or loaded.server.host,
        port=loaded.server.port if port is None else port,
        source=str(config or file.path) if file else "no file: the embedded model",
        file=file,
        workers=workers,
    )
