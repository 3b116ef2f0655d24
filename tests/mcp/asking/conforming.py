"""The tools that the official conformance suite calls for sampling: `conforming.py PORT`."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from penstock.mcp import Sampling, sample

server: MCPServer[Any] = MCPServer("conforming", extensions=[Sampling()])


@server.tool()
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Have the client's model answer."""
    return f"LLM response: {(await sample(ctx, prompt, max_tokens=100)).text}"


@server.tool()
async def test_input_required_result_sampling(ctx: Context) -> str:
    """The same in the modern era."""
    return (await sample(ctx, "What is the capital of France?", max_tokens=100)).text


@server.tool()
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for what the client has declared, and for nothing else."""
    return (await sample(ctx, "Generate a greeting", max_tokens=50)).text


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
