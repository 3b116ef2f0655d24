"""Connections to MCP servers have limits, and none is opened for a request that is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.contract.errors import ToolFailed
from penstock.contract.options import MCPTool
from penstock.engine.engine import Engine
from penstock.mcp import http
from penstock.mcp.connection_limit import ConnectionLimit, Place
from penstock.mcp.connections import ToolServers
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import bearer, keyed_engine
from tests.support.mcp.processes import shared_server
from tests.support.raw import Peer, RawServer
from tests.unit.server.gateway_support import Gateway, running_gateway

pytestmark = pytest.mark.timeout(60)
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class Line:
    """A connection that is open or not, and idle since a moment or at work."""

    def __init__(self, idle_since: float | None = None) -> None:
        self.idle_since = idle_since
        self.place: Place | None = None

    async def aclose(self) -> None:
        assert self.place is not None
        self.place.leave()
        self.place = None


async def enter(limit: ConnectionLimit, line: Line, owner: str | None = None) -> None:
    line.place = await limit.enter(line, owner)


async def test_the_connection_that_is_idle_for_longest_makes_room() -> None:
    limit = ConnectionLimit(2, 2)
    old, young, third = Line(1.0), Line(2.0), Line(3.0)
    for line in (young, old, third):
        await enter(limit, line)
    assert old.place is None
    assert young.place is not None
    assert third.place is not None


async def test_without_an_idle_one_it_waits_until_one_ends_or_is_idle() -> None:
    limit = ConnectionLimit(1, 1)
    first, second, third = Line(), Line(), Line()
    await enter(limit, first)
    waiting = asyncio.create_task(enter(limit, second))
    await asyncio.sleep(0)
    assert not waiting.done()
    await first.aclose()
    await waiting
    waiting = asyncio.create_task(enter(limit, third))
    await asyncio.sleep(0)
    second.idle_since = 1.0
    limit.wake()
    await waiting
    assert second.place is None


async def test_an_owner_takes_nothing_from_another_while_there_is_room() -> None:
    limit = ConnectionLimit(4, 2)
    others, own = Line(0.0), Line(1.0)
    await enter(limit, others, "b")
    await enter(limit, own, "a")
    await enter(limit, Line(2.0), "a")
    await enter(limit, Line(3.0), "a")
    assert own.place is None
    assert others.place is not None


async def test_a_wait_that_is_given_up_takes_no_place() -> None:
    limit = ConnectionLimit(1, 1)
    first, second = Line(), Line()
    await enter(limit, first)
    waiting = asyncio.create_task(enter(limit, second))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await first.aclose()
    await enter(limit, Line())


async def test_more_servers_than_connections_take_turns() -> None:
    servers = ToolServers(most=2, most_of_owner=2)
    tools = [MCPTool(shared_server().url, f"s{index}") for index in range(5)]
    sources = [servers.source(tool) for tool in tools]
    for listed in await asyncio.gather(*(source.tools() for source in sources)):
        assert "add" in {tool.definition.name for tool in listed}
    await servers.aclose()


async def test_what_finds_no_connection_in_time_says_so() -> None:
    from penstock.mcp.tools import ToolAdapter

    limit = ConnectionLimit(1, 1)
    await enter(limit, Line())
    adapter = ToolAdapter(MCPTool(shared_server().url, "s"), timeout=0.05, connections=limit)
    with pytest.raises(ToolFailed, match=r"raise limits\.max_mcp_connections"):
        await adapter.tools()
    await adapter.aclose()


def test_an_owner_shares_its_connections_with_no_other() -> None:
    servers = ToolServers()
    tool = MCPTool("http://h/", "a")
    found = [servers.source(tool, owner) for owner in (None, "a", "a", "b")]
    assert found[1] is found[2]
    assert len({id(each) for each in found}) == 3


def test_there_is_one_tls_context() -> None:
    assert http._tls() is http._tls()  # pyright: ignore[reportPrivateUsage]


def named(url: str, n: int) -> list[dict[str, Any]]:
    common = {"type": "mcp", "require_approval": "never"}
    return [{**common, "server_label": f"s{i}", "server_url": f"{url}/{i}"} for i in range(n)]


@asynccontextmanager
async def watched(
    **key: Any,
) -> AsyncGenerator[tuple[Gateway, dict[str, str], RawServer, FakeProvider]]:
    """A gateway, the header of a key, and a server that is not to be connected to."""

    async def reached(peer: Peer) -> None:
        await peer.gone()

    fake = FakeProvider()
    made, texts = keyed_engine(fake, one=key)
    server = made.config.server.model_copy(update={"mcp_servers": ("*",)})
    engine = Engine(
        made.config.model_copy(update={"server": server}), model_files=False, keep_books=True
    )
    engine.use(fake)
    async with RawServer(reached) as raw, running_gateway(engine) as gateway:
        yield gateway, bearer(texts["one"]), raw, fake


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_too_many_servers_are_refused_before_any_is_looked_at(
    path: str, stream: bool
) -> None:
    async with watched() as (gateway, headers, server, _):
        said = (
            {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"input": "Hi"}
        )
        body = {**said, "model": "default", "stream": stream, "tools": named(server.url, 1000)}
        answer = await gateway.client.post(path, json=body, headers=headers)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == "tools"
        assert error["message"].startswith("tools: 1000 given, at most 16 are allowed")
        assert "limits.max_mcp_servers" in error["message"]
        assert server.connections == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("key", "status"),
    [
        ({"budget": {"limit_usd": 0.000001, "period": "day"}}, 429),
        ({"tokens_per_minute": 1}, 429),
        ({"models": ["assistant"]}, 404),
    ],
    ids=["budget", "tokens", "model"],
)
async def test_what_a_key_does_not_allow_opens_no_connection(
    key: dict[str, Any], status: int, stream: bool
) -> None:
    async with watched(**key) as (gateway, headers, server, fake):
        body = {"model": "default", "input": "Hi", "stream": stream, "tools": named(server.url, 2)}
        answer = await gateway.client.post(RESPONSES, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        assert server.connections == 0
        assert fake.requests == []


async def test_an_invalid_request_opens_no_connection() -> None:
    async with watched() as (gateway, headers, server, _):
        body = {"model": "default", "input": "Hi", "temperature": 9, "tools": named(server.url, 2)}
        answer = await gateway.client.post(RESPONSES, json=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "temperature"
        assert server.connections == 0


async def test_a_check_of_admission_is_no_request() -> None:
    calls = FakeReply(text="Done.")
    fake = FakeProvider([calls])
    made, texts = keyed_engine(fake, one={"budget": {"limit_usd": 500.0, "period": "day"}})
    server = made.config.server.model_copy(update={"mcp_servers": ("*",)})
    engine = Engine(
        made.config.model_copy(update={"server": server}), model_files=False, keep_books=True
    )
    engine.use(fake)
    async with running_gateway(engine) as gateway:
        tool = {**named("x", 1)[0], "server_url": shared_server().url}
        body = {"model": "default", "input": "Hi", "tools": [tool]}
        headers = bearer(texts["one"])
        answer = await gateway.client.post(RESPONSES, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        ledger = await engine.ledger()
        assert [row.requests for row in await ledger.usage()] == [1]
        assert (await engine.usage_stats()).total.requests == 1
