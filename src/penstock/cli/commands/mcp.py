"""`penstock mcp`: Penstock as an MCP server, and a client for people who debug servers."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from penstock.cli import options
from penstock.cli.actions.mcp_arguments import needing_mcp, read_arguments, read_peer

EXAMPLES = """\b
Examples:
  penstock mcp serve
  penstock mcp tools URL --header "Authorization: Bearer KEY"
  penstock mcp call "python server.py" tell '{"topic": "tides"}'
  penstock mcp call http://127.0.0.1:8000/mcp add '{"a": 1, "b": 2}' --json
  penstock mcp sample-test "python server.py" summarise --approval ask

A server is an address, or in quotes the command that starts it.
"""

Server = Annotated[
    str, typer.Argument(metavar="SERVER", help="An http(s) address, or a command in quotes.")
]
Tool = Annotated[str, typer.Argument(metavar="TOOL", help="The name of the tool.")]
Arguments = Annotated[
    str,
    typer.Argument(metavar="JSON", help="Its arguments as a JSON object; - reads standard input."),
]
Era = Annotated[
    Literal["auto", "legacy", "modern"],
    typer.Option("--era", help="Which era of the protocol to speak; auto finds out."),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="'NAME: VALUE'",
        help="A header for a server at an address; may be repeated.",
        show_default=False,
    ),
]


def build() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="Serve MCP, and call, list and test the servers of others.")
    group.callback(invoke_without_command=True, epilog=EXAMPLES)(_group)
    group.command("serve")(serve)
    group.command("tools")(tools)
    group.command("call")(call)
    group.command("sample-test")(sample_test)
    return group


def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def serve(*, config: options.ConfigFile = None) -> None:
    """Run an MCP server on standard input and output.

    A gateway has the same at /mcp.
    """
    with needing_mcp():
        from penstock.cli.actions.mcp import serve_stdio

    serve_stdio(config)


def tools(
    server: Server,
    *,
    era: Era = "auto",
    header: Header = None,
    timeout: options.Timeout = 30.0,
    json: options.Json = False,
) -> None:
    """List the tools of a server."""
    peer = read_peer(server, era, header, timeout)
    with needing_mcp():
        from penstock.cli.actions.mcp import list_tools

    list_tools(peer, as_json=json)


def call(
    server: Server,
    tool: Tool,
    arguments: Arguments = "{}",
    *,
    era: Era = "auto",
    header: Header = None,
    timeout: options.Timeout = None,
    json: options.Json = False,
) -> None:
    """Call a tool; a stream appears as it arrives.

    The exit code is 1 when the tool fails.
    """
    peer, given = read_peer(server, era, header, timeout), read_arguments(arguments)
    with needing_mcp():
        from penstock.cli.actions.mcp import call_tool

    call_tool(peer, tool, given, as_json=json)


def sample_test(
    server: Server,
    tool: Tool,
    arguments: Arguments = "{}",
    *,
    era: Era = "auto",
    header: Header = None,
    approval: Annotated[
        Literal["always", "policy", "ask", "never"],
        typer.Option("--approval", help="Who lets a request through; ask asks you."),
    ] = "always",
    model: options.Model = None,
    timeout: options.Timeout = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
) -> None:
    """Call a tool as a host that answers sampling.

    Every sampling request of the server is shown. The models of the configuration answer.
    """
    peer, given = read_peer(server, era, header, timeout), read_arguments(arguments)
    with needing_mcp():
        from penstock.cli.actions.mcp_sampling import test_sampling

    test_sampling(peer, tool, given, config, approval=approval, model=model, as_json=json)
