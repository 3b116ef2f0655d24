"""A legacy client of `/mcp` that lost its connection gets the rest of the answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from penstock.config.settings import Config
from penstock.contract.options import MCPTool
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.mcp.http import over_http
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.support.keyed import bearer
from tests.support.tcp_proxy import TcpProxy
from tests.unit.server.gateway_support import Gateway, running_gateway, until
from tests.unit.server.test_server_workers import fleet

ACCEPT = {"accept": "application/json, text/event-stream"}
WORDS = 8
CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {
        "name": "generate",
        "arguments": {"prompt": "x", "model": "default"},
        "_meta": {"progressToken": "t"},
    },
}


def engine_with(
    fake: FakeProvider, resume_s: float = 30.0, keys: Mapping[str, str] | None = None
) -> Engine:
    config = Config.model_validate(
        {
            "server": {"mcp_resume_s": resume_s},
            "providers": {"fake": {"kind": "fake"}},
            "models": {"default": {"targets": ["fake/echo"]}},
            "keys": {name: {"hash": hash_of(text)} for name, text in (keys or {}).items()},
        }
    )
    engine = Engine(config, model_files=False, keep_books=True)
    engine.use(fake)
    return engine


def slow(words: int = WORDS, delay_s: float = 0.02) -> FakeProvider:
    return FakeProvider([FakeReply(text="word " * words, delay_s=delay_s)] * 20)


async def session_of(
    client: httpx.AsyncClient, version: str = LATEST_HANDSHAKE_VERSION, key: str | None = None
) -> dict[str, str]:
    """The headers of a new session."""
    headers = ACCEPT | ({} if key is None else bearer(key))
    params: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await client.post("/mcp", json=body, headers=headers)
    session = answer.headers["mcp-session-id"]
    return {**headers, "mcp-session-id": session, "mcp-protocol-version": version}


async def events(answer: httpx.Response) -> AsyncGenerator[tuple[str, Any]]:
    """The id and the data of each event."""
    id = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            id = line.removeprefix("id: ")
        elif line.startswith("data:"):
            text = line.removeprefix("data:").strip()
            yield id, json.loads(text) if text else None
            id = ""


async def called(
    client: httpx.AsyncClient, headers: dict[str, str], most: int | None = None
) -> list[tuple[str, Any]]:
    """The events of a call; the connection is closed after so many."""
    found: list[tuple[str, Any]] = []
    async with client.stream("POST", "/mcp", json=CALL, headers=headers) as answer:
        assert answer.status_code == 200
        async for event in events(answer):
            found.append(event)
            if len(found) == most:
                break
    return found


async def resumed(
    client: httpx.AsyncClient, headers: dict[str, str], id: str
) -> list[tuple[str, Any]]:
    async with client.stream("GET", "/mcp", headers={**headers, "last-event-id": id}) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [event async for event in events(answer)]


def text_of(found: list[tuple[str, Any]]) -> str:
    """The result's text."""
    assert found[-1][1]["id"] == CALL["id"]
    return found[-1][1]["result"]["structuredContent"]["text"]


@pytest.mark.parametrize("most", range(1, WORDS + 3))
async def test_a_client_that_is_cut_off_at_any_event_gets_the_rest(most: int) -> None:
    async with running_gateway(engine_with(slow())) as gateway:
        headers = await session_of(gateway.client)
        first = await called(gateway.client, headers, most)
        rest = await resumed(gateway.client, headers, first[-1][0])
        again = await resumed(gateway.client, headers, first[0][0])
    stream = first[0][0].partition(".")[0]
    # The priming event, the one that names the stream, a chunk for each word, and the result.
    numbers = [f"{stream}.{number}" for number in range(WORDS + 3)]
    assert [id for id, _ in first + rest] == numbers
    assert first[0] == (f"{stream}.0", None)
    assert text_of(rest) == "word " * WORDS
    assert [id for id, _ in again] == numbers[1:]


async def test_an_answer_that_was_read_to_its_end_has_no_rest() -> None:
    async with running_gateway(engine_with(slow(2))) as gateway:
        headers = await session_of(gateway.client)
        found = await called(gateway.client, headers)
        assert text_of(found) == "word word "
        assert await resumed(gateway.client, headers, found[-1][0]) == []


async def test_the_first_event_says_when_to_come_back_and_old_clients_get_none() -> None:
    async with running_gateway(engine_with(slow(2))) as gateway:
        headers = await session_of(gateway.client)
        answer = await gateway.client.post("/mcp", json=CALL, headers=headers)
        assert answer.text.startswith("id: ")
        assert "\nretry: 500\ndata: \n\n" in answer.text
        old = await session_of(gateway.client, "2025-06-18")
        answer = await gateway.client.post("/mcp", json=CALL, headers=old)
    assert "retry" not in answer.text
    assert ".1\r\n" in answer.text.partition("data")[0]


