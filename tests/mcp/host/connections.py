"""A host that is connected to a server which asks, over every transport and in both eras."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from penstock.mcp import SamplingHost
from tests.support.mcp.asking import asking_server
from tests.support.mcp.processes import HttpServer

Transport = Literal["memory", "stdio", "http"]
Era = Literal["legacy", "modern"]
SCRIPT = Path(__file__).parents[2] / "support" / "mcp" / "asking.py"
WAYS: tuple[tuple[Transport, Era], ...] = (
    ("memory", "legacy"),
    ("memory", "modern"),
    ("stdio", "legacy"),
    ("stdio", "modern"),
    ("http", "legacy"),
    ("http", "modern"),
)
MODES = {"legacy": "legacy", "modern": "auto"}


class RefusedError(Exception):
    """The host answered with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


def said(text: str, role: str = "user") -> dict[str, Any]:
    """A message of one block of text."""
    return {"role": role, "content": {"type": "text", "text": text}}


def params(*messages: Any, **fields: Any) -> dict[str, Any]:
    """MCP's params; a plain text is a user's message."""
    told = [said(each) if isinstance(each, str) else each for each in messages or ("Hello",)]
    return {"messages": told, "maxTokens": 100, **fields}


@functools.cache
def shared_server() -> HttpServer:
    """One for all tests of this process; it ends with the process."""
    server = HttpServer(lambda port: [sys.executable, str(SCRIPT), str(port)])
    atexit.register(server.kill)
    server.start()
    return server


def stdio() -> StdioServerParameters:
    """The command that starts the same server on standard input and output."""
    # The folder of the script would come first, and its `server.py` is another.
    code = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    return StdioServerParameters(command=sys.executable, args=["-c", code, "stdio"])


@dataclass
class Connected:
    """A client of the asking server, whose host answers."""

    client: Client

    async def text(self, tool: str, **arguments: Any) -> str:
        """What a tool of the server answers."""
        result = await self.client.call_tool(tool, arguments)
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert not result.is_error, block.text
        return block.text

    async def ask(self, asked: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """The raw result that the server got; raises RefusedError."""
        return await self.outcome("ask", params=asked or params(**fields))

    async def outcome(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The same for any tool that asks once."""
        try:
            came = json.loads(await self.text(tool, **arguments))
        except MCPError as error:
            # In the modern era the client hears of it first, and sends nothing.
            raise RefusedError(error.code, error.message, error.data) from error
        if "error" in came:
            raise RefusedError(**came["error"])
        return came["result"]


@contextlib.asynccontextmanager
async def connected(
    host: SamplingHost, way: tuple[Transport, Era] = ("memory", "legacy"), server: str = "asking"
) -> AsyncGenerator[Connected]:
    """Connect the host to the server in this way."""
    transport, era = way
    if transport == "memory":
        target: Any = asking_server()
    else:
        target = stdio() if transport == "stdio" else await asyncio.to_thread(_url)
    async with host.client(server, target, mode=MODES[era]) as client:
        yield Connected(client)


def _url() -> str:
    return shared_server().url
