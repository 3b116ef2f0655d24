"""`penstock audit`: what administrators have changed."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock audit
  penstock audit --action set_budget --since today
  penstock audit --subject ci --json | jq '.entries[0].before'

It has the changes of the admin API, of `penstock keys` and `penstock budget`, and of the
configuration while the gateway runs. `GET /admin/v1/audit` shows the same.
"""


def audit(
    *,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="Such as set_budget.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="What was changed.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="today, week, month, all, or a date.")
    ] = "all",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Most that are listed.")
    ] = 50,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Those before this one.")
    ] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Show what administrators have changed, newest first."""
    from penstock.cli.actions import audit as audit_work
    from penstock.cli.actions.usage_spans import beginning, now

    audit_work.show(
        config,
        action=action,
        subject=subject,
        since=beginning(since, now()),
        limit=limit,
        before=before,
        as_json=json,
    )
