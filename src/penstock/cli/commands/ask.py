"""`penstock ask`: one question, one answer."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock ask "Name three colours"
  penstock ask "What is in this picture?" --image cat.png -m openai/gpt-6-luna
  cat report.txt | penstock ask "Summarise this in three sentences"
  penstock ask "Name a town in Peru" --schema town.json
  penstock ask "Say hello" --json | jq -r .text

Piped text is put after the prompt, or is the prompt when there is none.
A prompt that begins with a dash follows two dashes: penstock ask -- "-1 + 2?"
"""


def ask(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT", help="The question; several words need no quotes.", show_default=False
        ),
    ] = None,
    *,
    system: options.System = None,
    model: options.Model = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    temperature: options.Temperature = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="JSON Schema that the answer must fit."),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            "-i",
            metavar="FILE",
            help="A picture to look at: a file or a URL; may be repeated.",
            show_default=False,
        ),
    ] = None,
    timeout: options.Timeout = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Ask one question; the answer appears while it is made."""
    from penstock.cli.actions import ask as answering
    from penstock.cli.ui.inputs import argument, prompt_from, schema_from
    from penstock.contract.exchange import SamplingRequest
    from penstock.contract.media import image as image_part
    from penstock.contract.messages import user
    from penstock.contract.options import OutputSchema

    request = SamplingRequest(
        messages=(user(prompt_from(prompt), *map(image_part, image or ())),),
        max_tokens=max_tokens,
        model=model,
        system_prompt=argument(system) if system else None,
        temperature=temperature,
        output_schema=OutputSchema(schema_from(schema)) if schema else None,
        timeout=timeout,
    )
    answering.answer(request, config, as_json=json)
