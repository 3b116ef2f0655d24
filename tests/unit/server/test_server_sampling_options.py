"""`_provider`, `_timeout` and `_stream` at the sampling endpoints: HTTP, events and WebSocket."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import read_sse, sample, socket_of

SLOW = FakeReply(text="one two", delay_s=60)


@pytest.fixture
async def two() -> AsyncGenerator[Gateway]:
    async with running_gateway(
        engine_with(FakeProvider(name="one"), FakeProvider([SLOW], name="two"))
    ) as gateway:
        yield gateway


async def over_http(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    return (await sample(gateway, "Hi", **fields)).json()


async def over_events(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    response = await sample(gateway, "Hi", stream=True, **fields)
    if response.headers["content-type"] == "application/json":
        return response.json()
    return read_sse(response.text)[-1][1]


async def over_socket(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    async with socket_of(gateway) as socket:
        await socket.ask(1, "Hi", **fields)
        end = await socket.end(1)
    return end.get("result") or end


WAYS = [over_http, over_events, over_socket]


@pytest.mark.parametrize("way", WAYS)
async def test_the_provider_is_forced(two: Gateway, way: Any) -> None:
    answer = await way(two, _provider="one")
    assert answer["_metadata"]["provider"] == "one"
    refused = (await way(two, _provider="three"))["error"]["data"]["problems"]
    assert [each["path"] for each in refused] == ["_provider"]
    assert "there is no provider 'three'" in refused[0]["message"]


@pytest.mark.parametrize("way", WAYS)
async def test_the_limit_is_in_milliseconds(two: Gateway, way: Any) -> None:
    error = (await way(two, _provider="two", _timeout=80))["error"]
    assert error["message"].endswith("no whole answer within the request's own limit of 0.08 s")
    assert error["data"]["status"] == 504


@pytest.mark.parametrize("way", WAYS)
async def test_all_problems_come_at_once(two: Gateway, way: Any) -> None:
    error = (await way(two, _provider=1, _timeout=0, _callback="x", temperature="hot"))["error"]
    paths = ["temperature", "_provider", "_timeout", "_callback"]
    assert [each["path"] for each in error["data"]["problems"]] == paths
    assert "set `stream` to true" in error["message"]


async def test_a_stream_is_asked_for(two: Gateway) -> None:
    events = read_sse((await sample(two, "one two", _stream=True)).text)
    assert [name for name, _ in events] == ["chunk", "chunk", "complete"]
    both = await sample(two, "Hi", _stream=True, stream=False)
    assert both.json()["error"]["data"]["problems"][0]["path"] == "_stream"
    async with socket_of(two) as socket:
        params = {"messages": [{"role": "user", "content": "one two"}], "_stream": True}
        await socket.send(type="createMessage", id="a", params=params)
        await socket.end("a")
        assert [each["type"] for each in socket.received["a"]] == ["chunk", "chunk", "complete"]
        await socket.send(type="createMessage", id="b", params=params, stream=False)
        told = await socket.end("b")
    assert told["error"]["data"]["problems"][0]["path"] == "_stream"