@asynccontextmanager
async def behind_a_proxy(gateway: Gateway) -> AsyncGenerator[tuple[TcpProxy, str]]:
    async with TcpProxy(gateway.port) as proxy:
        yield proxy, f"http://127.0.0.1:{proxy.port}/mcp"


async def test_the_official_client_does_it_by_itself() -> None:
    fake = slow(40)
    async with (
        running_gateway(engine_with(fake)) as gateway,
        behind_a_proxy(gateway) as (proxy, url),
        Client(over_http(MCPTool(url, "penstock")), mode="legacy") as client,
    ):
        heard: list[str] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message or "")

        arguments = {"prompt": "x", "model": "default"}
        call = asyncio.create_task(client.call_tool("generate", arguments, progress_callback=hear))
        await until(lambda: len(heard) > 5)
        await proxy.cut()
        await proxy.mend()
        result = await asyncio.wait_for(call, 20)
    assert result.structured_content is not None
    assert result.structured_content["text"] == "word " * 40
    assert len(fake.requests) == 1
    assert "".join(heard) == "word " * 40


async def test_only_its_own_session_and_key_get_it() -> None:
    texts = {"alice": new_text(), "mallory": new_text()}
    async with running_gateway(engine_with(slow(), keys=texts)) as gateway:
        client = gateway.client
        alice = await session_of(client, key=texts["alice"])
        other = await session_of(client, key=texts["alice"])
        mallory = await session_of(client, key=texts["mallory"])
        id = (await called(client, alice, 2))[-1][0]
        stolen = {**mallory, "mcp-session-id": alice["mcp-session-id"]}
        for headers in (other, mallory, stolen):
            answer = await client.get("/mcp", headers={**headers, "last-event-id": id})
            assert answer.status_code == 404
            assert answer.json()["error"]["data"]["reason"] == "event_not_found"
        keyless = {**alice, "last-event-id": id}
        del keyless["authorization"]
        assert (await client.get("/mcp", headers=keyless)).status_code == 401
        assert text_of(await resumed(client, alice, id)) == "word " * WORDS


@pytest.mark.parametrize(
    "id", ["x", "1", f"{'0' * 32}.1", f"{'0' * 32}.{'9' * 40}", "' OR 1=1 --", "é".encode().hex()]
)
async def test_an_id_that_is_unknown_is_refused(id: str) -> None:
    async with running_gateway(engine_with(slow())) as gateway:
        headers = await session_of(gateway.client)
        answer = await gateway.client.get("/mcp", headers={**headers, "last-event-id": id})
    assert answer.status_code == 404
    assert "Last-Event-ID is unknown here" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("resume_s", "headers"), [(0.0, {"last-event-id": "x"}), (30.0, {})])
async def test_there_is_nothing_else_to_listen_to(resume_s: float, headers: dict[str, str]) -> None:
    async with running_gateway(engine_with(slow(), resume_s)) as gateway:
        answer = await gateway.client.get("/mcp", headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_call_whose_client_does_not_come_back_is_cancelled() -> None:
    engine = engine_with(slow(10_000, 0.01), 0.4)
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        headers = await session_of(gateway.client)
        id = (await called(gateway.client, headers, 3))[-1][0]
        await until(lambda: bool(recorder.requests))
        assert recorder.requests[0].outcome == "cancelled"
        rest = await resumed(gateway.client, headers, id)
        assert rest
        assert all("result" not in data for _, data in rest)


async def test_a_call_without_its_client_is_cancelled_by_a_message() -> None:
    engine = engine_with(slow(10_000, 0.01))
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        headers = await session_of(gateway.client)
        await called(gateway.client, headers, 3)
        cancel = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": CALL["id"]},
        }
        await gateway.client.post("/mcp", json=cancel, headers=headers)
        await until(lambda: bool(recorder.requests))
    assert recorder.requests[0].outcome == "cancelled"


async def test_a_modern_client_that_goes_away_has_cancelled() -> None:
    fake = slow(10_000, 0.01)
    engine = engine_with(fake)
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        server = MCPTool(f"{gateway.url}/mcp", "penstock")
        async with Client(over_http(server), mode=LATEST_MODERN_VERSION) as client:
            arguments = {"prompt": "x", "model": "default"}
            call = asyncio.create_task(client.call_tool("generate", arguments))
            await until(lambda: bool(fake.requests))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await until(lambda: bool(recorder.requests))
    assert recorder.requests[0].outcome == "cancelled"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
async def test_any_worker_has_the_rest(tmp_path: Path) -> None:
    with fleet(tmp_path, "[server]\nmcp_resume_s = 30.0\n", workers=3) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            for _ in range(4):
                headers = {**await session_of(client), "connection": "close"}
                first = await called(client, headers, 2)
                rest = await resumed(client, headers, first[-1][0])
                numbers = [int(id.partition(".")[2]) for id, _ in first + rest]
                assert numbers == list(range(len(numbers)))
                assert rest[-1][1]["result"]["structuredContent"]["text"]
        assert gateway.stop() == 0
