"""A value of every type reaches the reader as that, whatever kind of tool gives it."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession

from penstock import ToolFailed
from penstock.mcp import Chunks, StreamingTools, ToolChunk, stream_tool, streamed
from tests.mcp.streaming.connections import ERAS, Heard, call, connected, held_open
from tests.mcp.streaming.server import PLAIN_VALUES

PIXEL = b"\x89PNG\r\n\x1a\n"


@dataclass
class Photo:
    """Bytes in a field."""

    name: str
    raw: bytes


class Unknown:
    """Something that JSON has no form for."""

    def __str__(self) -> str:
        return "an unknown thing"


TYPED: list[Any] = [
    {"a": 1, "of": [None, {"b": True}]},
    [1, [2, None]],
    [[], [None]],
    [],
    {},
    5,
    -1.5,
    True,
    False,
    None,
]
FORMATTED: list[tuple[Any, Any]] = [
    (b"abc", "abc"),
    (bytearray(b"abc"), "abc"),
    (memoryview(b"abc"), "abc"),
    ({1}, [1]),
    ((1, (2, None)), [1, [2, None]]),
    (datetime.date(2020, 1, 1), "2020-01-01"),
    (PurePosixPath("/x"), "/x"),
    (float("nan"), "NaN"),
    ({"a": float("inf")}, {"a": "Infinity"}),
    (Unknown(), "an unknown thing"),
    ({"a": Unknown()}, {"a": "an unknown thing"}),
    ({"a": b"\xff"}, {"a": {"base64": "/w==", "mediaType": "application/octet-stream"}}),
    (Photo("x", b"\xff"), {"name": "x", "raw": "_w=="}),
]
KINDS = ("generator", "thread", "returned", "chunks", "plain", "plain_chunks")


def server_giving(value: Any) -> MCPServer:
    """Tools of every kind that give it twice."""
    server = MCPServer("typed", extensions=[StreamingTools()])

    @server.tool()
    @streamed
    async def generator() -> AsyncIterator[Any]:
        yield value
        yield value

    @server.tool()
    @streamed
    def thread() -> Iterator[Any]:
        yield value
        yield value

    @server.tool()
    @streamed
    async def returned():
        return [value, value]

    @server.tool()
    @streamed
    async def chunks() -> Chunks[Any]:
        return Chunks([value, value])

    @server.tool()
    async def plain():
        return [value, value]

    @server.tool()
    def plain_chunks() -> Chunks[Any]:
        return Chunks([value, value])

    return server


async def read(client: Client, name: str) -> list[ToolChunk]:
    return [chunk async for chunk in stream_tool(client, name)]


async def chunks_by_all(value: Any) -> list[list[ToolChunk]]:
    found: list[list[ToolChunk]] = []
    for era in ERAS:
        async with Client(server_giving(value), mode=era) as client:
            found += [await read(client, kind) for kind in KINDS]
    return found


def same(left: Any, right: Any) -> bool:
    """Equal with their types: True is not 1 here."""
    return json.dumps(left) == json.dumps(right)


@pytest.mark.parametrize("value", TYPED, ids=repr)
async def test_json_keeps_its_type_and_shape(value: Any) -> None:
    for chunks in await chunks_by_all(value):
        assert len(chunks) == 2
        for chunk in chunks:
            assert same(chunk.data, value)
            assert json.loads(chunk.text) == value
            assert chunk.media_type is None


@pytest.mark.parametrize(
    ("value", "data"),
    FORMATTED,
    ids=[type(value).__name__ + f"-{n}" for n, (value, _) in enumerate(FORMATTED)],
)
async def test_any_other_term_is_formatted_by_all_kinds_alike(value: Any, data: Any) -> None:
    for chunks in await chunks_by_all(value):
        assert [chunk.data for chunk in chunks] == [data, data]


async def test_bytes_that_are_no_text_have_a_media_type() -> None:
    for value, media_type in ((b"\xff\xfe", "application/octet-stream"), (PIXEL, "image/png")):
        for chunks in await chunks_by_all(value):
            for chunk in chunks:
                assert chunk.data["mediaType"] == chunk.media_type == media_type
                assert base64.b64decode(chunk.data["base64"]) == value
                assert chunk.text == ""


@pytest.mark.parametrize("era", ERAS)
async def test_bytes_are_in_the_whole_answer_too(era: str) -> None:
    server = server_giving(b"\xff")
    server.add_tool(raw)
    async with Client(server, mode=era) as client:
        for kind in KINDS:
            result = await client.call_tool(kind)
            assert not result.is_error
            for block in result.content:
                assert isinstance(block, types.EmbeddedResource)
                assert isinstance(block.resource, types.BlobResourceContents)
                assert block.resource.blob == "/w=="
        declared = await client.call_tool("raw")
    assert declared.structured_content == {"result": "_w=="}


def raw() -> bytes:
    """With a schema."""
    return b"\xff"


@pytest.mark.parametrize("era", ERAS)
async def test_one_value_and_no_value(era: str) -> None:
    server = MCPServer("one", extensions=[StreamingTools()])
    given: list[Any] = [{"a": 1}, 5, 1.5, True, "t", b"\xff", None]
    for at, value in enumerate(given):
        server.add_tool(_giver(value), name=f"plain{at}")
        server.add_tool(streamed(_giver(value)), name=f"streamed{at}")
    async with Client(server, mode=era) as client:
        for at, value in enumerate(given):
            for kind in ("plain", "streamed"):
                found = [chunk.data for chunk in await read(client, f"{kind}{at}")]
                blob = {"base64": "/w==", "mediaType": "application/octet-stream"}
                wanted = [] if value is None else [blob if value == b"\xff" else value]
                assert same(found, wanted), (kind, value)


def _giver(value: Any) -> Any:
    def give():
        return value

    return give


@pytest.fixture(params=[(way, era) for way in ("stdio", "http") for era in ERAS], ids="-".join)
async def remote(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[Client, Heard]]:
    heard = Heard()
    way, era = request.param
    async with held_open(connected(way, era, heard)) as client:
        yield client, heard


async def test_types_travel(remote: tuple[Client, Heard]) -> None:
    client, heard = remote
    for name in ("typed", "plainly_typed"):
        found = [chunk.data for chunk in await read(client, name)]
        assert found[:-1] == PLAIN_VALUES
        assert found[-1] == {"base64": "//4=", "mediaType": "application/octet-stream"}
    heard.notes.clear()
    meta = {"progressToken": "t", "dev.penstock/stream": True}
    await call(client, "typed", meta=meta)
    *bodies, last = await heard.chunks(len(PLAIN_VALUES) + 1)
    data = [body["data"] if "data" in body else body["content"]["text"] for body in bodies]
    assert data == PLAIN_VALUES
    assert last["content"]["resource"]["mimeType"] == "application/octet-stream"


@pytest.mark.parametrize("era", ERAS)
async def test_a_plain_tool_whose_answer_is_a_circle_fails_and_stays_usable(era: str) -> None:
    circle: list[Any] = []
    circle.append(circle)
    server = server_giving(circle)
    async with Client(server, mode=era) as client:
        for kind in KINDS:
            with pytest.raises(ToolFailed):
                await read(client, kind)
        assert (await client.call_tool("plain")).is_error


class _Session(ServerSession):
    """A transport that loses the third chunk."""

    sent = 0

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.sent += 1
        if self.sent == 4:  # the first names the stream
            raise ConnectionError("lost")
        await super().report_progress(progress, total, message)


class _Losing(Extension):
    identifier = "test.penstock/losing"

    async def intercept_tool_call(
        self,
        params: types.CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        session = object.__new__(_Session)
        vars(session).update(vars(ctx.session))
        ctx.session = session
        return await call_next(ctx)


@pytest.mark.parametrize("era", ERAS)
async def test_the_total_is_of_chunks_that_were_sent(era: str) -> None:
    server = MCPServer("losing", extensions=[_Losing(), StreamingTools()])

    @server.tool()
    @streamed
    async def words() -> AsyncIterator[str]:
        for word in ("a", "b", "c", "d"):
            yield word

    async with Client(server, mode=era) as client:
        result = await client.call_tool("words", meta={"dev.penstock/stream": True})
    assert result.is_error
    assert (result.meta or {})["dev.penstock/stream"]["total_chunks"] == 2
