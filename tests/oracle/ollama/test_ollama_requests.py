"""The same intent, written by us and by the official client, is the same request.

Differences that are left, and why:

- The client leaves out empty fields of a message, and sends `tools: []` when there are none. Go
  reads a missing field as an empty one, so both say the same; the comparison drops them.
- The client sends `accept: application/json` always; we name the type of a stream when we ask for
  one. The server looks at `stream` only.
- The client knows few keywords of JSON Schema in tools and drops the others; we send them
  (`test_a_tools_schema_is_sent_whole`), for newer servers show them to the model.
- References in a tool's schema are written out by us: the server would drop them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import ToolDefinition, user
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.ollama import address
from penstock.providers.registry import ProviderSettings, build
from tests.oracle.ollama.intents import HELLO, INTENTS, Intent
from tests.oracle.ollama.official import official
from tests.support.raw import Peer, RawRequest, RawServer, whole

WHOLE = b'{"model":"m","message":{"role":"assistant","content":"Hi"},"done":true}'
NDJSON = "content-type: application/x-ndjson\r\n"


async def answer(peer: Peer) -> None:
    while request := await peer.request():
        path = request.line.split()[1]
        if path == "/api/chat":
            streamed = msgspec.json.decode(request.body)["stream"]
            await peer.send(whole(WHOLE + b"\n", headers=NDJSON if streamed else ""))
        elif path == "/api/embed":
            texts = msgspec.json.decode(request.body)["input"]
            await peer.send(whole(msgspec.json.encode({"embeddings": [[1.0]] * len(texts)})))
        elif path == "/api/embeddings":
            await peer.send(whole(b'{"embedding": [1.0]}'))
        else:
            await peer.send(whole(b'{"models": []}'))


async def ours(server: RawServer, intent: Intent, *, stream: bool) -> RawRequest:
    async with HttpTransport() as transport:
        settings = ProviderSettings(
            "o", "ollama", url=server.url, auth_token=Secret("k1"), options=intent.settings
        )
        provider = build(settings, transport)
        fields: dict[str, Any] = {"messages": (user("Hello"),), "max_tokens": 64, **intent.ours}
        request = SamplingRequest(**fields)
        if stream:
            async for _ in provider.stream(intent.model, request):
                pass
        else:
            await provider.generate(intent.model, request)
    return server.requests[-1]


async def theirs(server: RawServer, intent: Intent, *, stream: bool) -> RawRequest:
    async with official(server.url, headers={"authorization": "Bearer k1"}) as client:
        arguments: dict[str, Any] = {
            "model": intent.model,
            "messages": [HELLO],
            "options": {"num_predict": 64, **intent.options},
            **intent.theirs,
        }
        if stream:
            async for _ in await client.chat(**arguments, stream=True):
                pass
        else:
            await client.chat(**arguments)
    return server.requests[-1]


def meaning(request: RawRequest) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(request.body)
    body["messages"] = [
        {key: value for key, value in message.items() if value} for message in body["messages"]
    ]
    if not body.get("tools", True):
        del body["tools"]
    return body


def head(request: RawRequest) -> tuple[str, str, str]:
    return request.line, request.headers["content-type"], request.headers["authorization"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.name)
async def test_the_same_intent_is_the_same_request(intent: Intent, stream: bool) -> None:
    async with RawServer(answer) as server:
        mine = await ours(server, intent, stream=stream)
        oracle = await theirs(server, intent, stream=stream)
    assert head(mine) == head(oracle)
    assert meaning(mine) == meaning(oracle)


def test_there_are_enough_intents() -> None:
    assert len({intent.name for intent in INTENTS}) == len(INTENTS) >= 40


async def test_a_tools_schema_is_sent_whole() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    tool = ToolDefinition("f", "F.", schema | {"additionalProperties": False})
    wire = {"name": "f", "description": "F.", "parameters": tool.input_schema}
    intent = Intent(
        "schema",
        {"tools": (tool,)},
        {"tools": [{"type": "function", "function": wire}]},
    )
    async with RawServer(answer) as server:
        mine = meaning(await ours(server, intent, stream=False))
        oracle = meaning(await theirs(server, intent, stream=False))
    assert mine["tools"][0]["function"]["parameters"] == tool.input_schema
    assert oracle["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
    }


@pytest.mark.parametrize("dimensions", [None, 256])
@pytest.mark.parametrize("texts", [("one",), ("one", "two", "")])
async def test_embeddings(texts: tuple[str, ...], dimensions: int | None) -> None:
    async with RawServer(answer) as server, HttpTransport() as transport:
        provider = build(ProviderSettings("o", "ollama", url=server.url), transport)
        await provider.embed("m", EmbeddingRequest(texts=texts, dimensions=dimensions))
        async with official(server.url) as client:
            await client.embed(model="m", input=list(texts), dimensions=dimensions)
        mine, oracle = server.requests
    assert mine.line == oracle.line
    assert msgspec.json.decode(mine.body) == msgspec.json.decode(oracle.body)


async def test_the_list_of_models() -> None:
    async with RawServer(answer) as server, HttpTransport() as transport:
        await build(ProviderSettings("o", "ollama", url=server.url), transport).models()
        async with official(server.url) as client:
            await client.list()
        mine, oracle = server.requests
    assert (mine.line, mine.body) == (oracle.line, oracle.body)


@pytest.mark.parametrize(
    "host",
    [
        "1.2.3.4",
        ":56789",
        "1.2.3.4:56789",
        "http://1.2.3.4",
        "https://1.2.3.4",
        "https://1.2.3.4:56789",
        "example.com",
        "example.com:56789",
        "http://example.com",
        "https://example.com:56789",
        "example.com/",
        "example.com/path",
        "example.com:56789/path/",
        "https://example.com:56789/path",
        "[0001:002:003:0004::1]",
        "[0001:002:003:0004::1]:56789",
        "https://[0001:002:003:0004::1]",
        "[0001:002:003:0004::1]:56789/path/",
    ],
)
async def test_addresses(host: str) -> None:
    """The same but for what only the `ollama` command knows: 0.0.0.0, bare IPv6, ollama.com."""
    async with official(host) as client:
        oracle = str(client._client.base_url).rstrip("/")
    mine = address.parse(host).removesuffix(":443" if host.startswith("https") else ":80")
    assert mine == oracle
