"""What strangers send to `/mcp`, and what becomes of those who are being served meanwhile."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"jsonrpc": "2.0", "id": 1',
    "no object": b"[]",
    "a batch": b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
    "no text": b"\xff\xfe\x00",
    "deep": REQUEST + b'{"a":' * 50_000,
    "deep and whole": REQUEST + b"[" * 900 + b"]" * 900 + b"}",
    "a long number": b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
    "an id that is no id": b'{"jsonrpc":"2.0","id":{"a":[]},"method":"ping"}',
    "an id of half a character": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    "a method that is none": b'{"jsonrpc":"2.0","id":1,"method":7}',
    "a response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "half a character": REQUEST + b'{"name":"\\ud800"}}',
    "control characters": REQUEST + b'{"name":"\\u0000\\u001b[2J"}}',
    "params that are none": REQUEST + b"[1]}",
    "a cancellation of nothing": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}'
    ),
}
VERSIONS = (None, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, "1999-01-01", "~")


async def post(gateway: Gateway, body: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.client.post("/mcp", content=body, headers={**ACCEPT, **named})


async def is_alive(gateway: Gateway, key: str) -> bool:
    call: dict[str, Any] = {"name": "route", "arguments": {"prompt": "x"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    answer = await post(gateway, body.encode(), **bearer(key))
    return answer.status_code == 200 and "fake/echo" in answer.text


@pytest.mark.parametrize("what", BODIES)
async def test_nonsense_is_refused_in_words(what: str) -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        for version in VERSIONS:
            for session in ({}, {"mcp_session_id": "0" * 32}):
                said = {} if version is None else {"mcp_protocol_version": version}
                answer = await post(gateway, BODIES[what], **said, **session, **bearer(texts["ci"]))
                assert answer.status_code < 500, (version, answer.text)
                assert "Traceback" not in answer.text
                assert texts["ci"] not in answer.text
        assert await is_alive(gateway, texts["ci"])


async def test_fifty_megabytes_are_too_much() -> None:
    engine, texts = keyed_engine(ci={})
    call = {"name": "generate", "arguments": {"prompt": "x" * 50_000_000}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    async with running_gateway(engine) as gateway:
        answer = await post(gateway, body.encode(), **bearer(texts["ci"]))
        assert answer.status_code == 413
        assert await is_alive(gateway, texts["ci"])


async def test_a_session_of_another_key_cancels_nothing() -> None:
    engine, texts = keyed_engine(alice={}, mallory={})
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
    call = {
        "name": "generate",
        "arguments": {"prompt": "one two three four", "model": "default"},
        "stream": {"chunkDelayMs": 50},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
    session = {"mcp-session-id": "0" * 32}
    async with running_gateway(engine) as gateway:
        headers = {**ACCEPT, **session, **bearer(texts["alice"])}
        async with gateway.client.stream(
            "POST", "/mcp", content=body.encode(), headers=headers
        ) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            said = await post(gateway, cancel, mcp_session_id="0" * 32, **bearer(texts["mallory"]))
            assert said.status_code == 202
            rest = [line async for line in lines]
    assert any("one two three four" in line for line in rest)


async def test_a_call_that_runs_may_finish_while_the_gateway_stops() -> None:
    call = {
        "name": "generate",
        "arguments": {"prompt": "one two three four five"},
        "stream": {"chunkDelayMs": 50},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
    async with running_gateway(keyed_engine()[0]) as gateway:
        async with gateway.client.stream(
            "POST", "/mcp", content=body.encode(), headers=ACCEPT
        ) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            gateway.server.stop()
            rest = [line async for line in lines if line.startswith("data: ")]
        await gateway.task
    assert json.loads(rest[-1].removeprefix("data: "))["result"]["content"] == [
        {"type": "text", "text": "one two three four five"}
    ]
