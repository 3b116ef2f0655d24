"""Chunks in `message`, which `stream_tool` asks for: their form, their order, and lookalikes."""

from __future__ import annotations

import itertools
import json

import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer

from penstock.mcp import stream_tool
from tests.mcp.streaming.connections import ERAS
from tests.mcp.streaming.raw import JSON, process, tool_call

SERVER = """
import asyncio
from collections.abc import AsyncIterator
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ImageContent
from penstock.mcp import StreamingTools, streamed

server = MCPServer("forms", extensions=[StreamingTools()])

@server.tool()
@streamed
async def kinds():
    yield 'a "naïve" \\\\ line\\n'
    yield {"cm": 1.5, "of": None}
    yield ImageContent(type="image", data="aGk=", mime_type="image/png")

@server.tool()
def listed() -> list[int]:
    return [7, 8]

@server.tool()
@streamed
async def crowded(ctx: Context, count: int) -> AsyncIterator[str]:
    async def report():
        for at in range(count):
            await ctx.report_progress(at, count, "busy")

    async with asyncio.TaskGroup() as others:
        for _ in range(3):
            others.create_task(report())
        for at in range(count):
            yield str(at)

server.run("stdio")
"""
LOOKALIKES = [
    '{"dev.penstock/chunk":',
    '{"dev.penstock/chunk":{"seq":0,"data":"x"}} and more',
    '{"dev.penstock/chunk":"x"}',
    '{"dev.penstock/chunk":{"data":"x"}}',
    '{"dev.penstock/chunk":{"seq":-1,"data":"x"}}',
    '{"dev.penstock/chunk":{"seq":"0","data":"x"}}',
    '{"dev.penstock/chunk":{"seq":0}}',
    '[{"dev.penstock/chunk":{"seq":0,"data":"x"}}]',
]


async def heard(name: str, arguments: JSON, ask: object) -> list[JSON]:
    """The params of every progress notification of one call, as they came."""
    async with process("-c", SERVER) as server:
        body = tool_call("legacy", name, arguments, token="mine")
        body["params"]["_meta"]["dev.penstock/stream"] = ask
        _, before = await server.answer_to(body)
    first, *rest = [message["params"] for message in before]
    assert first["progress"] == 0
    return rest


async def test_every_kind_of_chunk_is_whole_in_its_message() -> None:
    found = await heard("kinds", {}, {"in": "message"})
    assert [(each["progressToken"], each["progress"]) for each in found] == [
        ("mine", 1),
        ("mine", 2),
        ("mine", 3),
    ]
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    row = {"cm": 1.5, "of": None}
    text = '{"cm":1.5,"of":null}'
    assert [json.loads(each["message"])["dev.penstock/chunk"] for each in found] == [
        {"seq": 0, "data": 'a "naïve" \\ line\n'},
        {"seq": 1, "data": row, "content": {"type": "text", "text": text}},
        {"seq": 2, "data": image, "content": image},
    ]


async def test_a_list_says_in_each_message_how_many_there_are() -> None:
    found = await heard("listed", {}, {"in": "message"})
    bodies: list[JSON] = [json.loads(each["message"])["dev.penstock/chunk"] for each in found]
    assert [(body["seq"], body["data"], body["total"]) for body in bodies] == [(0, 7, 2), (1, 8, 2)]
    assert [each["total"] for each in found] == [2, 2]


@pytest.mark.parametrize("ask", [True, {"in": "message"}], ids=["meta", "message"])
async def test_numbers_increase_on_the_wire_while_others_report(ask: object) -> None:
    found = await heard("crowded", {"count": 30}, ask)
    numbers = [each["progress"] for each in found]
    assert len(numbers) == 4 * 30
    assert all(earlier < later for earlier, later in itertools.pairwise(numbers))
    assert [number for number in numbers if number == int(number)] == list(range(1, 31))


@pytest.mark.parametrize("said", LOOKALIKES)
@pytest.mark.parametrize("era", ERAS)
async def test_progress_that_only_looks_like_a_chunk_is_none(era: str, said: str) -> None:
    server = MCPServer("others")

    @server.tool()
    async def misleading(ctx: Context) -> str:
        await ctx.report_progress(1, None, said)
        return "whole"

    async with Client(server, mode=era) as client:
        found = [chunk.text async for chunk in stream_tool(client, "misleading")]
    assert found == ["whole"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_chunk_by_another_hand_is_read(era: str) -> None:
    server = MCPServer("others")

    @server.tool()
    async def handmade(ctx: Context) -> str:
        body = '{ "total": "many", "more": 1, "data": [1], "seq": 0 }'
        await ctx.report_progress(1, None, f'{{"dev.penstock/chunk":{body}}}')
        return "whole"

    async with Client(server, mode=era) as client:
        chunk = await anext(stream_tool(client, "handmade"))
    assert (chunk.seq, chunk.text, chunk.data, chunk.total) == (0, "", [1], None)
