"""What counts against a key's requests a minute at `/mcp`, and what does not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from penstock.mcp import TaskClient, TaskError, start_task
from penstock.mcp.tasks import TaskHandle
from penstock.server.doors.mcp.calls import kind_of
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.mcp.serving.test_streams_and_tasks import ERAS, at_gateway
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway, until

era = pytest.mark.parametrize("era", ERAS)
_ACCEPT = {"accept": "application/json, text/event-stream"}
_LEAST = 6_000


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@era
async def test_a_key_at_its_limit_polls_and_cancels(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    engine, texts = keyed_engine(fake, ci={"requests_per_minute": 1})
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with (
        running_gateway(engine) as gateway,
        at_gateway(gateway, era, texts["ci"], TaskClient()) as client,
    ):
        started = await start_task(client, "generate", {"prompt": "x", "model": "default"})
        assert isinstance(started, TaskHandle)
        await until(lambda: bool(fake.requests))
        for _ in range(40):
            assert (await started.state()).status == "working"
        with pytest.raises(MCPError, match="1 requests a minute") as refused:
            await client.call_tool("usage")
        assert refused.value.data["retryAfter"] > 0
        await started.cancel()
        await until(lambda: bool(recorder.requests))
        assert (await started.state()).status == "cancelled"
    assert recorder.requests[0].outcome == "cancelled"


async def test_a_legacy_client_at_its_limit_cancels_a_call() -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    engine, texts = keyed_engine(fake, ci={"requests_per_minute": 1})
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with (
        running_gateway(engine) as gateway,
        at_gateway(gateway, "legacy", texts["ci"]) as client,
    ):
        call = asyncio.create_task(
            client.call_tool("generate", {"prompt": "x", "model": "default"})
        )
        await until(lambda: bool(fake.requests))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: bool(recorder.requests))
    assert recorder.requests[0].outcome == "cancelled"


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "tools/list",
        "resources/list",
        "resources/read",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/update",
        "server/discover",
        "notifications/initialized",
    ],
)
def test_what_looks_lists_or_waits_is_a_message(method: str) -> None:
    assert kind_of(json.dumps(message(method)).encode()) == "messages"


@pytest.mark.parametrize("method", ["notifications/cancelled", "tasks/cancel"])
def test_what_cancels_has_a_limit_of_its_own(method: str) -> None:
    assert kind_of(json.dumps(message(method)).encode()) == "cancels"


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(message("tools/call", name="generate")).encode(),
        json.dumps([message("ping")]).encode(),
        b'{"method": "ping", "method": "tools/call"}',
        b'{"method": "tools\\u002fcall"}',
        b'{"method": "ping", "params": NaN}',
        b'\xef\xbb\xbf{"method": "ping"}',
        b'{"method": ["ping"]}',
        b"[" * 100_000,
        b"",
    ],
)
def test_calls_and_all_that_cannot_be_read_are_requests(body: bytes) -> None:
    assert kind_of(body) is None


async def _post(gateway: Gateway, key: str, *messages: dict[str, Any]) -> list[Any]:
    return [
        await gateway.client.post("/mcp", json=each, headers={**bearer(key), **_ACCEPT})
        for each in messages
    ]


async def test_messages_and_cancels_are_limited_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.keys.policy._LEAST_MESSAGES", 3)
    monkeypatch.setattr("penstock.keys.policy._MESSAGES_A_REQUEST", 1)
    engine, texts = keyed_engine(ci={"requests_per_minute": 2}, other={"requests_per_minute": 2})
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with running_gateway(engine) as gateway:
        pings = await _post(gateway, texts["ci"], *[message("ping")] * 4)
        (cancelled,) = await _post(gateway, texts["ci"], cancel)
        (other,) = await _post(gateway, texts["other"], message("ping"))
        (call,) = await _post(gateway, texts["ci"], message("tools/call", name="usage"))
    assert [each.status_code for each in pings] == [200, 200, 200, 429]
    error = pings[-1].json()["error"]
    assert "'ci' may send 3 MCP messages a minute besides its requests" in error["message"]
    assert error["data"]["reason"] == "rate_limit_exceeded"
    assert cancelled.status_code == 202
    assert (other.status_code, call.status_code) == (200, 200)
    assert call.headers["x-ratelimit-remaining-requests"] == "1"


async def test_a_key_without_a_limit_of_requests_has_none_of_messages() -> None:
    engine, texts = keyed_engine(free={}, ci={"requests_per_minute": 600})
    async with running_gateway(engine) as gateway:
        await _post(gateway, texts["free"], message("ping"))
        await _post(gateway, texts["ci"], message("ping"))
        assert gateway.app.gate is not None
        terms = [gateway.app.gate.keys.find(texts[name].encode()).terms for name in texts]
    windows = [each.messages("messages") for each in terms if each is not None]
    assert windows[0] is None
    assert windows[1] is not None
    assert (windows[1].limit, windows[1].remaining) == (12_000, 11_999)


@era
async def test_tasks_of_callers_without_keys_are_not_listed(era: str) -> None:
    async with (
        running_gateway(keyed_engine()[0]) as gateway,
        at_gateway(gateway, era, None, TaskClient()) as client,
    ):
        started = await start_task(client, "generate", {"prompt": "x"})
        assert isinstance(started, TaskHandle)
        await started.result()
        assert (await started.state()).status == "completed"
        stranger = TaskHandle(client.session, "0" * 32, modern=era != "legacy")
        with pytest.raises(TaskError) as unknown:
            await stranger.state()
        answers = await gateway.client.post(
            "/mcp",
            json=message("tasks/list"),
            headers={**_ACCEPT, "mcp-protocol-version": LATEST_HANDSHAKE_VERSION},
        )
    assert unknown.value.code == -32602
    assert "error" in answers.text
    assert started.id not in answers.text
