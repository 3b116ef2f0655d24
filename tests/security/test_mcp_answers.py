"""What an MCP server answers is bounded: lists of tools, and bodies that unpack to more."""

from __future__ import annotations

import gzip

import pytest

from penstock.contract.errors import ToolFailed
from penstock.contract.options import MCPTool
from penstock.mcp.tools import ToolAdapter
from tests.support.mcp.processes import misbehaving_server
from tests.support.raw import RawServer, answering, whole

AMPLE_S = 30.0


@pytest.mark.parametrize("what", ["ten-thousand-tools", "large-tools"])
async def test_a_list_of_tools_has_a_limit(what: str) -> None:
    adapter = ToolAdapter(misbehaving_server(what), name="bad", timeout=AMPLE_S)
    try:
        with pytest.raises(ToolFailed, match="'bad' lists more than 4096 tools, or more than"):
            await adapter.tools()
    finally:
        await adapter.aclose()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_compressed_answer_is_refused_unread(kind: str) -> None:
    """It is bounded as it arrives, and could unpack to a thousand times as much."""
    bomb = whole(
        gzip.compress(b'{"a": "' + b"x" * 10_000_000),
        headers=f"content-type: {kind}\r\ncontent-encoding: gzip\r\n",
    )
    async with RawServer(answering(bomb)) as server:
        adapter = ToolAdapter(MCPTool(url=f"{server.url}/mcp", name="bad"), timeout=AMPLE_S)
        try:
            with pytest.raises(ToolFailed, match=r"its answer is compressed \(gzip\)"):
                await adapter.tools()
        finally:
            await adapter.aclose()
        assert all(each.headers["accept-encoding"] == "identity" for each in server.requests)
