"""Ids of requests: every answer has one, and by it any running request can be stopped."""

import asyncio

import httpx
import pytest

from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until
from tests.unit.server.sampling_support import CREATE, params, socket_of

SLOW = FakeReply(text="word " * 60, delay_s=0.2)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("HEAD", "/health"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/default"),
        ("GET", "/v1/models/nobody"),
        ("GET", "/nowhere"),
        ("PUT", "/v1/models"),
        ("GET", "/v1/sampling/ws"),
        ("DELETE", "/v1/requests/x"),
        ("POST", "/v1/embeddings"),
        ("POST", CHAT),
        ("POST", CREATE),
    ],
)
async def test_every_answer_has_an_id_of_its_own(gateway: Gateway, method: str, path: str) -> None:
    first, second = [await gateway.client.request(method, path) for _ in range(2)]
    assert first.headers["x-request-id"].startswith("req_")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert len(first.headers.get_list("x-request-id")) == 1


async def test_what_the_guard_refuses_has_one_too(gateway: Gateway) -> None:
    response = await gateway.client.get("/health", headers={"origin": "https://evil.example"})
    assert response.status_code == 403
    assert response.headers["x-request-id"].startswith("req_")


async def test_a_running_request_is_stopped_by_the_id_it_was_given() -> None:
    fake = FakeProvider([SLOW])
    async with running_gateway(engine_with(fake)) as gateway:
        headers = {"x-request-id": "long/one"}
        answer = asyncio.create_task(gateway.client.post(CREATE, json=params(), headers=headers))
        await until(lambda: fake.requests)
        stopped = await gateway.client.delete("/v1/requests/long%2Fone")
        response = await answer
        again = await gateway.client.delete("/v1/requests/long%2Fone")
    assert (stopped.status_code, stopped.content) == (204, b"")
    assert "content-length" not in stopped.headers
    assert stopped.headers["x-request-id"] != "long/one"
    assert (response.status_code, response.json()["error"]["code"]) == (499, -32800)
    assert response.headers["x-request-id"] == "long/one"
    assert again.status_code == 404
    assert again.json()["error"]["code"] == "request_not_found"


async def test_a_stream_of_another_door_is_stopped() -> None:
    async with (
        running_gateway(engine_with(FakeProvider([SLOW]))) as gateway,
        gateway.client.stream("POST", CHAT, json=chat_body(stream=True)) as response,
    ):
        request_id = response.headers["x-request-id"]
        assert (await gateway.client.delete(f"/v1/requests/{request_id}")).status_code == 204
        lines = [line async for line in response.aiter_lines() if line]
    assert "request_cancelled" in lines[-1]


async def test_a_request_of_a_socket_is_stopped() -> None:
    fake = FakeProvider([SLOW])
    async with running_gateway(engine_with(fake)) as gateway, socket_of(gateway) as socket:
        await socket.send(type="createMessage", id=1, params=params(), requestId="by-hand")
        await until(lambda: fake.requests)
        assert (await gateway.client.delete("/v1/requests/by-hand")).status_code == 204
        assert await socket.end(1) == {"type": "cancelled", "id": 1, "requestId": "by-hand"}


async def test_an_id_that_is_taken_leaves_its_owner_alone() -> None:
    fake = FakeProvider([FakeReply(text="one two", delay_s=0.2)])
    async with running_gateway(engine_with(fake)) as gateway:

        async def post() -> httpx.Response:
            return await gateway.client.post(
                CREATE, json=params(), headers={"x-request-id": "same"}
            )

        first = asyncio.create_task(post())
        await until(lambda: fake.requests)
        second = await post()
        assert (await first).json()["content"]["text"] == "one two"
    assert second.status_code == 400
    (problem,) = second.json()["error"]["data"]["problems"]
    assert problem["path"] == "x-request-id"


@pytest.mark.parametrize("path", ["/v1/requests/", "/v1/requests/req_nothing", "/v1/requests/%00"])
async def test_nothing_runs_under_this_id(gateway: Gateway, path: str) -> None:
    assert (await gateway.client.delete(path)).status_code == 404
