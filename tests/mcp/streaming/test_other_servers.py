"""The client's iterator with servers that know nothing of chunks, or cannot send them."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest
from mcp import Client, MCPError

from penstock import ToolFailed
from penstock.mcp import stream_tool
from tests.mcp.streaming.connections import ERAS, connected
from tests.support.mcp.processes import HttpServer, http_server, shared_server, stdio_server


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_server_that_knows_no_chunks_gives_one(era: str, way: str) -> None:
    target = stdio_server() if way == "stdio" else shared_server().url
    async with Client(target, mode=era) as client:
        # Its progress is progress, and is not taken for chunks.
        stream = stream_tool(client, "steps", {"count": 3})
        chunks = [chunk async for chunk in stream]
        assert [(chunk.seq, chunk.text, chunk.total) for chunk in chunks] == [(0, "finished", 1)]
        assert chunks[0].data == "finished"
        assert stream.result.structured_content == {"result": "finished"}
        failing = stream_tool(client, "fail")
        with pytest.raises(ToolFailed, match="no luck"):
            await anext(failing)


def answering_in_json(port: int) -> list[str]:
    code = (
        "from tests.mcp.streaming.server import make_server\n"
        f"make_server().run('streamable-http', port={port}, json_response=True)"
    )
    return [sys.executable, "-c", code]


@pytest.fixture(scope="module")
def json_server() -> Generator[HttpServer]:
    with http_server(answering_in_json) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_cannot_send_chunks_gives_the_whole(
    era: str, json_server: HttpServer
) -> None:
    async with Client(json_server.url, mode=era) as client:
        stream = stream_tool(client, "tell", {"count": 3})
        assert [chunk.text async for chunk in stream] == ["w0 w1 w2 "]


@pytest.mark.parametrize("era", ERAS)
async def test_what_the_server_refuses_is_raised(era: str) -> None:
    async with connected("memory", era) as client:
        refused = stream_tool(client, "tell", {"count": 1}, chunk_delay_ms=-5)
        with pytest.raises(MCPError, match="chunkDelayMs is -5"):
            await anext(refused)
        unknown = stream_tool(client, "nowhere")
        with pytest.raises(ToolFailed, match="Unknown tool: nowhere"):
            await anext(unknown)
        late = stream_tool(client, "gated", {"name": "never"}, timeout=0.2)
        assert (await anext(late)).text == "before "
        with pytest.raises(MCPError, match=r"(?i)timed out"):
            await anext(late)


async def test_a_result_that_is_not_there_yet_is_not_given() -> None:
    async with connected("memory", "auto") as client:
        stream = stream_tool(client, "tell", {"count": 1})
        with pytest.raises(RuntimeError, match="'tell' has no result yet"):
            _ = stream.result
        with pytest.raises(ValueError, match="buffer is 0"):
            stream_tool(client, "tell", buffer=0)
