"""A server whose tools stream, as a process of its own: `server.py stdio | PORT`.

It answers both eras. `make_server` makes one for clients in the same process.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from penstock.mcp import Chunks, StreamingTools, streamed

PIXEL = types.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png")
PLAIN_VALUES: list[Any] = [{"a": [None]}, [1, [2, None]], 5, 1.5, True, None, "t", "", []]
HALF_A_CHARACTER = "\ud83d"


@dataclass
class Row:
    """A line of a table."""

    name: str
    size: int


def odd_value(kind: str) -> object:
    """Something that JSON cannot say."""
    circle: list[object] = []
    circle.append(circle)
    return {
        "half": HALF_A_CHARACTER,
        "circle": circle,
    }[kind]


def make_server() -> MCPServer:
    """With gates, counts and records of its own."""
    streaming = StreamingTools()
    server = MCPServer("streams", extensions=[streaming], middleware=[streaming.announce])
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    made: Counter[str] = Counter()
    ended: list[str] = []
    barriers: dict[int, threading.Barrier] = {}
    beginning = threading.Lock()

    @server.tool()
    @streamed
    async def tell(count: int, prefix: str = "w") -> AsyncIterator[str]:
        """So many words."""
        for at in range(count):
            yield f"{prefix}{at} "

    @server.tool()
    @streamed
    def walk(count: int) -> Iterator[int]:
        """So many numbers, from a thread."""
        yield from range(count)

    @server.tool()
    @streamed
    def tally(count: int) -> Generator[str, None, int]:
        """Words, and their number as the result."""
        for at in range(count):
            yield f"word {at}"
        return count

    @server.tool()
    @streamed
    async def table() -> AsyncGenerator[Row, None]:
        """Rows."""
        yield Row("first", 1)
        yield Row("second", 2)

    @server.tool()
    @streamed
    async def gallery() -> AsyncIterator[str | types.ImageContent]:
        """Words and a picture."""
        yield "look:"
        yield PIXEL

    @server.tool()
    @streamed(collect=list)
    async def lines() -> AsyncIterator[str]:
        """Texts that do not belong together."""
        yield "one"
        yield "two"

    @server.tool()
    @streamed
    async def nothing() -> AsyncIterator[str]:
        """A generator that gives nothing."""
        for word in ():
            yield word

    @server.tool()
    @streamed
    async def handed_on(count: int) -> AsyncIterator[str]:
        """A function that returns a generator."""
        return tell_words(count)

    @server.tool()
    async def listed() -> list[str]:
        """A list, and no generator."""
        return ["a", "b", "c"]

    @server.tool()
    async def in_chunks() -> Chunks[int]:
        """Chunks that are there at once."""
        return Chunks([1, 2])

    @server.tool()
    async def single() -> str:
        """One value."""
        return "all of it"

    @server.tool()
    @streamed
    async def gated(name: str) -> AsyncIterator[str]:
        """One word; the other when somebody calls `open_gate`."""
        yield "before "
        await gates[name].wait()
        yield "after"

    @server.tool()
    async def open_gate(name: str) -> str:
        """Let `gated` go on."""
        gates[name].set()
        return name

    @server.tool()
    @streamed
    async def mixed(ctx: Context) -> AsyncIterator[str]:
        """Chunks, and progress of its own that counts something else."""
        await ctx.report_progress(10, 100, "warming up")
        await ctx.report_progress(50, 100)
        yield "one"
        await ctx.report_progress(5, 100, "back")
        yield "two"

    @server.tool()
    @streamed
    async def breaks(after: int, deliberately: bool = True) -> AsyncIterator[str]:
        """Fail when so many words are out."""
        for at in range(after):
            yield f"w{at} "
        raise ToolError("out of words") if deliberately else RuntimeError("a secret")

    @server.tool()
    @streamed
    async def endless(name: str, size: int = 10) -> AsyncIterator[str]:
        """Never end."""
        try:
            while True:
                made[name] += 1
                yield "x" * size
                await asyncio.sleep(0)
        finally:
            ended.append(name)

    @server.tool()
    @streamed
    def endless_in_a_thread(name: str) -> Iterator[str]:
        """Never end, without a loop."""
        try:
            while True:
                made[name] += 1
                yield "x"
        finally:
            ended.append(name)

    @server.tool()
    @streamed
    def meeting(count: int) -> Iterator[str]:
        """Wait until so many are here."""
        with beginning:
            barrier = barriers.setdefault(count, threading.Barrier(count))
        yield "here"
        barrier.wait()
        yield "met"

    @server.tool()
    @streamed
    async def typed() -> AsyncIterator[Any]:
        """A value of each type, and bytes."""
        for value in PLAIN_VALUES:
            yield value
        yield b"\xff\xfe"

    @server.tool()
    async def plainly_typed():
        """The same as a list."""
        return [*PLAIN_VALUES, b"\xff\xfe"]

    @server.tool()
    @streamed
    async def odd(kind: str) -> AsyncIterator[Any]:
        """A chunk that JSON cannot say, after one that it can."""
        yield "fine"
        yield odd_value(kind)

    @server.tool()
    @streamed
    async def echo(pieces: list[str]) -> AsyncIterator[str]:
        """What it is given."""
        for piece in pieces:
            yield piece

    @server.tool()
    @streamed(max_bytes=1000)
    async def limited(sizes: list[int]) -> AsyncIterator[str]:
        """Texts of these lengths."""
        for size in sizes:
            yield "x" * size

    @server.tool()
    @streamed
    async def huge(size: int, count: int) -> AsyncIterator[str]:
        """Chunks of that many letters."""
        for at in range(count):
            yield chr(ord("a") + at) * size

    @server.tool()
    @streamed
    async def nested(ctx: Context) -> AsyncIterator[str]:
        """Call another tool that streams, which has nobody of its own to send to."""
        inner = await server.call_tool("tell", {"count": 2}, ctx)
        assert isinstance(inner, types.CallToolResult)
        yield f"inside: {inner.structured_content}"

    @server.tool()
    async def made_by(name: str) -> int:
        """How many chunks a call of `endless` made."""
        return made[name]

    @server.tool()
    async def ended_calls() -> list[str]:
        """The calls of `endless` whose generator was closed."""
        return ended

    return server


async def tell_words(count: int) -> AsyncIterator[str]:
    """As `tell`, and no tool."""
    for at in range(count):
        yield f"w{at} "


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        make_server().run("stdio")
    else:
        make_server().run("streamable-http", port=int(sys.argv[1]))
