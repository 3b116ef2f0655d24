"""Requests without a client of the SDK: over HTTP and stdio, for what a client would not do."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from tests.mcp.streaming.connections import ROOT, SECONDS

JSON = dict[str, Any]
_ids = itertools.count(1)
INITIALIZE: JSON = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def tool_call(era: str, name: str, arguments: JSON, *, token: Any, **params: Any) -> JSON:
    """The message of a call that asks for chunks."""
    meta: JSON = {"progressToken": token, "dev.penstock/stream": True}
    if era != "legacy":
        meta |= {PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION, CLIENT_CAPABILITIES_META_KEY: {}}
    params |= {"name": name, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": next(_ids), "method": "tools/call", "params": params}


async def headers_for(era: str, http: httpx.AsyncClient, url: str, name: str) -> dict[str, str]:
    """What goes with a call: in the legacy era that of a session which is opened here."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if era != "legacy":
        return headers | {
            "mcp-protocol-version": LATEST_MODERN_VERSION,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    answer = await http.post(url, json=hello, headers=headers)
    headers |= {
        "mcp-session-id": answer.headers["mcp-session-id"],
        "mcp-protocol-version": LATEST_HANDSHAKE_VERSION,
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await http.post(url, json=ready, headers=headers)
    return headers


@asynccontextmanager
async def posted(url: str, headers: Mapping[str, str], body: JSON) -> AsyncGenerator[Messages]:
    """A call whose answer is read message by message, and whose connection is then closed."""
    async with (
        httpx.AsyncClient(timeout=SECONDS) as http,
        http.stream("POST", url, json=body, headers=dict(headers)) as answer,
    ):
        yield Messages(answer)


class Messages:
    """The messages of an event stream."""

    def __init__(self, answer: httpx.Response) -> None:
        """Nothing is read yet."""
        self._lines = answer.aiter_lines()

    async def next(self) -> JSON:
        """The next one."""
        async for line in self._lines:
            if line.startswith("data: {"):
                return json.loads(line.removeprefix("data: "))
        raise EOFError


class Process:
    """The server on standard input and output, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """It runs."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def send(self, message: JSON) -> None:
        """One line."""
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()

    async def next(self) -> JSON:
        """The next line."""
        async with asyncio.timeout(SECONDS):
            return json.loads(await self._stdout.readline())

    async def answer_to(self, message: JSON) -> tuple[JSON, list[JSON]]:
        """Send a request; its answer, and all that came before it."""
        await self.send(message)
        before: list[JSON] = []
        while (found := await self.next()).get("id") != message["id"]:
            before.append(found)
        return found, before


@asynccontextmanager
async def process(*arguments: str) -> AsyncGenerator[Process]:
    """A server that Python runs so, or the usual one; it has shaken hands in the legacy era."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, *(arguments or ("-m", "tests.mcp.streaming.server", "stdio"))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        limit=10_000_000,
    )
    try:
        server = Process(running)
        hello = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": INITIALIZE}
        await server.answer_to(hello)
        await server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield server
    finally:
        running.kill()
        await running.wait()
