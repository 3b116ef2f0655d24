"""An MCP server whose tools sample, as a process of its own too: `server.py stdio | PORT`."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity

from penstock import (
    Message,
    PenstockError,
    Text,
    ToolDefinition,
    ToolResult,
    ToolUse,
    UnsupportedOption,
    assistant,
    user,
)
from penstock.mcp import Sampling, once, sample
from penstock.mcp.asking.host import Answering
from penstock.testing import FakeProvider, engine_with

OWN_ANSWER = "said by the server's own model"
WEATHER = ToolDefinition("weather", "The weather.", {"type": "object"})


def build(
    *,
    engine: Answering | None = None,
    sampling: Sampling | None = None,
    security: RequestStateSecurity | None = None,
) -> tuple[MCPServer[Any], Counter[str]]:
    """The server, and how often each of its functions ran."""
    runs: Counter[str] = Counter()
    sampling = sampling or Sampling()
    server: MCPServer[Any] = MCPServer(
        "asking", extensions=[sampling], middleware=[sampling], request_state_security=security
    )

    @server.tool()
    async def summarise(ctx: Context, text: str) -> str:
        """One question."""
        runs["summarise"] += 1
        answer = await sample(ctx, f"Summarise: {text}", max_tokens=300, engine=engine)
        return f"{answer.metadata.provider}: {answer.text}"

    @server.tool()
    async def everything(ctx: Context) -> str:
        """A question with every option."""
        answer = await sample(
            ctx,
            [user("Look", "closely"), {"role": "system", "content": "Be kind."}],
            max_tokens=7,
            model="luna",
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["END"],
            metadata={"user": "u1"},
            meta={"dev.example/trace": "t1"},
        )
        return f"{answer.model} {answer.stop_reason} {answer.usage.total_tokens}"

    @server.tool()
    async def contextual(ctx: Context, ignore: bool = False) -> str:
        """A question that asks for context."""
        try:
            answer = await sample(
                ctx,
                "Hi",
                max_tokens=7,
                include_context="thisServer",
                ignore_invalid_options=ignore,
            )
        except UnsupportedOption as error:
            return str(error)
        return f"{answer.text} {','.join(answer.metadata.dropped_options)}"

    @server.tool()
    async def twice(ctx: Context) -> str:
        """Two questions, the second made of the first answer."""
        runs["twice"] += 1
        first = await sample(ctx, "one", max_tokens=9)
        second = await sample(ctx, f"two after {first.text}", max_tokens=9)
        return f"{first.text} | {second.text}"

    @server.tool()
    async def same(ctx: Context) -> str:
        """The same question twice, which may be answered otherwise."""
        return " | ".join([(await sample(ctx, "again", max_tokens=9)).text for _ in range(2)])

    @server.tool()
    async def together(ctx: Context) -> str:
        """Two questions at once."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(sample(ctx, each, max_tokens=9)) for each in ("a", "b")]
        return " | ".join(each.result().text for each in asked)

    @server.tool()
    async def gathered(ctx: Context) -> str:
        """Two questions at once, where whatever is raised is taken for a result."""
        asked = (sample(ctx, each, max_tokens=9) for each in ("a", "b"))
        found = await asyncio.gather(*asked, return_exceptions=True)
        return " | ".join(getattr(each, "text", "?") for each in found)

    @server.tool()
    async def calculate(ctx: Context, rounds: int = 5) -> str:
        """A question with a tool."""

        def add(a: int, b: int) -> int:
            """Add two numbers."""
            runs["add"] += 1
            if a < 0:
                raise ValueError("too small")
            return a + b

        answer = await sample(
            ctx, "What is it?", max_tokens=9, tools=[add], max_tool_rounds=rounds, engine=engine
        )
        tool_rounds = answer.metadata.tool_rounds
        return f"{answer.text} after {tool_rounds} rounds and {runs['add']} calls"

    @server.tool()
    async def forecast(ctx: Context) -> str:
        """A question with a tool that is not run here."""
        answer = await sample(ctx, "Umbrella?", max_tokens=9, tools=[WEATHER])
        return f"{answer.tool_uses[0].name} {answer.tool_uses[0].input} {answer.stop_reason}"

    @server.tool()
    async def remember(ctx: Context) -> str:
        """A question with a tool's call in its history, and no tools."""
        history = [
            user("Add."),
            assistant(ToolUse("1", "add", {})),
            Message("user", (ToolResult("1", (Text("3"),)),)),
        ]
        return (await sample(ctx, history, max_tokens=9, engine=engine)).metadata.provider

    @server.tool()
    async def pay(ctx: Context) -> str:
        """An effect between two questions."""
        runs["pay"] += 1

        async def charge() -> dict[str, int]:
            runs["charge"] += 1
            return {"receipt": runs["charge"]}

        await sample(ctx, "Sure?", max_tokens=9)
        receipt = await once(ctx, "charge", charge)
        thanks = await sample(ctx, f"Thank for {receipt['receipt']}", max_tokens=9)
        return f"{thanks.text} {receipt['receipt']} of {runs['charge']}"

    @server.tool()
    async def fickle(ctx: Context) -> str:
        """A question that is another one each time."""
        runs["fickle"] += 1
        return (await sample(ctx, f"Guess {secrets.token_hex(8)}", max_tokens=9)).text

    @server.tool()
    async def many(ctx: Context, count: int) -> str:
        """So many questions, one after the other."""
        for number in range(count):
            await sample(ctx, f"question {number}", max_tokens=9)
        return "done"

    @server.tool()
    async def mixed(ctx: Context) -> str:
        """A question for the server's own model, because of its tool, and one for the host's."""

        def noop() -> str:
            return ""

        own = await sample(ctx, "own", max_tokens=9, tools=[noop], engine=engine)
        theirs = await sample(ctx, "theirs", max_tokens=9, engine=engine)
        return f"{own.metadata.provider} {theirs.metadata.provider}"

    @server.tool()
    async def careful(ctx: Context) -> str:
        """Tells which error it got."""
        try:
            return (await sample(ctx, "May I?", max_tokens=9)).text
        except PenstockError as error:
            return f"{type(error).__name__}: {error}"

    @server.prompt()
    async def opening(ctx: Context) -> str:
        """A prompt that is written by a model."""
        return (await sample(ctx, "an opening", max_tokens=9, engine=engine)).text

    @server.resource("poem://{topic}")
    async def poem(topic: str, ctx: Context) -> str:
        """A resource that is written by a model."""
        return (await sample(ctx, f"a poem on {topic}", max_tokens=9, engine=engine)).text

    _ = summarise, everything, twice, same, together, gathered, calculate, forecast
    _ = remember, pay, fickle, many, mixed, careful, opening, poem
    return server, runs


if __name__ == "__main__":
    own_engine = engine_with(FakeProvider([OWN_ANSWER] * 20))
    asking, _ = build(engine=own_engine)
    if sys.argv[1] == "stdio":
        asking.run("stdio")
    else:
        asking.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
