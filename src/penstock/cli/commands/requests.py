"""`penstock requests`: what the gateway is doing, and what became of a request."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options

EXAMPLES = """\b
Examples:
  penstock requests list --outcome failed
  penstock requests show req_3f9a0c1d2e4b5a6978c0d1e2
  penstock requests stop req_3f9a0c1d2e4b5a6978c0d1e2
  penstock requests list --ledger --limit 20
  penstock requests list --json | jq -r '.requests[].request_id'

They ask the admin API of the running gateway, with [server] host, port, TLS and admin_key of the
configuration. It has the requests that run and the last 1000 that have ended; the ledger has all.
"""

RequestId = Annotated[str, typer.Argument(metavar="ID", help="The x-request-id of the answer.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="NAME", help="Only requests with this key.")
]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="See why requests failed, and stop them.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("list")(list_requests)
    group.command("show")(show)
    group.command("stop")(stop)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def list_requests(
    *,
    state: Annotated[
        str, typer.Option("--state", metavar="NAME", help="all, running or ended.")
    ] = "all",
    outcome: Annotated[
        str | None, typer.Option("--outcome", metavar="NAME", help="ok, failed or cancelled.")
    ] = None,
    key: Key = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Asked for, or tried."),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Tried at this provider.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Most that are listed.")
    ] = 20,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Those of the ledger, which takes no gateway.")
    ] = False,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """List running and recent requests, newest first."""
    from penstock.cli.actions import requests as request_work

    if ledger:
        request_work.list_ledger(
            config, key=key, model=model, provider=provider, limit=limit, as_json=json
        )
        return
    request_work.list_requests(
        config,
        url,
        state=state,
        outcome=outcome,
        key=key,
        model=model,
        provider=provider,
        limit=limit,
        as_json=json,
    )


def show(
    request_id: RequestId,
    *,
    key: Key = None,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Show one request: its attempts, why they failed, and what it cost.

    A request that the gateway does not know any more is shown from the ledger.
    """
    from penstock.cli.actions import requests as request_work

    request_work.show(config, url, request_id, key, as_json=json)


def stop(
    request_id: RequestId,
    *,
    key: Key = None,
    url: options.GatewayURL = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Stop a running request, in whichever worker it runs."""
    from penstock.cli.actions import requests as request_work

    request_work.stop(config, url, request_id, key, as_json=json)
