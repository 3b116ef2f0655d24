"""What type checkers make of streaming tools; never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, assert_type

from mcp import Client
from mcp_types import CallToolResult

from penstock.mcp import Chunks, ToolChunk, ToolStream, stream_tool, streamed


@streamed
async def tell(topic: str, *, words: int = 3) -> AsyncIterator[str]:
    yield topic * words


@streamed(collect=list, max_bytes=1000)
async def lines() -> AsyncIterator[str]:
    yield ""


async def a_tool_keeps_its_parameters() -> None:
    await tell("tides", words=2)
    await tell(2)  # pyright: ignore[reportArgumentType]
    assert_type(lines, Callable[[], Coroutine[Any, Any, Any]])
    assert_type(Chunks([1, 2]), Chunks[int])


async def a_stream_is_an_iterator_of_chunks(client: Client) -> None:
    stream = stream_tool(client, "tell", {"topic": "tides"}, buffer=9, timeout=2.5)
    assert_type(stream, ToolStream)
    async for chunk in stream:
        assert_type(chunk, ToolChunk)
        assert_type(chunk.total, int | None)
    assert_type(stream.result, CallToolResult)
