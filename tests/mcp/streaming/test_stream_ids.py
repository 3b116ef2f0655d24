"""A stream is named before its first chunk; by its id it is looked up, watched and cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from penstock import ToolFailed
from penstock.mcp import (
    StreamingTools,
    cancel_stream,
    get_stream,
    stream_tool,
    streamed,
    watch_stream,
)
from penstock.mcp.streaming.streams import KEPT_ENDED
from tests.mcp.streaming.connections import (
    ERAS,
    Heard,
    call,
    connected,
    ended,
    shared_server,
    until,
)
from tests.mcp.streaming.raw import headers_for, posted, process, tool_call


@pytest.mark.parametrize("stream", [None, True])
async def test_the_first_message_names_the_stream_and_its_token(
    client: Client, heard: Heard, stream: Any
) -> None:
    meta = {"progressToken": "mine", "dev.penstock/stream": True}
    result = await call(client, "tell", {"count": 2}, stream=stream, meta=meta)
    await heard.chunks(2)
    about = (result.meta or {})["dev.penstock/stream"]
    (opening,) = heard.opened
    assert (opening.progress_token, opening.progress, opening.message) == ("mine", 0, None)
    assert (opening.meta or {})["dev.penstock/stream"] == {
        "streamId": about["streamId"],
        "progressToken": "mine",
        "streaming": True,
    }


async def test_the_field_alone_names_the_token_that_the_server_made(
    client: Client, heard: Heard
) -> None:
    result = await call(client, "tell", {"count": 1}, stream=True)
    await heard.chunks(1)
    (opening,) = heard.opened
    about = (opening.meta or {})["dev.penstock/stream"]
    told = (result.meta or {})["dev.penstock/stream"]
    assert about["progressToken"] == told["progressToken"] == opening.progress_token
    assert about["streamId"] == told["streamId"]
    assert "requestId" in about


@pytest.mark.parametrize("era", ERAS)
async def test_on_the_wire_it_comes_first(era: str) -> None:
    url = shared_server().url
    async with httpx.AsyncClient() as http:
        headers = await headers_for(era, http, url, "listed")
    body = tool_call(era, "listed", {}, token="t")
    async with posted(url, headers, body) as messages:
        first = await messages.next()
        second = await messages.next()
    assert first["method"] == "notifications/progress"
    assert "dev.penstock/stream" in first["params"]["_meta"]
    assert second["params"]["_meta"]["dev.penstock/chunk"]["seq"] == 0


async def test_on_stdio_it_comes_first() -> None:
    async with process() as server:
        _, (first, *rest) = await server.answer_to(tool_call("legacy", "listed", {}, token="t"))
    assert "dev.penstock/stream" in first["params"]["_meta"]
    assert len(rest) == 3


async def test_the_id_is_there_before_the_first_chunk(client: Client) -> None:
    async with stream_tool(client, "gated", {"name": "never"}) as stream:
        assert stream.id is None
        id = await stream.open()
        assert id
        assert stream.id == id
        assert (await get_stream(client, id)).status == "running"
        assert (await anext(stream)).text == "before "
        assert (await get_stream(client, id)).sent == 1


async def test_a_stream_is_cancelled_by_its_id(client: Client) -> None:
    name = "by id"
    stream = stream_tool(client, "endless", {"name": name})
    await anext(stream)
    assert stream.id
    assert await cancel_stream(client, stream.id) is True
    with pytest.raises(ToolFailed, match=r"was cancelled by request"):
        async for _ in stream:
            pass
    await ended(client, name)
    state = await get_stream(client, stream.id)
    assert (state.status, state.tool) == ("cancelled", "endless")
    assert await cancel_stream(client, stream.id) is False


async def test_a_stream_is_watched_by_its_id(client: Client) -> None:
    stream = stream_tool(client, "gated", {"name": "watched"})
    first = await anext(stream)
    assert stream.id
    watcher = watch_stream(client, stream.id)
    assert (await anext(watcher)) == first
    await client.call_tool("open_gate", {"name": "watched"})
    assert [chunk.text async for chunk in watcher] == ["after"]
    assert [chunk.text async for chunk in stream] == ["after"]
    rest = [chunk.seq async for chunk in watch_stream(client, stream.id, after=0)]
    assert rest == [1]
    assert [chunk async for chunk in watch_stream(client, stream.id, after=7)] == []


async def test_a_watcher_gets_every_type(client: Client) -> None:
    stream = stream_tool(client, "typed")
    chunks = [chunk async for chunk in stream]
    assert stream.id
    assert [chunk async for chunk in watch_stream(client, stream.id)] == chunks
    pictures = stream_tool(client, "gallery")
    chunks = [chunk async for chunk in pictures]
    assert pictures.id
    assert [chunk async for chunk in watch_stream(client, pictures.id)] == chunks


async def test_a_failed_stream_is_watched_to_its_failure(client: Client) -> None:
    stream = stream_tool(client, "breaks", {"after": 1})
    with pytest.raises(ToolFailed, match="out of words"):
        async for _ in stream:
            pass
    assert stream.id
    watcher = watch_stream(client, stream.id)
    assert (await anext(watcher)).text == "w0 "
    with pytest.raises(ToolFailed, match="failed"):
        await anext(watcher)


async def test_watching_ends_without_the_stream(client: Client) -> None:
    async with stream_tool(client, "gated", {"name": "left"}) as stream:
        await anext(stream)
        assert stream.id
        async with watch_stream(client, stream.id) as watcher:
            await anext(watcher)
        assert (await get_stream(client, stream.id)).status == "running"


@pytest.mark.parametrize("id", ["", "nonesuch", "x" * 10_000])
async def test_an_unknown_id_is_refused(client: Client, id: str) -> None:
    for request in (get_stream, cancel_stream):
        with pytest.raises(MCPError, match=r"streamId .* is unknown here") as failed:
            await request(client, id)
        assert failed.value.code == -32602
        assert len(str(failed.value)) < 1000
    with pytest.raises(MCPError, match="is unknown here"):
        await anext(watch_stream(client, id))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "streamId is None: give the id of a stream, as text"),
        ({"streamId": 5}, "streamId is 5"),
        ({"streamId": ["x"]}, r"streamId is \['x'\]"),
        ({"streamId": "x", "after": -9}, "after is -9: give the seq"),
        ({"streamId": "x", "after": True}, "after is True"),
        ({"streamId": "x", "after": "2"}, "after is '2'"),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_wrong_params_are_named(era: str, params: dict[str, Any], said: str) -> None:
    async with connected("memory", era) as client:
        request = types.Request[dict[str, Any], str](
            method="dev.penstock/streams/watch", params=params
        )
        with pytest.raises(MCPError, match=said):
            await client.session.send_request(request, types.EmptyResult)


async def test_the_stream_of_another_session_is_unknown() -> None:
    async with (
        connected("http", "legacy") as mine,
        connected("http", "legacy") as other,
        stream_tool(mine, "gated", {"name": "private"}) as stream,
    ):
        await anext(stream)
        assert stream.id
        for request in (get_stream, cancel_stream):
            with pytest.raises(MCPError, match="is not yours"):
                await request(other, stream.id)
        with pytest.raises(MCPError, match="is not yours"):
            await anext(watch_stream(other, stream.id))
        assert (await get_stream(mine, stream.id)).status == "running"


async def test_a_client_that_goes_away_ends_its_stream(client: Client) -> None:
    stream = stream_tool(client, "endless", {"name": "gone"})
    await anext(stream)
    id = stream.id
    assert id
    await stream.aclose()

    async def is_over() -> bool:
        return (await get_stream(client, id)).status == "cancelled"

    await until(is_over)


def own_server() -> tuple[MCPServer, StreamingTools]:
    streaming = StreamingTools()
    server = MCPServer("own", extensions=[streaming])

    @server.tool()
    @streamed
    async def big(count: int, size: int) -> AsyncIterator[str]:
        for at in range(count):
            yield chr(ord("a") + at % 26) * size

    @server.tool()
    @streamed
    async def waits() -> AsyncGenerator[str]:
        yield "x"
        await asyncio.Event().wait()

    return server, streaming


@pytest.mark.parametrize("era", ERAS)
async def test_the_kept_chunks_and_streams_have_a_bound(era: str) -> None:
    server, streaming = own_server()
    async with Client(server, mode=era) as client:
        stream = stream_tool(client, "big", {"count": 20, "size": 50_000})
        assert len([chunk async for chunk in stream]) == 20
        assert stream.id
        state = await get_stream(client, stream.id)
        assert 0 < state.first_kept < 20
        seqs = [chunk.seq async for chunk in watch_stream(client, stream.id, after=1)]
        assert seqs == list(range(state.first_kept, 20))
        huge = stream_tool(client, "big", {"count": 1, "size": 500_000})
        assert len([chunk async for chunk in huge]) == 1
        assert huge.id
        assert [chunk async for chunk in watch_stream(client, huge.id)] == []
        for _ in range(KEPT_ENDED):
            await call(client, "big", {"count": 1, "size": 1}, stream=True)
        with pytest.raises(MCPError, match="is unknown here"):
            await get_stream(client, stream.id)
    gc.collect()
    assert streaming.streams.running() == []


@pytest.mark.parametrize("era", ERAS)
async def test_the_server_itself_looks_up_watches_and_cancels(era: str) -> None:
    server, streaming = own_server()
    async with Client(server, mode=era) as client:
        stream = stream_tool(client, "waits")
        await anext(stream)
        (state,) = streaming.streams.running()
        assert state.id == stream.id
        assert streaming.streams.get(state.id) == state
        seen = streaming.streams.watch(state.id)
        assert await anext(seen) == "x"
        assert streaming.streams.cancel(state.id) is True
        with pytest.raises(StopAsyncIteration):
            await anext(seen)
        with pytest.raises(ToolFailed, match="cancelled"):
            await anext(stream)
        assert streaming.streams.cancel(state.id) is False
    assert streaming.streams.get("nonesuch") is None
    assert streaming.streams.cancel("nonesuch") is False
    assert [data async for data in streaming.streams.watch("nonesuch")] == []
