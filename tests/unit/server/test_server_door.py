"""The gateway over HTTP: routes, bodies, limits, and failures in the door's own shape."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from penstock._version import __version__
from penstock.config.server import LimitsConfig
from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.errors import (
    ContextLengthExceeded,
    ModelNotFound,
    PenstockError,
    RateLimited,
)
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import ToolUse
from penstock.engine.engine import Engine
from penstock.server.answer_headers import header_value
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until

LIMIT = 100_000


@pytest.fixture
async def small() -> AsyncGenerator[Gateway]:
    """A gateway that reads no more than LIMIT bytes."""
    engine = Engine(
        Config(
            providers={"fake": ProviderConfig()},
            models={"default": ModelConfig(targets=("fake/echo",))},
            limits=LimitsConfig(max_request_bytes=LIMIT),
        )
    )
    async with running_gateway(engine) as gateway:
        yield gateway


async def test_an_answer_with_the_facts_about_it(gateway: Gateway, fake: FakeProvider) -> None:
    response = await gateway.chat("Say it")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert document["choices"][0]["message"]["content"] == "Say it"
    assert document["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert response.headers["x-request-id"].startswith("req_")
    assert document["id"] == "chatcmpl-" + response.headers["x-request-id"].removeprefix("req_")
    assert response.headers["x-penstock-provider"] == "fake"
    assert response.headers["x-penstock-model"] == "echo"
    assert response.headers["x-penstock-attempts"] == "1"
    assert response.headers["x-penstock-cost-usd"] == "0"
    assert "server" not in response.headers
    assert fake.requests[0].max_tokens == 100


async def test_a_second_target_that_had_to_help() -> None:
    first = FakeProvider([RateLimited("later")], name="first")
    async with running_gateway(engine_with(first, FakeProvider(name="second"))) as gateway:
        response = await gateway.chat()
    assert response.headers["x-penstock-provider"] == "second"
    assert response.headers["x-penstock-attempts"] == "2"


async def test_what_an_answer_may_have_when_nobody_says(
    gateway: Gateway, fake: FakeProvider
) -> None:
    await gateway.client.post(CHAT, json={"messages": [{"role": "user", "content": "Hi"}]})
    assert fake.requests[0].max_tokens == 4096


async def test_health(gateway: Gateway) -> None:
    response = await gateway.client.get("/health")
    assert response.json() == {"status": "ok", "version": __version__}
    head = await gateway.client.head("/health")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(len(response.content))


async def test_models(gateway: Gateway) -> None:
    document = (await gateway.client.get("/v1/models")).json()
    assert document["object"] == "list"
    listed = [(item["id"], item["object"], item["owned_by"]) for item in document["data"]]
    assert listed == [("default", "model", "penstock"), ("fake/echo", "model", "fake")]
    for name, owner in (("default", "penstock"), ("fake/echo", "fake"), ("fake/a/b", "fake")):
        one = (await gateway.client.get(f"/v1/models/{name}")).json()
        assert (one["id"], one["owned_by"]) == (name, owner)
    for unknown in ("nothing", ""):
        missing = await gateway.client.get(f"/v1/models/{unknown}")
        assert missing.status_code == 404
        assert missing.json()["error"]["code"] == "model_not_found"
    assert (await gateway.client.head("/v1/models/default")).status_code == 200


async def test_a_caller_cannot_name_a_file_of_the_machine(tmp_path: Path) -> None:
    engine = Engine(Config.embedded(), model_files=False)
    async with running_gateway(engine) as gateway:
        response = await gateway.client.post(
            CHAT, json=chat_body("hi", model=f"embedded/{tmp_path}/own.gguf")
        )
    assert response.status_code == 404
    assert "not among the configured targets" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["//", "/v1", "/v1/chat/completions/", "//health", "/health/../x"])
async def test_a_path_that_leads_nowhere(gateway: Gateway, path: str) -> None:
    answer = await gateway.raw(
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in answer
    assert b"x-request-id: req_" in answer


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/default", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_path_does_not_take(
    gateway: Gateway, method: str, path: str, allow: str
) -> None:
    response = await gateway.client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{not json", "not JSON"),
        (b'{"model": "\xff"}', "not JSON"),
        (b"", "not JSON"),
        (b'{"messages": ' + b"[" * 200_000, "messages"),
        (b'{"x": ' + b"[" * 200_000, "not JSON"),
        (b'{"model": "default"}', "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": [{"role": "user", "content": "  "}]}', "blank"),
    ],
)
async def test_a_body_that_is_no_request(gateway: Gateway, data: bytes, words: str) -> None:
    response = await gateway.client.post(CHAT, content=data)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert (await gateway.client.get("/health")).status_code == 200


async def test_deep_arguments_of_a_tool_call_are_refused(gateway: Gateway) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": deep}}
    response = await gateway.chat("Hi", {"role": "assistant", "tool_calls": [call]})
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["x"] * 11}, "stop"),
        ({"n": 3}, "n"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_a_wrong_option_names_its_parameter(
    gateway: Gateway, fields: dict[str, Any], param: str
) -> None:
    response = await gateway.chat(**fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_a_wrong_message_is_named_by_the_callers_number(gateway: Gateway) -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for name in "ab"
    ]
    response = await gateway.chat(
        "Hi",
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": ""},
    )
    error = response.json()["error"]
    assert error["param"] == "messages[4].content"
    assert "messages[4].content" in error["message"]


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (RateLimited("slow down", retry_after=7), 429, "rate_limit_exceeded"),
        (ContextLengthExceeded("too long"), 400, "context_length_exceeded"),
        (ModelNotFound("gone"), 404, "model_not_found"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_event_has_its_status(
    failure: PenstockError, status: int, code: str, stream: bool
) -> None:
    async with running_gateway(engine_with(FakeProvider([failure]))) as gateway:
        response = await gateway.chat(stream=stream)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.headers["x-request-id"] == failure.request_id
    if status == 429:
        assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_accident_is_logged_and_not_told(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(_: SamplingRequest) -> str:
        raise RuntimeError("secret=hunter2")

    async with running_gateway(engine_with(FakeProvider([explode]))) as gateway:
        with caplog.at_level(logging.ERROR, "penstock.server"):
            response = await gateway.chat(stream=stream)
        assert response.status_code == 500
        assert "hunter2" not in response.text
        assert "Traceback" not in response.text
        (record,) = [entry for entry in caplog.records if entry.name == "penstock.server"]
        assert response.headers["x-request-id"] in record.getMessage()
        assert record.exc_info is not None
        assert (await gateway.chat()).status_code == 200


async def test_tools_go_there_and_back(gateway: Gateway, fake: FakeProvider) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
    response = await gateway.chat(tools=[tool], tool_choice="required")
    message = response.json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "noon"}
    second = await gateway.chat("Hello", message, answer, tools=[tool])
    assert second.json()["choices"][0]["message"]["content"] == "noon"
    assert fake.requests[1].messages[1].content == (ToolUse("call_1", "now", {}),)


async def test_structured_output(gateway: Gateway) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    response = await gateway.chat(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    )
    assert json.loads(response.json()["choices"][0]["message"]["content"]) == {"a": 0}


async def test_a_body_within_the_limit_is_read_in_pieces(small: Gateway) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        data = json.dumps(chat_body("x" * (LIMIT - 200))).encode()
        for start in range(0, len(data), 10_000):
            yield data[start : start + 10_000]
            await asyncio.sleep(0)

    response = await small.client.post(CHAT, content=pieces())
    assert response.status_code == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_beyond_the_limit_is_refused(small: Gateway, announced: bool) -> None:
    data = json.dumps(chat_body("x" * (2 * LIMIT))).encode()

    async def pieces() -> AsyncGenerator[bytes]:
        yield data

    response = await small.client.post(CHAT, content=data if announced else pieces())
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    assert str(LIMIT) in response.json()["error"]["message"]
    assert (await small.client.get("/health")).status_code == 200


async def test_a_body_that_is_announced_as_huge_is_refused_unread(small: Gateway) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {10**12}\r\n\r\n"
    answer = await asyncio.wait_for(small.raw(head.encode()), 30)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_endless_body_is_refused_while_it_comes(small: Gateway) -> None:
    reader, writer = await asyncio.open_connection(small.host, small.port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x.localhost\r\n".encode())
    writer.write(b"transfer-encoding: chunked\r\n\r\n")
    sent = 0
    told = asyncio.create_task(reader.readline())
    while sent < 100 * LIMIT and not told.done():
        writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        await writer.drain()
        sent += 0x1000
        await asyncio.sleep(0)
    assert sent < 100 * LIMIT
    assert (await told).startswith(b"HTTP/1.1 413 ")
    writer.close()
    assert (await small.client.get("/health")).status_code == 200


async def test_a_client_that_leaves_in_the_middle_of_its_request(small: Gateway) -> None:
    _, writer = await asyncio.open_connection(small.host, small.port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\nx".encode())
    await writer.drain()
    await until(lambda: small.server.running_requests == 1)
    writer.close()
    await writer.wait_closed()
    await until(lambda: small.server.running_requests == 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.test"},
        {"host": "evil.test:8400"},
        {"host": "127.0.0.1.evil.test"},
        {"host": "10.0.0.1"},
        {"host": "[fe80::1]"},
        {"host": "["},
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.test"},
    ],
)
async def test_web_pages_are_kept_away(gateway: Gateway, headers: dict[str, str]) -> None:
    response = await gateway.client.post(CHAT, json=chat_body(), headers=headers)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "not_local"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:1"},
        {"host": "127.8.8.8:8400"},
        {"host": "[::1]:8400"},
        {"host": "penstock.localhost"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1"},
    ],
)
async def test_this_machine_is_let_in(gateway: Gateway, headers: dict[str, str]) -> None:
    for _ in range(2):
        response = await gateway.client.post(CHAT, json=chat_body(), headers=headers)
        assert response.status_code == 200


async def test_the_other_loopback() -> None:
    async with running_gateway(engine_with(FakeProvider()), host="::1") as gateway:
        assert (await gateway.chat("Hi")).status_code == 200


async def test_a_model_with_a_name_that_no_header_may_hold() -> None:
    assert header_value("llama 3/8b:latest") == b"llama 3/8b:latest"
    assert header_value("a\r\nset-cookie: b") == b"a%0D%0Aset-cookie: b"
    assert header_value("modèle") == b"mod%C3%A8le"


async def test_many_at_once(gateway: Gateway, fake: FakeProvider) -> None:
    answers = await asyncio.gather(*(gateway.chat(f"number {index}") for index in range(50)))
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert texts == [f"number {index}" for index in range(50)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 50
    assert len(fake.requests) == 50


async def test_thinking_is_told(fake: FakeProvider) -> None:
    script = FakeProvider([FakeReply(text="42", reasoning="let me see")])
    async with running_gateway(engine_with(script)) as gateway:
        response = await gateway.chat(reasoning_effort="low")
    assert response.json()["choices"][0]["message"]["reasoning_content"] == "let me see"
    assert script.requests[0].reasoning_level == "low"


def asked() -> bytes:
    body = json.dumps(chat_body("Hi")).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_who_asks_on_an_open_connection_as_the_gateway_stops_is_answered(
    gateway: Gateway,
) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(asked())
    first = await reader.readuntil(b"\r\n\r\n")
    assert b"connection: close" not in first
    await reader.readexactly(int(first.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    gateway.server.stop()
    writer.write(asked())
    second = await reader.read()
    writer.close()
    assert second.startswith(b"HTTP/1.1 200"), second
    assert b"\r\nconnection: close\r\n" in second


async def test_who_was_let_in_before_the_gateway_stopped_may_still_ask(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    await until(lambda: gateway.server.server_state.connections)
    gateway.server.stop()
    await until(lambda: not gateway.server.servers[0].is_serving())
    writer.write(asked())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"\r\nconnection: close\r\n" in answer
