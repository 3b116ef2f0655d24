"""An MCP server on the official SDK, as a process: `server.py stdio | PORT [MISCHIEF]`.

It answers both eras. Its tools give every kind of content, report progress, fail, hang and grow,
and ask the client for what it may not have. By mischief it does not tell of changes as it should.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections import Counter
from typing import Annotated, Any

import mcp_types as types
import pydantic
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()

_requests: Counter[str] = Counter()
_mischief: list[str] = []
"""What becomes of wishes to hear of changes: `refuse` the first, `hold` all until the list has
grown, or `end` each at once."""
_stopped: list[str] = []
_grown = asyncio.Event()


async def _count(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    _requests[ctx.method] += 1
    if ctx.method != "subscriptions/listen":
        return await call_next(ctx)
    match _mischief:
        case ["refuse"]:
            _mischief.clear()
            raise MCPError(types.INTERNAL_ERROR, "not now")
        case ["hold"]:
            await _grown.wait()
        case ["end"]:
            return {}
        case _:
            pass
    _requests["listening"] += 1
    try:
        return await call_next(ctx)
    finally:
        _requests["listening"] -= 1


server = MCPServer(
    "tests", cache_hints={"tools/list": CacheHint(ttl_ms=600_000)}, middleware=[_count]
)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def contents() -> types.CallToolResult:
    """One of each kind of content."""
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="words"),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.AudioContent(type="audio", data="UklGRgAAAABXQVZF", mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", name="page", uri="https://example.com/page"),
            types.EmbeddedResource(
                type="resource",
                resource=types.TextResourceContents(uri="test://text", text="from a resource"),
            ),
            types.EmbeddedResource(
                type="resource",
                resource=types.BlobResourceContents(
                    uri="test://picture", blob=PIXEL, mime_type="image/png"
                ),
            ),
            types.EmbeddedResource(
                type="resource",
                resource=types.BlobResourceContents(
                    uri="test://archive", blob="AAECAw==", mime_type="application/zip"
                ),
            ),
        ]
    )


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.tool()
async def steps(ctx: Context, count: int) -> str:
    """Report progress and finish."""
    for step in range(count):
        await ctx.report_progress(step + 1, count, f"step {step + 1}")
    return "finished"


@server.tool()
async def hang(ctx: Context, name: str) -> str:
    """Never finish; `stopped` tells whether it was cancelled."""
    try:
        await ctx.report_progress(0, None, "hanging")
        await asyncio.Event().wait()
    finally:
        _stopped.append(name)
    return ""


@server.tool()
async def stopped() -> list[str]:
    """The names of the calls of `hang` that were cancelled."""
    return _stopped


@server.tool()
async def header(ctx: Context, name: str) -> str:
    """The value of a header of this very request."""
    return (ctx.headers or {}).get(name, "")


@server.tool(structured_output=False)
async def much(size: int) -> str:
    """So many letters."""
    return "x" * size


@server.tool()
async def requests() -> dict[str, int]:
    """How many requests of which kind there have been, and how many are `listening`."""
    return dict(_requests)


@server.tool()
async def process() -> int:
    """The number of this process."""
    return os.getpid()


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool, and say so."""

    async def sprout() -> str:
        return "sprouted"

    server.add_tool(sprout, name="sprout")
    _grown.set()
    await ctx.notify_tools_changed()  # to those who listen, in the modern era
    return "grown"


class Answer(pydantic.BaseModel):
    """What a user is asked for."""

    word: str


QUESTION = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hi"))


def _sampled() -> Sample:
    return Sample([QUESTION], max_tokens=5)


def _elicited() -> Elicit[Answer]:
    return Elicit("Say a word.", Answer)


@server.tool()
async def ask_model(said: Annotated[types.CreateMessageResult, Resolve(_sampled)]) -> str:
    """Have the client's model say something."""
    return str(said.content)


@server.tool()
async def ask_user(said: Annotated[Answer, Resolve(_elicited)]) -> str:
    """Have the client's user say something."""
    return said.word


@server.tool()
async def ask_roots(said: Annotated[types.ListRootsResult, Resolve(ListRoots)]) -> str:
    """Ask for the client's folders."""
    return str(said.roots)


@server.tool()
async def insist(ctx: Context) -> str:
    """Ask the client's model whether or not the client said that it has one."""
    said = await ctx.session.create_message(  # pyright: ignore[reportDeprecated]
        [QUESTION], max_tokens=5, related_request_id=ctx.request_id
    )
    return str(said.content)


if __name__ == "__main__":
    _mischief += sys.argv[2:]
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
