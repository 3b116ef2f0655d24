"""Error responses say what is known of the request that failed."""

from typing import Any

import pytest

from penstock.config.settings import PoolConfig
from penstock.contract.errors import ProviderUnavailable, StreamInterrupted
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import CREATE, params, read_sse, sample, socket_of

BROKEN = FakeReply(text="half an", error=StreamInterrupted("it broke off"))
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    CREATE: params(),
    "/v1/chat/completions": {"model": "default", "messages": MESSAGES},
    "/v1/messages": {"model": "default", "messages": MESSAGES, "max_tokens": 9},
    "/v1/responses": {"model": "default", "input": "Hi"},
}


def busy() -> FakeProvider:
    return FakeProvider([ProviderUnavailable("busy", retry_after=0.0)] * 9)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_headers_have_attempts_and_cost(path: str, stream: bool) -> None:
    async with running_gateway(engine_with(busy(), pool=PoolConfig(retries=2))) as gateway:
        response = await gateway.client.post(path, json={**BODIES[path], "stream": stream})
    assert response.status_code == 502
    assert response.headers["x-penstock-attempts"] == "3"
    assert response.headers["x-penstock-cost-usd"] == "0"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sampling_endpoint_has_metadata(stream: bool) -> None:
    async with running_gateway(engine_with(busy(), pool=PoolConfig(retries=2))) as gateway:
        response = await sample(gateway, stream=stream)
    found = response.json()["error"]["data"]["_metadata"]
    assert found.pop("latency_ms") >= 0
    assert found == {
        "provider": "fake",
        "request_id": response.headers["x-request-id"],
        "attempts": 3,
        "cost_usd": 0.0,
    }


async def test_a_refused_request_has_no_attempts(gateway: Gateway) -> None:
    response = await sample(gateway, temperature=9)
    data = response.json()["error"]["data"]
    assert data["_metadata"]["attempts"] == 0
    assert data["_metadata"]["request_id"] == response.headers["x-request-id"]
    assert data["usage"] == {}
    assert "x-penstock-attempts" not in response.headers
    # Without readable params there was no request.
    unread = await sample(gateway, temperature="hot")
    assert "_metadata" not in unread.json()["error"]["data"]


async def test_a_stream_that_breaks_has_its_tokens() -> None:
    async with running_gateway(engine_with(FakeProvider([BROKEN, BROKEN]))) as gateway:
        events = read_sse((await sample(gateway, stream=True)).text)
        async with socket_of(gateway) as socket:
            await socket.ask("a")
            told = await socket.end("a")
    for data in (events[-1][1]["error"]["data"], told["error"]["data"]):
        assert data["_metadata"]["attempts"] == 1
        assert data["_metadata"]["first_token_ms"] >= 0
        assert data["usage"]["completionTokens"] > 0
        assert data["usage"]["estimated"] is True
