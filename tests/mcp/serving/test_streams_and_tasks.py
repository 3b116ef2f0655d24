"""`generate` as a stream and as a task, in both eras, over HTTP and standard input."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import mcp_types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClientExtension
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from penstock.contract.options import MCPTool
from penstock.mcp import stream_tool
from penstock.mcp.http import over_http
from penstock.mcp.tasks import TaskClient, resume_task, run_task, start_task
from penstock.mcp.tasks.client import TaskHandle
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway, until

ERAS = ("legacy", LATEST_MODERN_VERSION)
CONFIG = """
[providers.fake]
[models.default]
targets = ["fake/echo"]
"""
Connect = Callable[..., AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def at_gateway(
    gateway: Gateway, era: str, key: str | None = None, *extensions: ClientExtension
) -> AsyncGenerator[Client]:
    headers = {} if key is None else bearer(key)
    server = MCPTool(f"{gateway.url}/mcp", "penstock", headers)
    async with Client(over_http(server), mode=era, extensions=extensions) as client:
        yield client


def over_stdio(folder: Path) -> StdioServerParameters:
    config = folder / "penstock.toml"
    config.write_text(CONFIG)
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", "serve", "--config", str(config)],
        env={"PENSTOCK_HOME": os.environ["PENSTOCK_HOME"]},
    )


@pytest.fixture(params=[(era, way) for era in ERAS for way in ("http", "stdio")], ids="-".join)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Connect]:
    era, way = request.param
    if way == "stdio":
        yield lambda *extensions: Client(over_stdio(tmp_path), mode=era, extensions=extensions)
        return
    async with running_gateway(keyed_engine()[0]) as gateway:
        yield lambda *extensions: at_gateway(gateway, era, None, *extensions)


async def test_an_answer_comes_in_pieces(connect: Connect) -> None:
    async with connect() as client:
        stream = stream_tool(client, "generate", {"prompt": "one two three"})
        texts = [chunk.text async for chunk in stream]
    assert texts == ["one ", "two ", "three"]
    assert (stream.result.meta or {})["dev.penstock/stream"]["total_chunks"] == 3
    assert stream.result.structured_content is not None
    assert stream.result.structured_content["text"] == "one two three"


async def test_a_client_that_knows_nothing_of_pieces_gets_the_whole(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("generate", {"prompt": "one two three"})
    assert result.structured_content is not None
    assert result.structured_content["usage"]["output_tokens"] == 3


async def test_a_progress_token_is_enough_to_get_the_pieces(connect: Connect) -> None:
    received: list[tuple[float, str | None]] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, message))

    async with connect() as client:
        result = await client.call_tool(
            "generate", {"prompt": "one two three"}, progress_callback=receive
        )
        assert result.structured_content is not None
        assert result.structured_content["text"] == "one two three"
        assert "".join(message or "" for _, message in sorted(received)) == "one two three"
        assert len(received) > 2
        received.clear()
        await client.call_tool("usage", progress_callback=receive)
        await client.call_tool("generate", {"prompt": "one"})
    assert received == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_declines_pieces_gets_none(era: str) -> None:
    received: list[float] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    async with running_gateway(keyed_engine()[0]) as gateway, at_gateway(gateway, era) as client:
        result = await client.call_tool(
            "generate",
            {"prompt": "one two"},
            progress_callback=receive,
            meta={"dev.penstock/stream": False},
        )
    assert not result.is_error
    assert received == []


async def test_an_answer_may_be_a_task(connect: Connect) -> None:
    async with connect(TaskClient()) as client:
        started = await start_task(client, "generate", {"prompt": "one two three"}, ttl=60)
        assert isinstance(started, TaskHandle)
        result = await started.result()
        assert (await resume_task(client, started.id).state()).status == "completed"
    assert result.structured_content is not None
    assert result.structured_content["text"] == "one two three"


async def test_only_generate_is_a_task(connect: Connect) -> None:
    async with connect(TaskClient()) as client:
        started = await start_task(client, "route", {"prompt": "x"})
    assert isinstance(started, mcp_types.CallToolResult)


@pytest.mark.parametrize("era", ERAS)
async def test_pieces_come_while_the_model_speaks(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 1_000, delay_s=0.01)])
    engine, _ = keyed_engine(fake)
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway, at_gateway(gateway, era) as client:
        stream = stream_tool(client, "generate", {"prompt": "x"})
        first = await anext(stream)
        running = not recorder.requests
        del stream
        await until(lambda: bool(recorder.requests))
    assert first.text == "x "
    assert running
    assert recorder.requests[0].outcome == "cancelled"


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_belongs_to_its_key(era: str) -> None:
    engine, texts = keyed_engine(alice={}, mallory={})
    arguments = {"prompt": "a secret", "model": "default"}
    async with (
        running_gateway(engine) as gateway,
        at_gateway(gateway, era, texts["alice"], TaskClient()) as alice,
        at_gateway(gateway, era, texts["mallory"], TaskClient()) as mallory,
    ):
        started = await start_task(alice, "generate", arguments)
        assert isinstance(started, TaskHandle)
        with pytest.raises(MCPError):
            await resume_task(mallory, started.id).state()
        result = await started.result()
    assert result.structured_content is not None
    assert result.structured_content["text"] == "a secret"


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_is_paid_by_its_key_and_cancelled_by_it(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    engine, texts = keyed_engine(fake, alice={})
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with (
        running_gateway(engine) as gateway,
        at_gateway(gateway, era, texts["alice"], TaskClient()) as client,
    ):
        started = await start_task(client, "generate", {"prompt": "x", "model": "default"})
        assert isinstance(started, TaskHandle)
        await until(lambda: bool(fake.requests))
        await started.cancel()
        await until(lambda: bool(recorder.requests))
        assert (await started.state()).status == "cancelled"
    assert (recorder.requests[0].key, recorder.requests[0].outcome) == ("alice", "cancelled")


@pytest.mark.parametrize("era", ERAS)
async def test_a_gateway_that_stops_ends_its_tasks_and_says_so(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    async with (
        running_gateway(keyed_engine(fake)[0]) as gateway,
        at_gateway(gateway, era, None, TaskClient()) as client,
    ):
        started = await start_task(client, "generate", {"prompt": "x"})
        assert isinstance(started, TaskHandle)
        await until(lambda: bool(fake.requests))
    async with (
        running_gateway(keyed_engine()[0]) as gateway,
        at_gateway(gateway, era, None, TaskClient()) as client,
    ):
        state = await resume_task(client, started.id).state()
        again = await asyncio.wait_for(run_task(client, "generate", {"prompt": "hello"}), 20)
    assert state.status == "failed"
    assert state.status_message
    assert again.structured_content is not None
    assert again.structured_content["text"] == "hello"
