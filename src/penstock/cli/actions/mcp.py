"""What the commands of `penstock mcp` do."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import httpx2
import mcp_types
import pydantic
import typer
from mcp import Client, InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from penstock.cli.actions.ask import Printer
from penstock.cli.actions.mcp_arguments import Peer
from penstock.cli.errors import FAILED, say_error
from penstock.cli.setup.engines import open_engine
from penstock.cli.ui import terminal
from penstock.contract.errors import ToolFailed
from penstock.contract.options import MCPTool
from penstock.mcp.http import over_http
from penstock.mcp.stdio import over_stdio
from penstock.mcp.streaming.client import stream_tool
from penstock.mcp.tools import MOST_PAGES
from penstock.server.doors.mcp.stdio import serve_stdio as serve_on_stdio

T = TypeVar("T")
_SHORT = 80
_OF_SERVERS = (
    MCPError,
    InputRequiredRoundsExceededError,
    OSError,
    TimeoutError,
    httpx2.HTTPError,
    pydantic.ValidationError,
)
"""What goes wrong on account of a server."""


def client_of(peer: Peer, **options: Any) -> Client:
    """A client of the server that is not connected yet."""
    mode = LATEST_MODERN_VERSION if peer.era == "modern" else peer.era
    server = (
        over_http(peer.reached) if isinstance(peer.reached, MCPTool) else over_stdio(peer.reached)
    )
    return Client(server, mode=mode, read_timeout_seconds=peer.timeout, **options)


def serve_stdio(config: str | None) -> None:
    """The whole of `penstock mcp serve`."""

    async def main() -> None:
        async with open_engine(config) as engine:
            await serve_on_stdio(engine)

    asyncio.run(main())


def list_tools(peer: Peer, *, as_json: bool) -> None:
    """The whole of `penstock mcp tools`."""

    async def main() -> list[mcp_types.Tool]:
        async with client_of(peer) as client:
            tools: list[mcp_types.Tool] = []
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                if not page.next_cursor or page.next_cursor == cursor:
                    return tools
                cursor = page.next_cursor
            terminal.say(f"the server has more than {MOST_PAGES} pages of tools; these are shown")
            return tools

    with terminal.waiting("asking the server"):
        tools = run(main())
    if as_json:
        terminal.print_json({"tools": [plain(tool) for tool in tools]})
        return
    terminal.print_table(
        ("tool", "arguments", "description"),
        [((tool.name, "bold"), _arguments(tool), _first_line(tool)) for tool in tools],
    )


def call_tool(peer: Peer, tool: str, arguments: dict[str, Any], *, as_json: bool) -> None:
    """The whole of `penstock mcp call`."""

    async def main() -> mcp_types.CallToolResult:
        async with client_of(peer) as client:
            return await live(client, tool, arguments, quiet=as_json)

    result = run(main())
    if as_json:
        terminal.print_json(plain(result))
    if result.is_error:
        raise typer.Exit(FAILED)


async def live(
    client: Client, tool: str, arguments: dict[str, Any], *, quiet: bool
) -> mcp_types.CallToolResult:
    """Call the tool; unless `quiet`, what it says is printed as it comes, and errors are told."""
    printer = Printer(sys.stdout)
    stream = stream_tool(client, tool, arguments)
    said = False
    try:
        async for chunk in stream:
            if not quiet:
                printer.write(chunk.text or (_block(chunk.content) if chunk.content else ""))
                said = True
    except ToolFailed as failure:
        if not quiet:
            if said:
                printer.end()
            say_error(str(failure))
        return stream.result
    if not quiet:
        if not said:
            for block in stream.result.content:
                printer.write(_block(plain(block)))
        printer.end()
    return stream.result


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it; what goes wrong with the server is one error, and not a group of them."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise _told(_innermost(group)) from group
    except _OF_SERVERS as error:
        raise _told(error) from error


def _told(error: BaseException) -> BaseException:
    if isinstance(error, _OF_SERVERS):
        said = str(error) or type(error).__name__
        if said == "All connection attempts failed":
            said = "nothing answers at its address; start it, or check the address"
        return ToolFailed(f"the MCP server failed: {said}")
    return error


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseException, error.exceptions[0])
    return error


def plain(model: Any) -> dict[str, Any]:
    """A value of the protocol as its JSON."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _arguments(tool: mcp_types.Tool) -> str:
    """The names; those that may be left out in brackets."""
    properties = cast(dict[str, Any], tool.input_schema.get("properties") or {})
    required = cast(list[str], tool.input_schema.get("required") or [])
    names = (name if name in required else f"[{name}]" for name in properties)
    return " ".join(names)


def _first_line(tool: mcp_types.Tool) -> str:
    text = (tool.description or tool.title or "").strip().partition("\n")[0]
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _block(block: Any) -> str:
    """A block for people: text as it is, and of anything else its JSON."""
    content = cast(dict[str, Any], block)
    if content.get("type") == "text":
        return str(content["text"])
    data = str(content.get("data", ""))
    if len(data) > _SHORT:
        content = {**content, "data": f"{data[:_SHORT]}... ({len(data):,} characters)"}
    return json.dumps(content, ensure_ascii=False)
