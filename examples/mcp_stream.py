"""A tool that answers while it works, its client, and a server of the official SDK: this very file.

    python examples/mcp_stream.py

It needs the extra `mcp`. The server is started as a process of its own and spoken to by standard
input and output; at an address it would be `Client("http://...")`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import Context, MCPServer

from penstock.mcp import Chunks, StreamingTools, stream_tool, streamed

streaming = StreamingTools()
server = MCPServer("mill", extensions=[streaming], middleware=[streaming.announce])


@dataclass
class Reading:
    """What a gauge shows."""

    hour: int
    level: float


@server.tool()
@streamed
async def report(river: str, ctx: Context) -> AsyncIterator[str]:
    """Write a report, word by word."""
    await ctx.report_progress(1, 2, "reading the gauge")
    for word in f"The {river} stands two metres above the sill.".split(" "):
        yield f"{word} "


@server.tool()
@streamed
def readings(hours: int) -> Iterator[Reading]:
    """Read the gauge, hour by hour: a plain generator runs in a thread."""
    for hour in range(hours):
        yield Reading(hour, 2.0 + hour / 10)


@server.tool()
def gates() -> Chunks[str]:
    """The names of the gates, all at once."""
    return Chunks(["upper", "middle", "lower"])


@server.tool()
@streamed
async def watch() -> AsyncIterator[str]:
    """Never end; whoever stops reading stops it."""
    while True:
        yield "still flowing"


async def main() -> None:
    command = StdioServerParameters(command=sys.executable, args=[__file__, "serve"])
    async with Client(command) as client:
        story = stream_tool(client, "report", {"river": "Aare"})
        async for chunk in story:
            print(chunk.text, end="", flush=True)
        print()
        table = [chunk.data async for chunk in stream_tool(client, "readings", {"hours": 3})]
        print(table)
        names = [chunk.text async for chunk in stream_tool(client, "gates")]
        print(names)
        async for chunk in stream_tool(client, "watch"):
            print(chunk.text)
            break
        whole = await client.call_tool("readings", {"hours": 2})  # as any other tool

    assert story.result.structured_content == {
        "result": "The Aare stands two metres above the sill. "
    }
    assert [row["hour"] for row in table] == [0, 1, 2]
    assert names == ["upper", "middle", "lower"]
    assert whole.structured_content == {"result": table[:2]}


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run("stdio")
    else:
        asyncio.run(main())
