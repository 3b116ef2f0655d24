"""`penstock embed`: texts to vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock embed "a red apple" "a green pear"
  penstock embed --dimensions 64 < lines.txt > vectors.jsonl
  penstock embed "hello" --json | jq '.embeddings[0].embedding | length'

Each argument is one text; without any, each line of the piped input is one.
Blank lines are left out. Piped output is one JSON object a line.
"""


def embed(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The texts, one an argument.", show_default=False),
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="An embedding model: one of the configuration, or provider/model.",
            show_default="embedded/wordllama",
        ),
    ] = None,
    dimensions: Annotated[
        int | None,
        typer.Option(
            "--dimensions",
            "-d",
            min=1,
            metavar="N",
            help="Length of the vectors.",
            show_default="the model's own",
        ),
    ] = None,
    timeout: options.Timeout = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Turn texts into vectors."""
    from penstock.cli.actions import embed as vectors
    from penstock.cli.errors import wrong
    from penstock.cli.ui.inputs import argument, piped_text

    texts = [argument(item) for item in text or ()] or [
        line for line in (piped_text() or "").splitlines() if line.strip()
    ]
    if not any(item.strip() for item in texts):
        raise wrong("", 'there is no text; try: penstock embed "some text", or pipe lines in')
    vectors.embed(texts, config, model=model, dimensions=dimensions, timeout=timeout, as_json=json)
