"""Legacy clients of `/mcp` that declare the streaming extension get chunks from every tool."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from tests.support.keyed import keyed_engine
from tests.unit.server.gateway_support import running_gateway

ACCEPT = {"accept": "application/json, text/event-stream"}
EXTENSION: dict[str, Any] = {"dev.penstock/streaming": {}}
TOOLS = {
    "generate": {"prompt": "one two"},
    "embed": {"texts": ["x"]},
    "count_tokens": {"prompt": "x"},
    "route": {"prompt": "x"},
    "usage": {},
}


async def opened(client: httpx.AsyncClient, capabilities: dict[str, Any]) -> dict[str, str]:
    """The headers of a session that these capabilities open."""
    params: dict[str, Any] = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": capabilities,
        "clientInfo": {"name": "by hand", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await client.post("/mcp", json=body, headers=ACCEPT)
    return {
        **ACCEPT,
        "mcp-session-id": answer.headers["mcp-session-id"],
        "mcp-protocol-version": LATEST_HANDSHAKE_VERSION,
    }


async def called(
    client: httpx.AsyncClient, session: dict[str, str], tool: str, meta: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The chunks of a call, and its result."""
    params = {"name": tool, "arguments": TOOLS[tool], "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    answer = await client.post("/mcp", json=body, headers=session)
    messages = [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.splitlines()
        if line.startswith("data: {")
    ]
    metas = [each["params"].get("_meta", {}) for each in messages[:-1]]
    chunks = [each["dev.penstock/chunk"] for each in metas if "dev.penstock/chunk" in each]
    return chunks, messages[-1]["result"]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("place", ["experimental", "extensions"])
async def test_a_declaration_and_a_token_get_chunks(tool: str, place: str) -> None:
    async with running_gateway(keyed_engine()[0]) as gateway:
        session = await opened(gateway.client, {place: EXTENSION})
        chunks, result = await called(gateway.client, session, tool, {"progressToken": 7})
        silent, _ = await called(gateway.client, session, tool, {})
        refused = {"progressToken": 7, "dev.penstock/stream": False}
        declined, _ = await called(gateway.client, session, tool, refused)
    assert len(chunks) == result["_meta"]["dev.penstock/stream"]["total_chunks"] > 0
    assert silent == declined == []


@pytest.mark.parametrize(
    "capabilities",
    [{}, {"experimental": {"other": {}}}, {"experimental": []}, {"extensions": None}],
)
async def test_without_a_declaration_a_token_is_for_progress(capabilities: dict[str, Any]) -> None:
    async with running_gateway(keyed_engine()[0]) as gateway:
        session = await opened(gateway.client, capabilities)
        chunks, _ = await called(gateway.client, session, "route", {"progressToken": 7})
    assert chunks == []
