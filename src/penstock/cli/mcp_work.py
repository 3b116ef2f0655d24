"""What the commands of `penstock mcp` do."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import typer

from penstock.cli import terminal
from penstock.cli.answering import Printer
from penstock.cli.engines import open_engine
from penstock.cli.errors import FAILED, say_error, wrong
from penstock.contract.errors import ConfigurationError, ToolFailed
from penstock.contract.options import MCPTool

try:
    import httpx2
    import mcp_types
    import pydantic
    from mcp import Client, InputRequiredRoundsExceededError, StdioServerParameters
    from mcp.shared.exceptions import MCPError
    from mcp_types.version import LATEST_MODERN_VERSION

    from penstock.mcp.http import over_http
    from penstock.mcp.streaming.client import stream_tool
    from penstock.mcp.tools import MOST_PAGES
    from penstock.server.mcp_stdio import serve_stdio as serve_on_stdio
except ImportError as error:
    raise ConfigurationError(
        f"`penstock mcp` needs the extra `mcp`: pip install 'penstock[mcp]' ({error})"
    ) from error

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


class Peer(NamedTuple):
    """A server as the command line names it."""

    server: str
    era: str
    headers: tuple[str, ...]
    timeout: float | None

    def client(self, **options: Any) -> Client:
        """A client that is not connected yet; raises InvalidRequest for what names no server."""
        if self.timeout is not None and not self.timeout > 0:
            raise wrong("--timeout", f"{self.timeout} is not a positive number")
        mode = LATEST_MODERN_VERSION if self.era == "modern" else self.era
        return Client(self._target(), mode=mode, read_timeout_seconds=self.timeout, **options)

    def _target(self) -> Any:
        if self.server.startswith(("http://", "https://")):
            try:
                _ = urlsplit(self.server).port
            except ValueError as error:
                raise wrong("SERVER", f"{self.server!r} is no address: {error}") from error
            tool = MCPTool(self.server, "server", dict(map(_header, self.headers)))
            return over_http(tool)
        if self.headers:
            raise wrong("--header", "is for a server at an address; a command has none")
        try:
            words = shlex.split(self.server)
        except ValueError as error:
            raise wrong("SERVER", f"{self.server!r} is no command: {error}") from error
        if not words:
            raise wrong("SERVER", "is empty; give an http(s) address, or a command in quotes")
        return StdioServerParameters(
            command=words[0], args=words[1:], encoding_error_handler="replace"
        )


def serve_stdio(config: str | None) -> None:
    """The whole of `penstock mcp serve`."""

    async def main() -> None:
        async with open_engine(config) as engine:
            await serve_on_stdio(engine)

    asyncio.run(main())


def list_tools(peer: Peer, *, as_json: bool) -> None:
    """The whole of `penstock mcp tools`."""

    async def main() -> list[mcp_types.Tool]:
        async with peer.client() as client:
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


def call_tool(peer: Peer, tool: str, arguments: str, *, as_json: bool) -> None:
    """The whole of `penstock mcp call`."""
    given = read_arguments(arguments)

    async def main() -> mcp_types.CallToolResult:
        async with peer.client() as client:
            return await live(client, tool, given, quiet=as_json)

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


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a tool; raises InvalidRequest."""
    if text == "-":
        text = sys.stdin.read()
    try:
        given: object = json.loads(text)
        # Python reads more than can be sent: numbers that are none, and halves of characters.
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise wrong("JSON", f"the arguments are not JSON: {error}") from error
    if not isinstance(given, dict):
        raise wrong("JSON", "the arguments are no object; give one such as '{\"a\": 1}'")
    return cast(dict[str, Any], given)


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
        return ToolFailed(f"the MCP server failed: {error or type(error).__name__}")
    return error


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseException, error.exceptions[0])
    return error


def plain(model: Any) -> dict[str, Any]:
    """A value of the protocol as its JSON."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise wrong("--header", "has no name; write it as 'Name: value'")
    if not (text.isascii() and text.isprintable()):
        raise wrong("--header", f"{name!r} holds more than plain ASCII; encode what does")
    return name.strip(), value.strip()


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
