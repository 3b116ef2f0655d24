"""An agent that reads documentation through an MCP server, which is this very file.

    python examples/mcp_docs.py                       on a scripted model, without a key
    python examples/mcp_docs.py openai/gpt-6-luna     on a model of yours

It needs the extra `mcp`. The server is started as a process of its own and spoken to by standard
input and output. One that listens at an address is `penstock.MCPTool(url=..., name=...)` instead.
"""

from __future__ import annotations

import asyncio
import sys

from mcp import StdioServerParameters
from mcp.server.mcpserver import MCPServer

import penstock
from penstock import Text, ToolEnded, ToolResult, ToolStarted, ToolUse
from penstock.mcp import ToolAdapter
from penstock.testing import FakeProvider, FakeReply, engine_with

PAGES = {
    "sluices": "A sluice is closed by turning its wheel to the left, forty times.",
    "turbines": "A turbine is greased once a week, when it stands still.",
}
docs = MCPServer("docs")


@docs.tool()
def search(word: str) -> list[str]:
    """The names of the pages that hold a word."""
    return [name for name, text in PAGES.items() if word.lower() in text.lower()]


@docs.tool()
def read(page: str) -> str:
    """The text of a page."""
    return PAGES[page]


def told(request: penstock.SamplingRequest) -> str:
    """What the tool that was called last has answered."""
    return " ".join(
        part.text for part in request.messages[-1].content if isinstance(part, ToolResult)
    )


def open_the_page(request: penstock.SamplingRequest) -> FakeReply:
    return FakeReply(tool_uses=(ToolUse("2", "read", {"page": told(request)}),))


def quote_it(request: penstock.SamplingRequest) -> str:
    return f"The manual says: {told(request)}"


SCRIPT = [
    FakeReply(tool_uses=(ToolUse("1", "search", {"word": "greased"}),)),
    open_the_page,
    quote_it,
]


async def main(model: str | None) -> None:
    server = StdioServerParameters(command=sys.executable, args=[__file__, "serve"])
    called: list[tuple[str, str]] = []
    async with (
        ToolAdapter(server, name="docs") as adapter,
        penstock.open() if model else engine_with(FakeProvider(SCRIPT)) as engine,
    ):
        offered = [tool.definition.name for tool in await adapter.tools()]
        print("the server offers:", ", ".join(offered))
        generator = engine.string_generator(
            "How often is a turbine greased? Look it up.", model=model, mcp_tools=[adapter]
        )
        async with generator.stream() as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    called.append((event.server, event.name))
                    print(f"   {event.server}.{event.name}({event.input})")
                elif isinstance(event, ToolEnded):
                    print("   ->", *(part.text for part in event.content if isinstance(part, Text)))
            text, metadata = await stream.result()
    print(text)

    assert offered == ["search", "read"]
    assert {server for server, _ in called} == {"docs"}
    assert metadata.tool_rounds >= 1
    assert text


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        docs.run("stdio")
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
