"""Tools that stream, over memory, stdio and HTTP, in both eras: what a client reads and gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client

from penstock import ToolFailed
from penstock.mcp import ToolChunk, stream_tool
from tests.mcp.streaming.connections import ERAS, SECONDS, connected, ended


async def read(client: Client, name: str, **arguments: Any) -> tuple[list[ToolChunk], Any]:
    """Every chunk, and the result."""
    stream = stream_tool(client, name, arguments)
    chunks = [chunk async for chunk in stream]
    return chunks, stream.result


async def test_an_async_generator_streams_and_its_texts_make_one(client: Client) -> None:
    chunks, result = await read(client, "tell", count=60)
    assert [chunk.seq for chunk in chunks] == list(range(60))
    assert [chunk.text for chunk in chunks] == [f"w{at} " for at in range(60)]
    whole = "".join(chunk.text for chunk in chunks)
    assert [block.text for block in result.content] == [whole]
    assert result.structured_content == {"result": whole}


async def test_chunks_come_while_the_tool_runs(client: Client) -> None:
    stream = stream_tool(client, "gated", {"name": "live"})
    async with asyncio.timeout(SECONDS):
        # The tool waits for the gate, and the gate for the first chunk.
        assert (await anext(stream)).text == "before "
        await client.call_tool("open_gate", {"name": "live"})
        assert (await anext(stream)).text == "after"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert stream.result.structured_content == {"result": "before after"}


async def test_a_generator_without_async_streams_from_its_thread(client: Client) -> None:
    chunks, result = await read(client, "walk", count=5)
    assert [chunk.data for chunk in chunks] == [0, 1, 2, 3, 4]
    assert result.structured_content == {"result": [0, 1, 2, 3, 4]}


async def test_what_a_generator_returns_is_its_result(client: Client) -> None:
    chunks, result = await read(client, "tally", count=2)
    assert [chunk.text for chunk in chunks] == ["word 0", "word 1"]
    assert result.structured_content == {"result": 2}


async def test_values_keep_their_shape(client: Client) -> None:
    chunks, result = await read(client, "table")
    rows = [{"name": "first", "size": 1}, {"name": "second", "size": 2}]
    assert [chunk.data for chunk in chunks] == rows
    assert chunks[0].text == '{"name":"first","size":1}'
    assert result.structured_content == {"result": rows}


async def test_content_blocks_are_chunks(client: Client) -> None:
    chunks, result = await read(client, "gallery")
    words, picture = chunks
    assert (words.text, picture.text) == ("look:", "")
    assert picture.content == {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    assert [block.type for block in result.content] == ["text", "image"]


async def test_whatever_a_tool_gives_is_cut_into_chunks(client: Client) -> None:
    expected: dict[str, tuple[list[str], object]] = {
        "lines": (["one", "two"], ["one", "two"]),
        "listed": (["a", "b", "c"], ["a", "b", "c"]),
        "in_chunks": (["1", "2"], [1, 2]),
        "single": (["all of it"], "all of it"),
        "nothing": ([], ""),
    }
    for name, (texts, whole) in expected.items():
        chunks, result = await read(client, name)
        assert [chunk.text for chunk in chunks] == texts
        assert result.structured_content == {"result": whole}


async def test_a_list_says_how_many_chunks_there_are(client: Client) -> None:
    chunks, _ = await read(client, "in_chunks")
    assert [(chunk.data, chunk.total) for chunk in chunks] == [(1, 2), (2, 2)]


async def test_a_function_may_return_the_generator(client: Client) -> None:
    chunks, result = await read(client, "handed_on", count=2)
    assert [chunk.text for chunk in chunks] == ["w0 ", "w1 "]
    assert result.structured_content == {"result": "w0 w1 "}


async def test_a_tool_inside_a_tool_sends_nothing_of_its_own(client: Client) -> None:
    chunks, _ = await read(client, "nested")
    assert [chunk.text for chunk in chunks] == ["inside: {'result': 'w0 w1 '}"]


async def test_who_asks_for_nothing_gets_the_whole(client: Client) -> None:
    result = await client.call_tool("tell", {"count": 3})
    assert result.structured_content == {"result": "w0 w1 w2 "}
    assert "dev.penstock/stream" not in (result.meta or {})


async def test_a_generator_that_raises_ends_the_stream_once(client: Client) -> None:
    stream = stream_tool(client, "breaks", {"after": 2})
    assert [(await anext(stream)).text, (await anext(stream)).text] == ["w0 ", "w1 "]
    with pytest.raises(ToolFailed, match=r"'breaks' failed: Error executing tool .* out of words"):
        await anext(stream)
    assert stream.result.is_error
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_crash_in_mid_stream_keeps_its_reason_to_itself(client: Client) -> None:
    stream = stream_tool(client, "breaks", {"after": 1, "deliberately": False})
    await anext(stream)
    with pytest.raises(ToolFailed) as failed:
        await anext(stream)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("kind", ["half", "circle"])
async def test_a_chunk_that_is_no_json_is_named(client: Client, kind: str) -> None:
    named = r"chunk 1 of the tool 'odd' is a .* cannot be sent as JSON"
    stream = stream_tool(client, "odd", {"kind": kind})
    assert (await anext(stream)).text == "fine"
    with pytest.raises(ToolFailed, match=named):
        await anext(stream)


async def test_every_character_arrives(client: Client) -> None:
    pieces = [
        "Grüße 🌊 日本語",
        "\x00\x01\x1b\x7f",
        "line\nline\r\nline\rline",
        "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e",
        "data: event: \n\n",
        '{"dev.penstock/chunk":{"seq":0,"data":"forged"}}',
        "",
    ]
    chunks, result = await read(client, "echo", pieces=pieces)
    assert [chunk.text for chunk in chunks] == pieces
    assert result.structured_content == {"result": "".join(pieces)}


async def test_huge_chunks_arrive(client: Client) -> None:
    size = 2_000_000
    chunks, _ = await read(client, "huge", size=size, count=3)
    assert [(chunk.text[0], len(chunk.text)) for chunk in chunks] == [
        ("a", size),
        ("b", size),
        ("c", size),
    ]


async def test_more_than_the_limit_is_refused(client: Client) -> None:
    whole = await client.call_tool("limited", {"sizes": [500, 500]})
    assert not whole.is_error
    stream = stream_tool(client, "limited", {"sizes": [600, 600]})
    assert len((await anext(stream)).text) == 600
    with pytest.raises(ToolFailed, match=r"'limited' gives more than 1000 bytes.*max_bytes"):
        await anext(stream)


async def test_leaving_the_loop_cancels_the_tool(client: Client) -> None:
    for tool in ("endless", "endless_in_a_thread"):
        async for chunk in stream_tool(client, tool, {"name": f"left {tool}"}):
            assert chunk.seq == 0
            break
        await ended(client, f"left {tool}")


async def test_closing_cancels_the_tool(client: Client) -> None:
    async with stream_tool(client, "endless", {"name": "closed"}) as stream:
        await anext(stream)
    await ended(client, "closed")
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_reader_that_is_cancelled_cancels_the_tool(client: Client) -> None:
    begun = asyncio.Event()

    async def reader() -> None:
        async for _ in stream_tool(client, "endless", {"name": "reader"}):
            begun.set()

    task = asyncio.create_task(reader())
    await asyncio.wait_for(begun.wait(), SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(client, "reader")


async def test_many_streams_at_once_do_not_mix(client: Client) -> None:
    async def one(at: int) -> list[str]:
        stream = stream_tool(client, "tell", {"count": 20, "prefix": f"{at}-"})
        return [chunk.text async for chunk in stream]

    every = await asyncio.gather(*(one(at) for at in range(20)))
    assert every == [[f"{at}-{word} " for word in range(20)] for at in range(20)]


@pytest.mark.parametrize("era", ERAS)
async def test_generators_that_wait_leave_threads_for_others(era: str) -> None:
    async def one(client: Client) -> list[str]:
        stream = stream_tool(client, "meeting", {"count": 60})
        return [chunk.text async for chunk in stream]

    async with connected("memory", era) as client, asyncio.timeout(SECONDS):
        # Each waits in its thread for all the others, and there are more than a pool has.
        every = await asyncio.gather(*(one(client) for _ in range(60)))
    assert every == [["here", "met"]] * 60
