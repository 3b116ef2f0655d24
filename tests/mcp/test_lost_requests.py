"""A request that is lost on its way to an MCP server, and the other calls on the same client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from penstock import MCPTool
from penstock.mcp import ToolAdapter

TOOL = {"name": "echo", "description": "Say it again.", "inputSchema": {"type": "object"}}
SAID = {"content": [{"type": "text", "text": "said"}], "resultType": "complete"}


class _DropsListeners:
    """Hangs up on whoever wants to hear of changes, and answers a call only after that."""

    def __init__(self) -> None:
        self._hung_up = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while asked := await _read(reader):
                if asked["method"] == "subscriptions/listen":
                    self._hung_up.set()
                    break
                if asked["method"] == "tools/call":
                    await self._hung_up.wait()
                _answer(writer, asked)
                await writer.drain()
        finally:
            writer.close()

    @asynccontextmanager
    async def started(self) -> AsyncGenerator[MCPTool]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield MCPTool(f"http://127.0.0.1:{port}/mcp", "drops")
        finally:
            server.close()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except asyncio.IncompleteReadError:
        return None
    length = next(line for line in head.splitlines() if line.startswith("content-length:"))
    body = await reader.readexactly(int(length.split(":")[1]))
    return cast(dict[str, Any], json.loads(body))


def _answer(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    if "id" not in asked:
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return
    results: dict[str, dict[str, Any]] = {
        "server/discover": {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "drops", "version": "1"},
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
        },
        "tools/list": {
            "tools": [TOOL],
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
        },
        "tools/call": SAID,
    }
    body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]})
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(f"{head}\r\n\r\n{body}".encode())


async def test_a_lost_request_takes_no_other_call_with_it() -> None:
    async with _DropsListeners().started() as tool, ToolAdapter(tool) as adapter:
        assert (await adapter.call("echo", {})).text == "said"
