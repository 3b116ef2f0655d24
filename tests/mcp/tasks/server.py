"""A server with tools that take a while: `server.py STORE stdio | PORT`, or `build` in a test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CallToolRequestParams
from pydantic import BaseModel

from penstock.mcp.tasks import SqliteTasks, TaskLimits, Tasks, TaskStore

CHUNK = "dev.penstock/chunk"
BROKEN = -32050


class Word(BaseModel):
    """What a user is asked for."""

    word: str


def _which() -> Elicit[Word]:
    return Elicit("Which word?", Word)


class Chunking(Extension):
    """Sends the numbers 0, 1, 2 as chunks before a call, as tools that stream do."""

    identifier = "dev.example/chunking"

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        token = (ctx.params or {}).get("_meta", {}).get("progressToken")
        if params.name == "tell" and token is not None:
            for seq in range(3):
                told = types.ProgressNotificationParams(
                    progress_token=token, progress=seq + 1, _meta={CHUNK: {"seq": seq}}
                )
                note = types.ProgressNotification(params=told)
                await ctx.session.send_notification(note, related_request_id=ctx.request_id)
        return await call_next(ctx)


class Bench:
    """The server, its tasks, and what its tools have seen."""

    def __init__(
        self, store: Path | TaskStore, limits: TaskLimits | None = None, **options: Any
    ) -> None:
        self.stopped: list[str] = []
        self.release = asyncio.Event()
        self.tasks = Tasks(
            SqliteTasks(store) if isinstance(store, Path) else store,
            tools={
                "add": "optional",
                "steps": "optional",
                "ask_word": "optional",
                "ask_model": "optional",
                "resolve_word": "optional",
                "resolve_first": "optional",
                "hang": "optional",
                "held": "optional",
                "fail": "optional",
                "break_off": "optional",
                "only_task": "required",
                "much": "optional",
                "tell": "optional",
            },
            asks_first=["resolve_first"],
            limits=limits,
        )

        self.server: MCPServer[Any] = MCPServer(
            "tasks",
            extensions=[self.tasks, Chunking()],
            middleware=[self.tasks],
            log_level="ERROR",
            **options,
        )
        _add_tools(self)


def _add_tools(bench: Bench) -> None:
    server = bench.server

    @server.tool()
    async def plain(word: str) -> str:
        """No task."""
        return word

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def only_task() -> str:
        """A task, or nothing."""
        return "done"

    @server.tool()
    async def steps(ctx: Context, count: int) -> str:
        """Report progress."""
        for step in range(count):
            await ctx.report_progress(step + 1, count, f"step {step + 1}")
            await asyncio.sleep(0.01)
        return "finished"

    @server.tool()
    async def ask_word(ctx: Context) -> str:
        """Ask the user in the middle of the work."""
        said = await ctx.elicit("Which word?", Word)
        return said.data.word if said.action == "accept" else said.action

    @server.tool()
    async def ask_model(ctx: Context) -> str:
        """Ask the client's model in the middle of the work."""
        hi = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hi"))
        said = await ctx.session.send_request(
            types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(messages=[hi], max_tokens=5)
            ),
            types.CreateMessageResult,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
        return said.content.text if isinstance(said.content, types.TextContent) else ""

    @server.tool()
    async def resolve_word(said: Annotated[Word, Resolve(_which)]) -> str:
        """Have it asked by the SDK."""
        return said.word

    @server.tool()
    async def resolve_first(ctx: Context, said: Annotated[Word, Resolve(_which)]) -> str:
        """Have it asked by the SDK, before there is a task."""
        await ctx.report_progress(1, 2, "at work")
        return said.word

    @server.tool()
    async def hang(label: str) -> str:
        """Never finish."""
        try:
            await asyncio.Event().wait()
        finally:
            bench.stopped.append(label)
        return ""

    @server.tool()
    async def held(ctx: Context) -> str:
        """Finish when the test says so."""
        await ctx.report_progress(1, 2, "holding")
        await bench.release.wait()
        return "released"

    @server.tool()
    async def seen() -> list[str]:
        """The calls of `hang` that were stopped."""
        return bench.stopped

    @server.tool()
    async def fail() -> str:
        """Report an error."""
        raise ToolError("no luck")

    @server.tool()
    async def break_off() -> str:
        """Fail as the protocol does."""
        raise MCPError(BROKEN, "broken off", {"why": "a test"})

    @server.tool(structured_output=False)
    async def much(size: int) -> str:
        """So many letters."""
        return "x" * size

    @server.tool()
    async def tell(ctx: Context) -> str:
        """Give chunks, then everything."""
        await bench.release.wait()
        return "0 1 2"


def main(store: str, where: str) -> None:
    """Serve until the process ends."""
    bench = Bench(Path(store))
    if where == "stdio":
        bench.server.run("stdio")
    else:
        bench.server.run("streamable-http", host="127.0.0.1", port=int(where))


if __name__ == "__main__":
    main(*sys.argv[1:])
