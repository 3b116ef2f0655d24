"""Clients that go away, that do not read, and that use one another's tokens."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import httpx
import pytest
from mcp import Client

from penstock import ToolFailed
from penstock.mcp import ToolChunk, ToolStream, stream_tool
from tests.mcp.streaming.connections import (
    ERAS,
    SECONDS,
    Heard,
    call,
    connected,
    ended,
    shared_server,
    until,
)
from tests.mcp.streaming.raw import headers_for, posted, process, tool_call
from tests.support.services import HOST


async def test_a_modern_client_that_goes_away_in_mid_chunk_cancels_the_tool() -> None:
    url = shared_server().url
    async with httpx.AsyncClient(timeout=30) as http, connected("http", "auto") as other:
        headers = await headers_for("auto", http, url, "endless")
        body = tool_call("auto", "endless", {"name": "gone", "size": 100_000}, token="t")
        async with posted(url, headers, body) as messages:
            assert (await messages.next())["method"] == "notifications/progress"
        await ended(other, "gone")


async def test_a_legacy_client_that_loses_its_stream_cancels_nothing() -> None:
    url = shared_server().url
    async with httpx.AsyncClient(timeout=30) as http, connected("http", "legacy") as other:
        headers = await headers_for("legacy", http, url, "endless")
        body = tool_call("legacy", "endless", {"name": "lost", "size": 10_000}, token="t")
        async with posted(url, headers, body) as messages:
            await messages.next()
        made = (await other.call_tool("made_by", {"name": "lost"})).structured_content["result"]

        async def goes_on() -> bool:
            result = await other.call_tool("made_by", {"name": "lost"})
            return result.structured_content["result"] > made

        await until(goes_on)
        # The session's end is the client's end.
        await http.delete(url, headers=headers)
        await ended(other, "lost")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_does_not_read_slows_the_generator(era: str) -> None:
    url, name = shared_server().url, f"slow {era}"
    async with httpx.AsyncClient(timeout=30) as http, connected("http", "auto") as other:
        headers = await headers_for(era, http, url, "endless")
        body = tool_call(era, "endless", {"name": name, "size": 100_000}, token="t")
        reader, writer = await asyncio.open_connection(HOST, shared_server().port, limit=2**16)
        content = json.dumps(body).encode()
        head = {"host": f"{HOST}:{shared_server().port}", "content-length": str(len(content))}
        lines = [f"{key}: {value}" for key, value in (headers | head).items()]
        writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + content)
        await reader.readuntil(b"\r\n\r\n")

        async def made() -> int:
            return (await other.call_tool("made_by", {"name": name})).structured_content["result"]

        counts = [await made()]

        async def stands_still() -> bool:
            counts.append(await made())
            return counts[-1] > 0 and len(set(counts[-10:])) == 1 and len(counts) > 10

        await until(stands_still)
        # Sockets hold a few megabytes; the generator may give 64, and has not.
        assert counts[-1] < 400
        over = (await other.call_tool("ended_calls")).structured_content["result"]
        assert name not in over
        before = counts[-1]

        async def moves_on() -> bool:
            await reader.read(2**20)
            return await made() > before

        await until(moves_on)
        writer.close()
        if era == "legacy":
            await http.delete(url, headers=headers)
        await ended(other, name)


async def test_a_reader_in_the_same_process_slows_the_generator() -> None:
    async with connected("memory", "auto") as client:
        stream = stream_tool(client, "endless", {"name": "here"}, buffer=8)
        await anext(stream)

        async def made() -> int:
            return (await client.call_tool("made_by", {"name": "here"})).structured_content[
                "result"
            ]

        counts = [await made() for _ in range(50)]
        assert counts[-1] <= 8 + 2
        for _ in range(20):
            await anext(stream)
        assert await made() > counts[-1]
        await stream.aclose()


async def rest_of(stream: ToolStream) -> list[ToolChunk]:
    return [chunk async for chunk in stream]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_reader_that_falls_far_behind_fails_and_cancels_the_tool(
    way: str, era: str
) -> None:
    async with connected(way, era) as client:
        name = f"behind {way} {era}"
        stream = stream_tool(client, "endless", {"name": name}, buffer=4)
        await anext(stream)
        await ended(client, name)
        with pytest.raises(ToolFailed, match=r"'endless' is 8 chunks behind.*larger buffer"):
            await rest_of(stream)


@pytest.mark.parametrize("era", ERAS)
async def test_a_stream_that_is_dropped_leaves_no_task_behind(era: str) -> None:
    async with connected("http", era) as client:
        name = f"dropped {era}"
        await client.call_tool("ended_calls")
        before = len(asyncio.all_tasks())
        stream = stream_tool(client, "endless", {"name": name}, buffer=4)
        await anext(stream)
        await ended(client, name)
        # It was cancelled because four are held and four more wait for room that nobody makes.
        await until_tasks(lambda count: count == before + 4)
        del stream
        await until_tasks(lambda count: count == before)


async def until_tasks(holds: Callable[[int], bool]) -> None:
    async def settled() -> bool:
        return holds(len(asyncio.all_tasks()))

    await until(settled)


@pytest.mark.parametrize("era", ERAS)
async def test_closing_from_elsewhere_ends_the_reader(era: str) -> None:
    async with connected("memory", era) as client:
        stream = stream_tool(client, "gated", {"name": "elsewhere"})
        assert (await anext(stream)).text == "before "
        reader = asyncio.create_task(rest_of(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        assert await reader == []


@pytest.mark.parametrize("era", ERAS)
async def test_clients_with_the_same_token_hear_only_their_own(era: str) -> None:
    mine, yours = Heard(), Heard()
    meta = {"progressToken": "same", "dev.penstock/stream": True}
    async with connected("http", era, mine) as me, connected("http", era, yours) as you:
        await asyncio.gather(
            call(me, "tell", {"count": 50, "prefix": "mine"}, meta=meta),
            call(you, "tell", {"count": 50, "prefix": "yours"}, meta=meta),
        )
        await mine.chunks(50)
        await yours.chunks(50)
    assert {re.sub(r"\d+ ", "", note.message or "") for note in mine.notes} == {"mine"}
    assert {re.sub(r"\d+ ", "", note.message or "") for note in yours.notes} == {"yours"}


async def test_a_cancelled_call_is_silent_afterwards() -> None:
    async with process() as server:
        body = tool_call("legacy", "endless", {"name": "silent"}, token="t")
        await server.send(body)
        assert (await server.next())["params"]["progressToken"] == "t"
        await server.send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": body["id"]},
            }
        )
        names: list[str] = []
        async with asyncio.timeout(SECONDS):
            while "silent" not in names:
                ask = tool_call("legacy", "ended_calls", {}, token="u")
                answer, before = await server.answer_to(ask)
                assert body["id"] not in [message.get("id") for message in before]
                names = answer["result"]["structuredContent"]["result"]
        ask = tool_call("legacy", "single", {}, token="u")
        _, before = await server.answer_to(ask)
        # The one that names the stream, and the chunk.
        assert [message["params"]["progressToken"] for message in before] == ["u", "u"]


async def test_nothing_is_sent_after_the_result(client: Client, heard: Heard) -> None:
    meta = {"progressToken": "t", "dev.penstock/stream": True}
    await call(client, "breaks", {"after": 3}, meta=meta)
    await heard.chunks(3)
    await call(client, "single")
    assert len(heard.notes) == 3
