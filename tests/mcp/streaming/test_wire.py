"""What goes over the wire: the ways to ask, the form of a chunk, tokens, and increasing numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client import advertise
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.mcp.streaming.connections import ERAS, WAYS, Heard, call, connected

TEXT = {"type": "text", "text": "w0 "}


async def test_a_chunk_is_progress_with_its_text_and_content(client: Client, heard: Heard) -> None:
    meta = {"progressToken": "mine", "dev.penstock/stream": True}
    await call(client, "tell", {"count": 2}, meta=meta)
    chunks = await heard.chunks(2)
    assert chunks[0] == {"seq": 0, "content": TEXT}
    assert chunks[1]["seq"] == 1
    assert [(note.progress_token, note.progress, note.message) for note in heard.notes] == [
        ("mine", 1, "w0 "),
        ("mine", 2, "w1 "),
    ]


async def test_the_field_brings_numbers_and_data_with_every_chunk(
    client: Client, heard: Heard
) -> None:
    await call(client, "in_chunks", stream=True, meta={"progressToken": 7})
    chunks = await heard.chunks(2)
    assert [(chunk["chunk_num"], chunk["total"], chunk["data"]) for chunk in chunks] == [
        (1, 2, 1),
        (2, 2, 2),
    ]
    assert [chunk["seq"] for chunk in chunks] == [0, 1]
    assert [(note.progress_token, note.progress, note.total) for note in heard.notes] == [
        (7, 1, 2),
        (7, 2, 2),
    ]


async def test_the_field_alone_gets_a_token_that_is_its_own(client: Client, heard: Heard) -> None:
    results = [await call(client, "tell", {"count": 1}, stream=True) for _ in range(2)]
    chunks = await heard.chunks(2)
    tokens = [note.progress_token for note in heard.notes]
    assert len(set(tokens)) == 2
    assert all("requestId" in chunk for chunk in chunks)
    told = [(result.meta or {})["dev.penstock/stream"]["progressToken"] for result in results]
    assert tokens == told


async def test_the_result_says_how_many_chunks_there_were(client: Client) -> None:
    result = await call(client, "tell", {"count": 3}, stream=True)
    about = (result.meta or {})["dev.penstock/stream"]
    assert about["total_chunks"] == 3
    assert about["streamId"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("era", ERAS)
async def test_the_capability_and_a_token_ask_for_chunks(way: str, era: str, heard: Heard) -> None:
    able = [advertise("dev.penstock/streaming")]
    async with connected(way, era, heard, able) as client:
        await call(client, "tell", {"count": 2}, meta={"progressToken": "t"})
        assert [chunk["seq"] for chunk in await heard.chunks(2)] == [0, 1]
        quiet = await call(client, "tell", {"count": 2})
    assert "dev.penstock/stream" not in (quiet.meta or {})
    assert len(heard.notes) == 2


async def test_a_token_alone_asks_for_progress_and_not_for_chunks(
    client: Client, heard: Heard
) -> None:
    await call(client, "tell", {"count": 2}, meta={"progressToken": "t"})
    await call(client, "mixed", stream=True, meta={"progressToken": "u"})
    await heard.chunks(2)
    assert {note.progress_token for note in heard.notes} == {"u"}


async def test_the_server_tells_of_the_extension(client: Client) -> None:
    capabilities = client.server_capabilities
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        assert capabilities.extensions == {"dev.penstock/streaming": {}}
    else:
        assert capabilities.experimental == {"dev.penstock/streaming": {}}


async def test_progress_increases_whatever_the_tool_reports_itself(
    client: Client, heard: Heard
) -> None:
    meta = {"progressToken": "t", "dev.penstock/stream": True}
    await call(client, "mixed", meta=meta)
    await heard.chunks(2)
    notes = sorted(heard.notes, key=lambda note: note.progress)
    assert [note.message for note in notes] == ["warming up", None, "one", "back", "two"]
    numbers = [note.progress for note in notes]
    assert len(set(numbers)) == len(numbers)
    assert [number for number in numbers if number.is_integer()] == [1, 2]
    own = [(note.meta or {}).get("dev.penstock/progress") for note in notes]
    assert own == [
        {"progress": 10, "total": 100},
        {"progress": 50, "total": 100},
        None,
        {"progress": 5, "total": 100},
        None,
    ]


async def test_progress_of_a_plain_call_is_left_as_it_is(client: Client) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    await client.call_tool("mixed", progress_callback=note)
    assert sorted(seen) == [(5, 100), (10, 100), (50, 100)]


async def test_a_pause_between_chunks_is_kept(client: Client) -> None:
    began = time.monotonic()
    await call(client, "tell", {"count": 4}, stream={"chunkDelayMs": 50})
    assert time.monotonic() - began >= 0.15


@pytest.mark.parametrize("value", [False, None])
async def test_asking_for_no_stream_gets_none(client: Client, heard: Heard, value: object) -> None:
    result = await call(client, "tell", {"count": 2}, stream=value)
    assert result.structured_content == {"result": "w0 w1 "}
    assert not heard.notes


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ("yes", ["stream is 'yes'", "true, false or an object"]),
        ({"chunkDelayMs": -1}, ["stream.chunkDelayMs is -1", "0 to 60000"]),
        ({"chunkDelayMs": True}, ["stream.chunkDelayMs is True"]),
        ({"chunkDelayMs": "5"}, ["stream.chunkDelayMs is '5'"]),
        ({"in": "air"}, ["stream.in is 'air'", "'meta' or 'message'"]),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_no_way_to_ask_is_refused(era: str, ask: Any, said: Sequence[str]) -> None:
    async with connected("memory", era) as client:
        with pytest.raises(MCPError) as refused:
            await call(client, "tell", {"count": 1}, stream=ask)
    assert refused.value.code == INVALID_PARAMS
    assert all(part in str(refused.value) for part in said)
