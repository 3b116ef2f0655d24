"""Several processes behind `/mcp`: any of them answers any message."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from penstock.mcp.tasks import TaskClient, start_task
from penstock.mcp.tasks.client import TaskHandle
from tests.unit.server.test_server_workers import fleet

ALONE = {"connection": "close"}
SLOWLY = {"chunkDelayMs": 50}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


@pytest.mark.parametrize("era", ["legacy", LATEST_MODERN_VERSION])
async def test_every_worker_answers_every_client(era: str, tmp_path: Path) -> None:
    with fleet(tmp_path, workers=3) as gateway:
        for _ in range(4):
            # Each client brings connections of its own, which any worker may take.
            async with Client(f"{gateway.url}/mcp", mode=era, extensions=[TaskClient()]) as client:
                assert len((await client.list_tools()).tools) == 5
                route = await client.call_tool("route", {"prompt": "x"})
                assert not route.is_error
                started = await start_task(client, "generate", {"prompt": "one two"})
                assert isinstance(started, TaskHandle)
                result = await started.result()
                assert result.structured_content is not None
                assert result.structured_content["text"] == "one two"
        async with Client(f"{gateway.url}/mcp", mode=era) as client:
            usage = await client.call_tool("usage")
            assert usage.structured_content is not None
            assert usage.structured_content["requests"] == 4
        assert gateway.stop() == 0


async def test_a_legacy_client_cancels_a_call_that_another_worker_serves(tmp_path: Path) -> None:
    with fleet(tmp_path, workers=3) as gateway:
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=30) as client:
            params = {
                "protocolVersion": LATEST_HANDSHAKE_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "by hand", "version": "1"},
            }
            opened = await client.post("/mcp", json=request(1, "initialize", params))
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            arguments = {"prompt": "x", "model": "fake/words-1000000"}
            call = {"name": "generate", "arguments": arguments, "stream": SLOWLY}

            async with client.stream(
                "POST", "/mcp", json=request(2, "tools/call", call), headers=session
            ) as answer:
                pieces = answer.aiter_lines()
                await anext(pieces)
                # Each of these comes on a connection of its own, which any worker may take.
                cancel = {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": 2},
                }
                for stranger in range(5):
                    other = {"mcp-session-id": f"{stranger:032}"}
                    said = await client.post("/mcp", json=cancel, headers=other | ALONE)
                    assert said.status_code == 202
                assert "notifications/progress" in await data_of(pieces)
                await client.post("/mcp", json=cancel, headers=session | ALONE)
                rest = [line async for line in pieces if line.startswith("data: ")]
    assert not any('"result"' in line for line in rest)


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def data_of(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data: "):
            return line
    raise AssertionError("the stream has ended")
