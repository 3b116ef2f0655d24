"""`penstock usage`: what was used, and what it cost."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock usage
  penstock usage --since today --by provider
  penstock usage --by tag:team
  penstock usage --since 2026-05-01 --until 2026-06-01 --json
  penstock usage --since all --export usage.csv
  penstock usage --entries --limit 20

It is about what went through the ledger: the gateway, the commands ask, chat and embed, and
programs with [storage] or [budgets] in their configuration. Times are by this machine's clock.
"""


def usage(
    *,
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="today, week, month, all, or a date or time."),
    ] = "month",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="A date or time.", show_default="now"),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="WHAT", help="A row for each: model, provider, key, or tag:NAME."
        ),
    ] = "model",
    entries: Annotated[
        bool, typer.Option("--entries", help="List the ledger's own lines, newest first.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, max=10_000, metavar="N", help="Most lines of --entries."),
    ] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="ID", help="With --entries: those before this one."),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the ledger's lines to a file: .csv, .jsonl or .parquet.",
        ),
    ] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Show what was used and what it cost, with a bar for each day."""
    from penstock.cli.actions import ledger_lines
    from penstock.cli.actions import usage as usage_report
    from penstock.cli.actions.usage_spans import beginning, moment, now

    present = now()
    start = beginning(since, present)
    end = moment("--until", until) if until else None
    if export is not None:
        ledger_lines.write(config, export, start, end, as_json=json)
    elif entries:
        ledger_lines.show(config, start, end, limit=limit, before=before, as_json=json)
    else:
        usage_report.show(config, by, start, end or present, as_json=json)
