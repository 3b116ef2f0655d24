"""Large bodies: what they may hold, and that they are read beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from penstock.config.settings import LimitsConfig
from penstock.contract.exchange import SamplingRequest
from penstock.server.errors import HttpProblem
from penstock.server.http.large_bodies import LARGE, check_values, read_large
from penstock.testing import FakeProvider, engine_with
from tests.unit.server.gateway_support import CHAT, Gateway, running_gateway

MOST = 1_000
PATHS = (CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/sampling/createMessage")


@pytest.mark.parametrize(
    "document",
    [
        {"a": [0] * (MOST - 3)},
        {"a": ["x,[{" * 20] * (MOST - 3)},
        {"a": ['"\\,[{' * 20] * (MOST - 3)},
        {f"k{i}": "v" for i in range(MOST - 1)},
        {"a": "," * 100_000},
        {"a": '\\"' * 50_000},
    ],
)
async def test_values_are_told_from_what_looks_like_them(document: Any) -> None:
    await check_values(msgspec.json.encode(document), MOST)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"[]," * MOST + b"[]]}",
        b'{"a":[' + b'"",' * 5 * MOST + b'""]}',
        msgspec.json.encode({f"key {i}": i for i in range(MOST + 2)}),
        msgspec.json.encode([{"a": ["\\", '"', ","]}] * MOST),
    ],
)
async def test_too_many_values_are_refused_before_they_are_decoded(body: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        await check_values(body, MOST)
    assert refused.value.failure.status == 413
    assert "limits.max_json_values" in refused.value.failure.message


async def test_a_large_body_is_read_in_a_thread_that_asks_the_loop() -> None:
    home = threading.get_ident()
    seen: list[int] = []

    def decode(data: bytes, ask: Any) -> tuple[int, int]:
        seen.append(threading.get_ident())
        return len(data), ask("x")

    def asked(_: str) -> int:
        return threading.get_ident()

    assert await read_large(decode, b"x" * 10, asked) == (10, home)
    assert await read_large(decode, b"x" * LARGE, asked) == (LARGE, home)
    assert seen[0] == home
    assert seen[1] != home


@pytest.fixture
async def gateway() -> AsyncGenerator[Gateway]:
    """One whose bodies hold little."""
    engine = engine_with(FakeProvider())
    limits = LimitsConfig(max_json_values=MOST)
    engine.config = engine.config.model_copy(update={"limits": limits})
    async with running_gateway(engine) as running:
        yield running


@pytest.mark.parametrize("path", PATHS)
async def test_every_endpoint_refuses_too_many_values(gateway: Gateway, path: str) -> None:
    answer = await gateway.client.post(path, content=b'{"a":[' + b"[]," * MOST + b"[]]}")
    assert answer.status_code == 413, answer.text
    assert "limits.max_json_values" in answer.text


@pytest.mark.parametrize("path", PATHS)
async def test_every_endpoint_reads_a_large_body(path: str) -> None:
    text = "word " * LARGE
    said = {"role": "user", "content": text}
    bodies: dict[str, Any] = {
        "/v1/responses": {"input": text},
        "/v1/embeddings": {"input": text, "model": "fake/echo"},
        "/v1/messages": {"messages": [said], "max_tokens": 5},
        "/v1/sampling/createMessage": {
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
            "maxTokens": 5,
        },
    }
    fake = FakeProvider(["Yes."])
    async with running_gateway(engine_with(fake)) as gateway:
        answer = await gateway.client.post(path, json=bodies.get(path, {"messages": [said]}))
    assert answer.status_code == 200, answer.text
    for request in fake.requests:
        assert isinstance(request, SamplingRequest)
        assert request.messages[0].text == text


async def test_the_loop_goes_on_while_a_large_body_is_read() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def decode(data: bytes) -> int:
        begun.set()
        assert may_end.wait(30)
        return len(data)

    reading = asyncio.create_task(read_large(decode, b"x" * LARGE))
    await asyncio.to_thread(begun.wait, 30)
    # The loop runs here, while the body is being read.
    may_end.set()
    assert await reading == LARGE
