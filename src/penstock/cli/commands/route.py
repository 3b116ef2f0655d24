"""`penstock route`: who answers and why, and what that is learnt from."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock route explain "Prove that 7 is a prime number" --model assistant
  penstock route explain "Translate: good morning" --cost 1 --hint sonnet
  penstock route feedback req_0123456789abcdef01234567 1
  penstock route train outcomes.csv --prompts prompts.csv
  penstock route train pair_outcomes.parquet --model assistant
  penstock route export outcomes.jsonl --since 2026-05-01
  penstock route forget --key ci
  penstock route forget --older-than 30d --yes

What became of requests is kept in the file of the ledger: numbers about a prompt, never its text
unless the configuration asks for that.
"""

OfModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="Only for this model of the configuration.",
        show_default="all",
    ),
]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="See who would answer and why, and teach routing.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("explain")(explain)
    group.command("feedback")(feedback)
    group.command("train")(train)
    group.command("export")(export)
    group.command("forget")(forget)
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
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="NAME", help="Asked with this key, where keys learn for themselves."
        ),
    ] = None,
    max_tokens: options.MaxTokens = options.DEFAULT_MAX_TOKENS,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Rank the targets of a request, with every score.

    No model is called. When cost, speed or intelligence is given, those that are left out count
    nothing.
    """
    from penstock.cli.actions.route_explain import show_route
    from penstock.contract.options import ModelPreferences

    show_route(
        prompt,
        config,
        model=model,
        preferences=ModelPreferences(tuple(hint or ()), cost, speed, intelligence),
        provider=provider,
        key=key,
        max_tokens=max_tokens,
        as_json=json,
    )


def feedback(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST", help="The id of the request, as in x-request-id.")
    ],
    score: Annotated[
        float, typer.Argument(min=0, max=1, metavar="SCORE", help="From 0, useless, to 1, perfect.")
    ],
    *,
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="WHO", help="Who knows it: feedback, validation, judge or retry."
        ),
    ] = "feedback",
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="NAME", help="On behalf of this key, where keys are isolated."
        ),
    ] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Say how good the answer to a request was."""
    from penstock.cli.actions import route

    route.feedback(config, request_id, score, source, key, as_json=json)


def train(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Outcomes: .parquet, .csv or .jsonl."),
    ],
    *,
    prompts: Annotated[
        str | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="The prompts, when they are not in FILE.",
            show_default="X_prompts beside X_outcomes",
        ),
    ] = None,
    model: OfModel = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Learn from outcomes that are known already.

    Rows of FILE: prompt_id or prompt, model (a configured target), score from 0 to 1, cost_usd.
    Rows of the prompts: prompt_id, prompt. All rows are taken or none. A gateway that runs takes
    them up by itself.
    """
    from penstock.cli.actions import route

    route.train(config, file, prompts, model, as_json=json)


def export(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to: .parquet, .csv or .jsonl.")
    ],
    *,
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="today, week, month, all, or a date or time."),
    ] = "all",
    model: OfModel = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Write the outcomes with a score to a file.

    It can be trained from again, for it has the numbers that are known of each prompt.
    """
    from penstock.cli.actions import route

    route.export(config, file, since, model, as_json=json)


def forget(
    *,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="NAME", help="What this key has asked, and scores it gave."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="30d", help="What is older: 30s, 10m, 1h, 7d, 2w."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Delete outcomes with all that is kept of their prompts.

    With both options, what fits both. Nothing of it can be read from the file afterwards; exports
    and backups are not reached. A running gateway learns again from what is left.
    """
    from penstock.cli.actions import route

    route.forget(config, key, older_than, yes=yes, as_json=json)
