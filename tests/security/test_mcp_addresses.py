"""A caller who names an MCP server sends the gateway somewhere: not behind its own walls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.config.load import parse
from penstock.config.settings import Config
from penstock.contract.checks.addresses import is_public, is_public_address
from penstock.contract.errors import ConfigurationError, ToolFailed
from penstock.contract.messages import ToolUse
from penstock.contract.options import MCPTool
from penstock.engine.engine import Engine
from penstock.mcp.connections import MOST_KNOWN, ToolServers
from penstock.mcp.tools import ToolAdapter
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import bearer, keyed_engine
from tests.support.mcp.processes import shared_server
from tests.support.raw import Peer, RawServer
from tests.unit.server.gateway_support import Gateway, running_gateway

pytestmark = pytest.mark.timeout(60)
RESPONSES = "/v1/responses"
ADD = FakeReply(tool_uses=(ToolUse("call_1", "add", {"a": 40, "b": 2}),))

# Every way to write an address that a stranger must not send us to.
WALLED = [
    *("http://127.0.0.1:{port}/mcp", "https://127.0.0.1:{port}/mcp", "http://localhost:{port}/mcp"),
    *("http://127.1:{port}/", "http://2130706433:{port}/", "http://0x7f.1:{port}/"),
    *("http://0177.0.0.1:{port}/", "http://0.0.0.0:{port}/", "http://[::1]:{port}/"),
    *("http://[::ffff:127.0.0.1]:{port}/", "http://[::127.0.0.1]:{port}/", "https://[::]:{port}/"),
    *("https://[64:ff9b::7f00:1]:{port}/", "https://[64:ff9b:1::7f00:1]:{port}/"),
    *("https://[2002:7f00:1::]:{port}/", "https://[fec0::1]:{port}/", "https://[fd00::1]/"),
    *("http://LOCALHOST.:{port}/", "http://a.localhost:{port}/", "https://\u24dbocalhost:{port}/"),
    *("https://\uff1127.0.0.1:{port}/", "https://127\u30020.0.1:{port}/", "https://224.0.0.1/"),
    *("http://10.0.0.1/", "http://192.168.0.1/", "http://172.16.0.1/", "https://100.64.0.1/"),
    *("http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/"),
    *("http://metadata.google.internal/", "https://metadata.google.internal/"),
    *("https://100.100.100.200/", "https://[fd00:ec2::254]/", "https://[fe80::1]/"),
    *("https://intranet/mcp", "https://db.internal/mcp", "https://printer.local/mcp"),
    *("http://example.com/mcp", "https://user@example.com@127.0.0.1:{port}/", "https://"),
    *("https://example.com@127.0.0.1:{port}/", "https://127.0.0.1:{port}\\@example.com/"),
    *("file:///etc/passwd", "gopher://127.0.0.1:{port}/", "ftp://example.com/", "//example.com/"),
    *("unix:///var/run/docker.sock", "https://[::1", "https://127.0.0.1:{port}%00.example.com/"),
]


def tool(url: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "mcp",
        "server_label": "tests",
        "server_url": url,
        "require_approval": "never",
        **fields,
    }


async def ask(gateway: Gateway, key: str | None, *tools: dict[str, Any]) -> httpx.Response:
    body = {"model": "default", "input": "40 and 2?", "tools": list(tools)}
    return await gateway.client.post(
        RESPONSES, json=body, headers=bearer(key) if key is not None else {}
    )


@asynccontextmanager
async def keyed(
    fake: FakeProvider, mcp_servers: tuple[str, ...] | None = None
) -> AsyncGenerator[tuple[Gateway, str]]:
    """A gateway that asks for a key, and this key."""
    made, texts = keyed_engine(one={})
    server = made.config.server.model_copy(update={"mcp_servers": mcp_servers})
    engine = Engine(made.config.model_copy(update={"server": server}), model_files=False)
    engine.use(fake)
    async with running_gateway(engine) as gateway:
        yield gateway, texts["one"]


async def test_strangers_are_not_let_behind_the_wall() -> None:
    async def reached(peer: Peer) -> None:  # pragma: no cover
        await peer.gone()

    fake = FakeProvider()
    async with RawServer(reached) as server, keyed(fake) as (gateway, key):
        port = server.url.rpartition(":")[2]
        for stream in (False, True):
            for url in (each.format(port=port) for each in WALLED):
                body = {"model": "default", "input": "Hi", "stream": stream, "tools": [tool(url)]}
                answer = await gateway.client.post(RESPONSES, json=body, headers=bearer(key))
                assert answer.status_code == 400, url
                assert answer.json()["error"]["param"] == "tools[0].server_url", url
        assert server.connections == 0
    assert fake.requests == []


async def test_every_server_that_is_not_allowed_is_named() -> None:
    async with keyed(FakeProvider()) as (gateway, key):
        first, second = tool("http://10.0.0.1/secret-path?key=secret"), tool("https://a.local/x")
        answer = await ask(gateway, key, first, {**second, "server_label": "other"})
        message = answer.json()["error"]["message"]
        assert "http://10.0.0.1/... is not the https address of a public server" in message
        assert "server.mcp_servers" in message
        assert "https://a.local/..." in message
        assert "secret" not in message


async def test_without_keys_this_machine_is_the_callers_own() -> None:
    fake = FakeProvider([ADD, "It is 42."])
    config = Config.model_validate(
        {"providers": {"fake": {}}, "models": {"default": {"targets": ["fake/echo"]}}}
    )
    engine = Engine(config, model_files=False)
    engine.use(fake)
    async with running_gateway(engine) as gateway:
        answer = await ask(gateway, None, tool(shared_server().url))
        assert answer.status_code == 200
        assert answer.json()["output"][0]["output"] == "42"
        assert (await ask(gateway, None, tool("http://169.254.169.254/"))).status_code == 400


@pytest.mark.parametrize("allowed", ["*", "itself", "public and itself"])
async def test_what_the_configuration_allows(allowed: str) -> None:
    url = shared_server().url
    settings = {"*": ("*",), "itself": (url,), "public and itself": ("public", url)}[allowed]
    async with keyed(FakeProvider([ADD, "It is 42."]), settings) as (gateway, key):
        answer = await ask(gateway, key, tool(f"{url}?session=1" if allowed != "*" else url))
        assert answer.status_code == 200, answer.text
        assert answer.json()["output"][0]["output"] == "42"
        # Nobody is allowed to reach these, whatever the configuration says of others.
        assert (await ask(gateway, key, tool("http://169.254.169.254/"))).status_code == 400


async def test_what_is_only_like_an_allowed_address() -> None:
    allowed = "https://docs.example.com/mcp"
    others = [
        *("http://docs.example.com/mcp", "https://docs.example.com:8443/mcp"),
        *("https://docs.example.com/mcp/", "https://docs.example.com/mcp/../admin"),
        *("https://docs.example.com/MCP", "https://docs.example.com.evil.example/mcp"),
        *("https://evil.example/mcp#https://docs.example.com/mcp", "https://docs.example.com"),
        *("https://docs.example.com@evil.example/mcp", "https://x@docs.example.com/mcp"),
        *("https://evil.example/?https://docs.example.com/mcp", "https://8.8.8.8/mcp"),
    ]
    for settings in ((allowed,), ()):
        async with keyed(FakeProvider(), settings) as (gateway, key):
            for url in others:
                answer = await ask(gateway, key, tool(url))
                assert answer.status_code == 400, url
                assert answer.json()["error"]["param"] == "tools[0].server_url"


LEADS = [
    *("127.0.0.1", "10.1.2.3", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "0.0.0.0"),
    *("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "224.0.0.1", "fe80::1%1"),
]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("address", LEADS)
async def test_a_name_that_leads_behind_the_wall(
    address: str, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it leads to a public address as well, or did so when it was looked at before."""
    dialled: list[Any] = []

    # There is no such name to be had without a name server of one's own.
    async def lead(loop: object, host: str, port: int, **options: object) -> list[object]:
        addresses = ["93.184.216.34", address] if beside else [address]
        return [(2, 1, 6, "", (each, port)) for each in addresses]

    async def dial(loop: object, *args: Any, **options: Any) -> None:  # pragma: no cover
        dialled.append((args, options))
        raise OSError("nobody is to be called")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", lead)
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", dial)
    stranger = MCPTool("https://rebound.example/mcp", "trap", public_only=True)
    with pytest.raises(ToolFailed) as caught:
        await ToolAdapter(stranger).tools()
    assert dialled == []
    if "link-local" not in str(caught.value):
        assert "rebound.example leads to no public address" in str(caught.value)
        assert address not in str(caught.value)


