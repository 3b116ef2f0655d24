"""A page in a real browser calls the gateway from another origin and reads its headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from playwright.async_api import Page, async_playwright

import penstock
from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.server.auth.cors import Cors
from tests.support import services
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway

SOURCES = Path(penstock.__file__).parent / "server"
PAGE = b"<title>A page</title>"
_CALL = """async ([url, body, headers]) => {
    const answer = await fetch(url, {
        method: "POST",
        headers: {"content-type": "application/json", ...headers},
        body: JSON.stringify(body),
    });
    return {
        status: answer.status,
        headers: Object.fromEntries(answer.headers),
        text: await answer.text(),
    };
}"""
_MCP = {"accept": "application/json, text/event-stream"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {"experimental": {"dev.penstock/streaming": {}}},
        "clientInfo": {"name": "page", "version": "1"},
    },
}
ROUTE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {
        "name": "route",
        "arguments": {"prompt": "x"},
        "_meta": {"progressToken": "mine"},
    },
}


@asynccontextmanager
async def page_at(chromium: str) -> AsyncGenerator[tuple[Page, str]]:
    """A page of an origin of its own, and that origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(PAGE) + PAGE)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, services.HOST, 0) as server:
        origin = f"http://{services.HOST}:{server.sockets[0].getsockname()[1]}"
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=list(services.CHROMIUM_FLAGS)
            )
            page = await browser.new_page()
            await page.goto(origin)
            yield page, origin
            await browser.close()


@asynccontextmanager
async def gateway_for(origin: str) -> AsyncGenerator[Gateway]:
    config = Config.model_validate(
        {
            "server": {"cors_origins": [origin]},
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/echo"]}},
        }
    )
    async with running_gateway(Engine(config)) as gateway:
        yield gateway


async def test_a_page_reads_the_headers_of_every_answer(chromium: str) -> None:
    async with page_at(chromium) as (page, origin), gateway_for(origin) as gateway:
        url = gateway.url
        opened = await page.evaluate(_CALL, [f"{url}/mcp", INITIALIZE, _MCP])
        session = {
            **_MCP,
            "mcp-session-id": opened["headers"]["mcp-session-id"],
            "mcp-protocol-version": LATEST_HANDSHAKE_VERSION,
        }
        route = await page.evaluate(_CALL, [f"{url}/mcp", ROUTE, session])
        chat = await page.evaluate(_CALL, [f"{url}{CHAT}", chat_body("Hi"), {}])
        stream = await page.evaluate(_CALL, [f"{url}{CHAT}", chat_body("Hi", stream=True), {}])
        wrong = await page.evaluate(_CALL, [f"{url}{CHAT}", {"messages": 1}, {}])
    assert opened["status"] == 200
    assert route["status"] == 200
    assert "notifications/progress" in route["text"]
    assert '"ranked"' in route["text"]
    for answer in (chat, stream):
        assert answer["headers"]["x-penstock-provider"] == "fake"
        assert answer["headers"]["x-penstock-model"] == "echo"
        assert answer["headers"]["x-penstock-attempts"] == "1"
        assert answer["headers"]["x-request-id"]
    assert chat["headers"]["x-penstock-cost-usd"] == "0"
    assert stream["text"].endswith("data: [DONE]\n\n")
    assert wrong["status"] == 400
    assert wrong["headers"]["x-request-id"]


async def test_a_page_of_another_origin_reads_nothing(chromium: str) -> None:
    async with (
        page_at(chromium) as (page, _),
        gateway_for("https://other.example") as gateway,
    ):
        for path in (CHAT, "/mcp"):
            with pytest.raises(Exception, match="Failed to fetch"):
                await page.evaluate(_CALL, [f"{gateway.url}{path}", chat_body("Hi"), {}])


def test_every_header_of_an_answer_may_be_read_by_pages() -> None:
    origin = {b"origin": b"https://a.example"}
    headers = dict(Cors(["*"]).headers(origin))
    shown = set(headers[b"access-control-expose-headers"].decode().split(", "))
    sent = {
        name
        for file in SOURCES.rglob("*.py")
        for name in re.findall(r'b"(x-(?:penstock|ratelimit)-[a-z-]+)"', file.read_text())
    }
    assert "x-penstock-provider" in sent
    # The one that a request has.
    assert sent - shown == {"x-penstock-adapt"}
    assert {"mcp-session-id", "mcp-protocol-version", "retry-after", "x-request-id"} <= shown
