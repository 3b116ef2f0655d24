"""Streams of `/mcp` by their ids: their owner alone finds them, in whichever worker they run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from mcp import Client, MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from penstock import ToolFailed
from penstock.contract.options import MCPTool
from penstock.mcp import cancel_stream, get_stream, stream_tool, watch_stream
from penstock.mcp.http import over_http
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway, until
from tests.unit.server.test_server_workers import fleet

ERAS = ("legacy", LATEST_MODERN_VERSION)
era = pytest.mark.parametrize("era", ERAS)


def client_of(gateway: Gateway, era: str, key: str) -> Client:
    return Client(over_http(MCPTool(f"{gateway.url}/mcp", "penstock", bearer(key))), mode=era)


@era
async def test_a_stream_belongs_to_its_key(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    engine, texts = keyed_engine(fake, alice={"requests_per_minute": 1}, mallory={})
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with (
        running_gateway(engine) as gateway,
        client_of(gateway, era, texts["alice"]) as alice,
        client_of(gateway, era, texts["alice"]) as again,
        client_of(gateway, era, texts["mallory"]) as mallory,
    ):
        stream = stream_tool(alice, "generate", {"prompt": "x", "model": "default"})
        await anext(stream)
        assert stream.id
        for request in (get_stream, cancel_stream):
            with pytest.raises(MCPError, match="is not yours"):
                await request(mallory, stream.id)
        with pytest.raises(MCPError, match="is not yours"):
            await anext(watch_stream(mallory, stream.id))
        # The key has used up its requests; looking, watching and cancelling are none.
        for _ in range(5):
            assert (await get_stream(again, stream.id)).status == "running"
        assert (await anext(watch_stream(again, stream.id))).text == "x "
        assert await cancel_stream(again, stream.id) is True
        with pytest.raises(ToolFailed, match="cancelled by request"):
            async for _ in stream:
                pass
        await until(lambda: bool(recorder.requests))
    assert recorder.requests[0].outcome == "cancelled"


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@era
async def test_a_stream_is_found_from_every_worker(era: str, tmp_path: Path) -> None:
    with fleet(tmp_path, workers=3) as gateway:
        url = f"{gateway.url}/mcp"
        arguments = {"prompt": "x", "model": "fake/words-1000000"}
        async with Client(url, mode=era) as client:
            stream = stream_tool(client, "generate", arguments, chunk_delay_ms=20)
            first = await anext(stream)
            assert stream.id
            # Each client brings connections of its own, which any worker may take.
            for _ in range(6):
                async with Client(url, mode=era) as other, asyncio.timeout(20):
                    assert (await get_stream(other, stream.id)).tool == "generate"
                    watcher = watch_stream(other, stream.id)
                    assert await anext(watcher) == first
                    assert (await anext(watcher)).seq == 1
                    await watcher.aclose()
            async with Client(url, mode=era) as other:
                assert await cancel_stream(other, stream.id) is True
            with pytest.raises(ToolFailed, match="cancelled by request"):
                async for _ in stream:
                    pass
            async with Client(url, mode=era) as other:
                with pytest.raises(MCPError, match="is unknown here"):
                    await get_stream(other, "nonesuch")
        assert gateway.stop() == 0