async def test_strangers_reach_a_server_by_https_alone() -> None:
    plain = MCPTool(shared_server().url, "plain", public_only=True)
    with pytest.raises(ToolFailed, match="is not reached by https"):
        await ToolAdapter(plain).tools()


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize("address", [*LEADS, "", "example.com", "1.2.3.4.5"])
def test_what_is_none(address: str) -> None:
    assert not is_public_address(address)
    assert not is_public(f"https://{address}") or address in ("example.com", "1.2.3.4.5")


async def test_servers_without_number_are_not_remembered() -> None:
    servers = ToolServers()
    first = servers.source(MCPTool("https://a.example/0", "s"))
    for number in range(1, MOST_KNOWN + 10):
        servers.source(MCPTool(f"https://a.example/{number}", "s"))
        assert servers.source(MCPTool("https://a.example/0", "s")) is first
    assert len(servers._adapters) == MOST_KNOWN  # pyright: ignore[reportPrivateUsage]
    await servers.aclose()


@pytest.mark.parametrize("entry", ["ftp://x/", "example.com", "https://a b/", "https://u@h/", "?"])
def test_an_entry_that_is_no_address(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="mcp_servers"):
        parse(f'[server]\nmcp_servers = ["{entry}"]\n')


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[::ffff:a9fe:a9fe]", "metadata.google.internal"]
)
async def test_an_image_is_not_fetched_from_where_clouds_keep_their_secrets(host: str) -> None:
    """The gateway fetches none; a provider that stands in its network may."""
    fake, url = FakeProvider(), f"http://{host}/latest/meta-data/"
    part = {"type": "image_url", "image_url": {"url": url}}
    seen = {"type": "image", "source": {"type": "url", "url": url}}
    shown = {"type": "input_image", "image_url": url}
    async with keyed(fake) as (gateway, key):
        for path, content, field in (
            ("/v1/chat/completions", part, "messages"),
            ("/v1/messages", seen, "messages"),
            (RESPONSES, shown, "input"),
        ):
            said = [{"role": "user", "content": [content]}]
            body = {"model": "default", "max_tokens": 9, field: said}
            if path == RESPONSES:
                del body["max_tokens"]
            answer = await gateway.client.post(path, json=body, headers=bearer(key))
            assert answer.status_code == 400, answer.text
            assert "its host is " in answer.text
    assert fake.requests == []
