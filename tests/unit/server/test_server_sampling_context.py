"""`includeContext` at the sampling endpoints, from MCP servers of the configuration."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.testing import FakeProvider
from tests.support.keyed import bearer
from tests.support.mcp import asking
from tests.support.mcp.processes import HttpServer, http_server
from tests.support.services import free_port
from tests.unit.server.gateway_support import running_gateway
from tests.unit.server.sampling_support import CREATE, params, read_sse, socket_of

CI, OTHER = new_text(), new_text()


@pytest.fixture(scope="module")
def notes() -> Iterator[HttpServer]:
    with http_server(
        lambda port: [sys.executable, str(Path(asking.__file__)), str(port)]
    ) as server:
        yield server


def engine_of(
    servers: dict[str, Any], fake: FakeProvider, *, keys: bool = False, **more: Any
) -> Engine:
    config: dict[str, Any] = {
        "providers": {"fake": {}},
        "models": {"default": {"targets": ["fake/echo"]}},
        "sampling": {"context": {"servers": servers, **more}},
    }
    if keys:
        config["keys"] = {"ci": {"hash": hash_of(CI)}, "other": {"hash": hash_of(OTHER)}}
    engine = Engine(Config.model_validate(config))
    engine.use(fake)
    return engine


async def test_resources_are_attached_at_every_endpoint(notes: HttpServer) -> None:
    fake = FakeProvider()
    body = params("Hi", includeContext="allServers")
    async with running_gateway(engine_of({"notes": {"url": notes.url}}, fake)) as gateway:
        whole = await gateway.client.post(CREATE, json=body)
        streamed = await gateway.client.post(CREATE, json={**body, "stream": True})
        async with socket_of(gateway) as socket:
            await socket.ask(1, "Hi", includeContext="allServers")
            end = await socket.end(1)
    assert whole.status_code == 200, whole.text
    assert read_sse(streamed.text)[-1][0] == end["type"] == "complete"
    assert len(fake.requests) == 3
    for request in fake.requests:
        first, question = request.messages
        assert '<resource server="notes" uri="note://tides">' in first.text
        assert "The moon pulls." in first.text
        assert question.text == "Hi"


async def test_limits_are_those_of_the_configuration(notes: HttpServer) -> None:
    fake = FakeProvider()
    servers = {"one": {"url": notes.url}, "two": {"url": notes.url}}
    engine = engine_of(servers, fake, max_resources=1, max_characters=10)
    async with running_gateway(engine) as gateway:
        await gateway.client.post(CREATE, json=params("Hi", includeContext="allServers"))
    text = fake.requests[0].messages[0].text
    assert text.count("<resource ") == 2
    assert text.count("Tides</resource>".replace("<", "\n<")) == 2


async def test_this_server_is_that_of_the_callers_key(notes: HttpServer) -> None:
    fake = FakeProvider()
    servers = {"own": {"url": notes.url, "keys": ["ci"]}, "open": {"url": notes.url}}
    found: list[Any] = []
    async with running_gateway(engine_of(servers, fake, keys=True), key_required=True) as gateway:
        for key, scope in (
            (CI, "thisServer"),
            (CI, "allServers"),
            (OTHER, "allServers"),
            (OTHER, "thisServer"),
        ):
            response = await gateway.client.post(
                CREATE, json=params("Hi", includeContext=scope), headers=bearer(key)
            )
            found.append(response)
    names = [
        [name for name in ("own", "open") if f'server="{name}"' in request.messages[0].text]
        for request in fake.requests
    ]
    assert names == [["own"], ["own", "open"], ["open"]]
    assert found[-1].status_code == 400
    (problem,) = found[-1].json()["error"]["data"]["problems"]
    assert problem["path"] == "includeContext"
    assert "belongs to this caller's key" in problem["message"]


async def test_without_servers_it_is_refused_by_name() -> None:
    fake = FakeProvider()
    async with running_gateway(engine_of({}, fake)) as gateway:
        response = await gateway.client.post(CREATE, json=params(includeContext="allServers"))
        async with socket_of(gateway) as socket:
            await socket.ask(1, includeContext="thisServer")
            end = await socket.end(1)
    for error in (response.json()["error"], end["error"]):
        assert error["code"] == -32602
        assert error["data"]["problems"][0]["path"] == "includeContext"
    assert fake.requests == []


async def test_a_server_that_is_not_there_is_an_error() -> None:
    fake = FakeProvider()
    servers = {"gone": {"url": f"http://127.0.0.1:{free_port()}/mcp"}}
    async with running_gateway(engine_of(servers, fake)) as gateway:
        response = await gateway.client.post(CREATE, json=params(includeContext="allServers"))
    error = response.json()["error"]
    assert error["data"]["reason"] == "prompt_context_failed"
    assert error["message"] == "the resources of the context server 'gone' cannot be read"
    assert fake.requests == []


@pytest.mark.parametrize("name", ["two words", "*", ""])
def test_names_of_servers_are_plain(name: str) -> None:
    with pytest.raises(ValueError, match="server"):
        engine_of({name: {"url": "http://x"}}, FakeProvider())


def test_headers_are_not_shown() -> None:
    servers = {"notes": {"url": "https://x", "http_headers": {"authorization": "secret-1"}}}
    config = engine_of(servers, FakeProvider()).config
    assert "secret-1" not in f"{config!r} {config.model_dump()} {config.model_dump_json()}"
