"""Keys at every door: the same models, the same limits, the same requests of one's own."""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until
from tests.unit.server.sampling_support import CREATE, params, socket_of

MODEL = "assistant"
BODIES: Mapping[str, dict[str, Any]] = {
    CHAT: chat_body("Hi", model=MODEL),
    "/v1/responses": {"model": MODEL, "input": "Hi", "max_output_tokens": 100},
    "/v1/messages": {
        "model": MODEL,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
    },
    "/v1/messages/count_tokens": {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
    },
    "/v1/embeddings": {"model": MODEL, "input": "Hi"},
    CREATE: params("Hi", modelPreferences={"hints": [{"name": MODEL}]}),
}
NAMED = [path for path in BODIES if path != CREATE]
"""The doors whose callers name a model."""


async def post(gateway: Gateway, path: str, text: str | None, **fields: Any) -> httpx.Response:
    headers = {} if text is None else bearer(text)
    return await gateway.client.post(path, json={**BODIES[path], **fields}, headers=headers)


@pytest.mark.parametrize("path", BODIES)
async def test_nobody_gets_in_without_a_key(path: str) -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        assert (await post(gateway, path, None)).status_code == 401
        assert (await post(gateway, path, "wrong")).status_code == 401
        assert (await post(gateway, path, ADMIN)).status_code == 403
        answer = await post(gateway, path, texts["ci"])
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", NAMED)
async def test_a_model_that_is_not_for_the_key_is_not_there(path: str) -> None:
    engine, texts = keyed_engine(ci={"models": [MODEL]})
    async with running_gateway(engine) as gateway:
        for model in ("secret-project", "fake/hidden", "secret-projec"):
            answer = await post(gateway, path, texts["ci"], model=model)
            assert answer.status_code == 404, answer.text
            assert "secret-project" not in answer.text.replace(model, "")
            assert "hidden" not in answer.text.replace(model, "")
        assert (await post(gateway, path, texts["ci"])).status_code == 200


async def test_hints_lead_to_the_key_s_models_only() -> None:
    fake = FakeProvider()
    engine, texts = keyed_engine(fake, ci={"models": [MODEL]})
    async with running_gateway(engine) as gateway:
        hints = {"hints": [{"name": "hidden"}, {"name": "echo-2"}]}
        answer = await post(gateway, CREATE, texts["ci"], modelPreferences=hints)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-penstock-model"] == "echo-2"


@pytest.mark.parametrize("path", BODIES)
async def test_every_door_counts_for_the_same_limit(path: str) -> None:
    engine, texts = keyed_engine(ci={"requests_per_minute": 2})
    async with running_gateway(engine) as gateway:
        assert (await post(gateway, CHAT, texts["ci"])).status_code == 200
        assert (await post(gateway, path, texts["ci"])).status_code == 200
        refused = await post(gateway, path, texts["ci"])
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_socket_counts_each_request_and_tells_the_key() -> None:
    recorder = Recorder()
    engine, texts = keyed_engine(ci={"requests_per_minute": 2})
    engine.hooks.subscribe(recorder)
    async with (
        running_gateway(engine) as gateway,
        socket_of(gateway, additional_headers=bearer(texts["ci"])) as socket,
    ):
        ends: list[str] = []
        for number in range(3):
            await socket.ask(number, stream=bool(number % 2))
            ends.append((await socket.end(number))["type"])
        assert ends == ["complete", "complete", "error"]
        (refused,) = socket.received[2]
        assert refused["error"]["data"]["status"] == 429
    assert [request.key for request in recorder.requests] == ["ci", "ci"]


async def test_a_key_that_is_revoked_ends_a_socket_s_requests() -> None:
    engine, _ = keyed_engine(first={})
    store = KeyStore(engine.config.storage.path)
    text = new_text()
    store.add(Key(name="late", hashes=(KeyHash(hash_of(text)),)))
    async with (
        running_gateway(engine) as gateway,
        socket_of(gateway, additional_headers=bearer(text)) as socket,
    ):
        await socket.ask("before")
        assert (await socket.end("before"))["type"] == "complete"
        store.revoke("late")
        await gateway.gate.keys.refresh()
        await socket.ask("after")
        refused = await socket.end("after")
        assert refused["error"]["data"]["status"] == 401
        assert "revoked" in refused["error"]["message"]


async def test_a_request_is_stopped_by_its_own_key_only() -> None:
    slow = FakeProvider([FakeReply(text="a b c", delay_s=60)])
    recorder = Recorder()
    engine, texts = keyed_engine(slow, ci={}, other={})
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        running = asyncio.create_task(post(gateway, CHAT, texts["ci"]))
        await until(lambda: recorder.started)
        path = f"/v1/requests/{recorder.started[0].request_id}"

        async def stop(text: str) -> int:
            return (await gateway.client.delete(path, headers=bearer(text))).status_code

        assert await stop(texts["other"]) == 404
        assert await stop(ADMIN) == 403
        assert not running.done()
        assert await stop(texts["ci"]) == 204
        assert (await running).status_code == 499
