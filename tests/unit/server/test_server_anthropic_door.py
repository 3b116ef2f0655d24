"""The Anthropic door over HTTP: headers, limits, and failures in its own shape."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from penstock.config.server import LimitsConfig
from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.errors import RateLimited
from penstock.contract.exchange import SamplingRequest
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.scenario import Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.anthropic_support import COUNT, MESSAGES, body, read_events
from tests.unit.server.gateway_support import Gateway, running_gateway, until

LIMIT = 10_000
GONE_S = 20.0
"""How soon an upstream call must end after its client has gone."""


@pytest.fixture
async def small() -> AsyncGenerator[Gateway]:
    """A gateway that reads no more than LIMIT bytes."""
    config = Config(
        providers={"fake": ProviderConfig()},
        models={"default": ModelConfig(targets=("fake/echo",))},
        limits=LimitsConfig(max_request_bytes=LIMIT),
    )
    async with running_gateway(Engine(config)) as gateway:
        yield gateway


def told(response: httpx.Response) -> tuple[int, str, str]:
    """The status, type and message of a failure, which names its request in three places."""
    document = response.json()
    assert set(document) == {"type", "error", "request_id"}
    assert document["type"] == "error"
    assert document["request_id"] == response.headers["request-id"]
    assert document["request_id"] == response.headers["x-request-id"]
    assert document["request_id"].startswith("req_")
    return response.status_code, document["error"]["type"], document["error"]["message"]


async def test_the_facts_about_an_answer(gateway: Gateway) -> None:
    response = await gateway.client.post(
        MESSAGES, json=body("Hi"), headers={"x-api-key": "any", "anthropic-version": "2023-06-01"}
    )
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert response.headers["x-penstock-provider"] == "fake"
    assert response.headers["x-penstock-model"] == "echo"
    assert response.headers["x-penstock-attempts"] == "1"


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", None])
async def test_any_version_will_do(gateway: Gateway, version: str | None) -> None:
    headers = {"anthropic-version": version} if version else {}
    response = await gateway.client.post(
        MESSAGES, json=body("Hi", temperature=0.5), headers=headers
    )
    assert response.status_code == 200


async def test_the_facts_about_a_stream(gateway: Gateway) -> None:
    response = await gateway.client.post(MESSAGES, json=body("one two", stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    events = read_events(response.text)
    assert events[0]["message"]["id"] == "msg_" + response.headers["request-id"][4:]
    assert [event["type"] for event in events][-2:] == ["message_delta", "message_stop"]


async def test_the_facts_about_a_count(gateway: Gateway) -> None:
    prompt = {"messages": [{"role": "user", "content": "one two three"}]}
    response = await gateway.client.post(COUNT, json=prompt)
    assert response.json() == {"input_tokens": 3}
    assert response.headers["x-penstock-provider"] == "fake"
    assert response.headers["x-penstock-estimated"] == "false"
    refused = await gateway.client.post(COUNT, json={**prompt, "top_k": 5})
    assert told(refused) == (
        400,
        "invalid_request_error",
        "`top_k` cannot be honoured here; leave it out",
    )


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", MESSAGES, (405, "invalid_request_error", "/v1/messages takes POST, not GET")),
        (
            "DELETE",
            COUNT,
            (405, "invalid_request_error", "/v1/messages/count_tokens takes POST, not DELETE"),
        ),
        (
            "POST",
            f"{MESSAGES}/batches",
            (404, "not_found_error", "there is nothing at /v1/messages/batches"),
        ),
        (
            "GET",
            f"{COUNT}/x",
            (
                404,
                "not_found_error",
                "there is nothing at /v1/messages/count_tokens/x; "
                "did you mean /v1/messages/count_tokens?",
            ),
        ),
    ],
)
async def test_a_path_of_this_door_that_leads_nowhere(
    gateway: Gateway, method: str, path: str, expected: tuple[int, str, str]
) -> None:
    response = await gateway.client.request(method, path)
    assert told(response) == expected
    if response.status_code == 405:
        assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/v1/messagesx", "/v1/other", "/v1/chat/completions/x"])
async def test_other_paths_are_not_of_this_door(gateway: Gateway, path: str) -> None:
    response = await gateway.client.post(path, json={})
    assert set(response.json()) == {"error"}


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_a_body_that_is_too_large(small: Gateway, path: str) -> None:
    response = await small.client.post(path, json=body("x" * LIMIT))
    status, kind, message = told(response)
    assert (status, kind) == (413, "request_too_large")
    assert "limits.max_request_bytes" in message


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"messages": 1}', b"\xff\xfe", b"[" * 5000])
async def test_a_body_that_is_none(gateway: Gateway, path: str, data: bytes) -> None:
    response = await gateway.client.post(path, content=data)
    assert told(response)[:2] == (400, "invalid_request_error")


async def test_a_page_of_another_site(gateway: Gateway) -> None:
    for path in (MESSAGES, f"{MESSAGES}/x"):
        response = await gateway.client.post(
            path, json=body(), headers={"origin": "https://evil.example"}
        )
        assert told(response)[:2] == (403, "permission_error")


async def test_how_long_to_wait() -> None:
    engine = engine_with(FakeProvider([RateLimited("later", retry_after=2.5)]))
    async with running_gateway(engine) as gateway:
        response = await gateway.client.post(MESSAGES, json=body())
    assert told(response) == (429, "rate_limit_error", "later")
    assert response.headers["retry-after"] == "3"
    assert response.headers["x-should-retry"] == "true"


CALL: Any = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "b"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("messages", "fields", "message"),
    [
        (
            [
                "Hi",
                {"role": "assistant", "content": [CALL]},
                {"role": "user", "content": [{"type": "text", "text": "x"}, RESULT]},
            ],
            {},
            "messages[2]: the call 'a' before it has no tool result here; "
            "messages[2]: the tool result 'b' answers no call before it",
        ),
        (["Hi", " "], {}, "messages[1].content: is blank; say something"),
        (
            ["Hi"],
            {"tool_choice": {"type": "tool", "name": "f"}},
            "tool_choice: 'f' is not one of the tools",
        ),
    ],
)
async def test_problems_have_the_callers_names(
    gateway: Gateway, messages: list[Any], fields: dict[str, Any], message: str, stream: bool
) -> None:
    response = await gateway.client.post(MESSAGES, json=body(*messages, stream=stream, **fields))
    assert told(response) == (400, "invalid_request_error", message)


async def test_an_option_that_the_model_does_not_take() -> None:
    provider = ProviderConfig(kind="ollama", url="http://127.0.0.1:9")
    config = Config(providers={"ollama": provider})
    async with running_gateway(Engine(config)) as gateway:
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        response = await gateway.client.post(
            MESSAGES,
            json=body(model="ollama/m", tools=tools, tool_choice=choice),
            headers={"x-penstock-adapt": "refuse"},
        )
    status, kind, message = told(response)
    assert (status, kind) == (400, "invalid_request_error")
    assert message.startswith("tool_choice.disable_parallel_tool_use: ")
    assert "ollama/m" in message


async def test_an_accident_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Exploding(FakeProvider):
        async def stream(self, model: str, request: SamplingRequest):
            async for batch in super().stream(model, request):
                yield batch
                raise RuntimeError("hunter2")

    async with running_gateway(engine_with(Exploding())) as gateway:
        whole = await gateway.client.post(MESSAGES, json=body("one two"))
        streamed = await gateway.client.post(MESSAGES, json=body("one two", stream=True))
    assert told(whole) == (500, "api_error", "internal error; see the gateway's log")
    last = read_events(streamed.text)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert "hunter2" not in whole.text + streamed.text
    assert any(record.exc_info for record in caplog.records)


async def test_a_cancelled_stream_says_so() -> None:
    engine = engine_with(FakeProvider([FakeReply(text="word " * 50, delay_s=0.05)]))
    async with (
        running_gateway(engine) as gateway,
        gateway.client.stream("POST", MESSAGES, json=body(stream=True)) as response,
    ):
        lines = response.aiter_lines()
        await anext(lines)
        assert await engine.cancel_request(response.headers["request-id"])
        rest = [line async for line in lines if line.startswith("data: ")]
    assert json.loads(rest[-1].removeprefix("data: "))["type"] == "error"


async def test_a_shutdown_is_told() -> None:
    slow = FakeReply(text="word " * 1000, delay_s=0.05)
    endless = FakeProvider([slow, slow])
    async with running_gateway(engine_with(endless)) as gateway:
        asked = gateway.client.post(MESSAGES, json=body(max_tokens=2000))
        whole = asyncio.create_task(asked)
        streamed = body(stream=True, max_tokens=2000)
        async with gateway.client.stream("POST", MESSAGES, json=streamed) as response:
            lines = response.aiter_lines()
            await anext(lines)
            await until(lambda: len(endless.requests) == 2)
            gateway.server.stop()
            gateway.server.stop()
            *_, last = [line async for line in lines if line.startswith("data: ")]
        answer = await asyncio.wait_for(whole, 30)
    assert answer.status_code == 503
    for failure in (answer.json(), json.loads(last.removeprefix("data: "))):
        assert failure["error"] == {
            "type": "overloaded_error",
            "message": "the gateway is shutting down",
        }
        assert failure["request_id"].startswith("req_")


@pytest.mark.parametrize(("stream", "after"), [(True, 1), (True, 0), (False, 0)])
async def test_a_client_that_goes_stops_the_upstream_call(stream: bool, after: int) -> None:
    pause = Pause(after=after)
    async with WireServer(Anthropic()) as upstream:
        provider = ProviderConfig.model_validate(
            {"kind": "anthropic", "url": upstream.url, "auth_token": "k"}
        )
        upstream.play(Scenario(text=("Hello", " you"), pause=pause))
        async with running_gateway(Engine(Config(providers={"up": provider}))) as gateway:
            _, writer = await asyncio.open_connection(gateway.host, gateway.port)
            data = json.dumps(body(stream=stream, model="up/m")).encode()
            head = f"POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            await asyncio.wait_for(pause.reached.wait(), 30)
            assert gateway.server.running_requests == 1
            writer.close()
            async with asyncio.timeout(GONE_S):
                await upstream.gone()
                await until(lambda: gateway.server.running_requests == 0)
