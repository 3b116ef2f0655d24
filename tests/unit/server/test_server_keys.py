"""A gateway that asks for keys: who gets in, to which models, how often, and for how much."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from penstock.contract.exchange import Usage
from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from penstock.testing import FakeProvider, FakeReply, Recorder, engine_with
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.cli.harness import run_penstock, started_penstock
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway, until

BODY = chat_body("Hi there", model="default", max_tokens=10)


async def ask(gateway: Gateway, text: str | None, **fields: Any) -> httpx.Response:
    headers = {} if text is None else bearer(text)
    return await gateway.client.post(CHAT, json={**BODY, **fields}, headers=headers)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("authorization", "Bearer {}"),
        ("authorization", "bearer {}"),
        ("authorization", "Bearer  {}"),
        ("x-api-key", "{}"),
        ("api-key", "{}"),
    ],
)
async def test_a_key_is_taken_from_the_header_of_any_sdk(name: str, form: str) -> None:
    engine, texts = keyed_engine(ci={})
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        headers = {name: form.format(texts["ci"])}
        answer = await gateway.client.post(CHAT, json=BODY, headers=headers)
        assert answer.status_code == 200, answer.text
    (request,) = recorder.requests
    assert request.key == "ci"


async def test_the_openai_sdk_with_a_key() -> None:
    engine, texts = keyed_engine(ci={"models": ["assistant"], "requests_per_minute": 9})
    async with (
        running_gateway(engine) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=texts["ci"], max_retries=0) as client,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-wrong", max_retries=0) as wrong,
    ):
        messages: Any = [{"role": "user", "content": "Say it"}]
        raw = await client.chat.completions.with_raw_response.create(
            model="assistant", messages=messages, max_completion_tokens=9
        )
        assert raw.parse().choices[0].message.content == "Say it"
        assert raw.headers["x-ratelimit-limit-requests"] == "9"
        assert raw.headers["x-ratelimit-remaining-requests"] == "8"
        stream = await client.chat.completions.create(
            model="assistant", messages=messages, stream=True
        )
        assert [chunk async for chunk in stream]
        assert [model.id async for model in client.models.list()] == ["assistant"]
        with pytest.raises(openai.NotFoundError) as hidden:
            await client.chat.completions.create(model="secret-project", messages=messages)
        assert hidden.value.code == "model_not_found"
        with pytest.raises(openai.AuthenticationError) as refused:
            await wrong.chat.completions.create(model="assistant", messages=messages)
        assert refused.value.code == "invalid_api_key"


@pytest.mark.parametrize("model", ["secret-project", "secret-projekt", "fake/hidden", "other/x"])
@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}, {"stream": True}])
async def test_a_model_of_others_is_told_like_one_that_is_not_there(
    model: str, fields: dict[str, Any]
) -> None:
    engine, texts = keyed_engine(ci={"models": ["assistant"]})
    async with running_gateway(engine) as gateway:
        answer = await ask(gateway, texts["ci"], model=model, **fields)
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["message"] == (
            f"there is no model {model!r} for this key; GET /v1/models lists those that it may use"
        )
        shown = await gateway.client.get(f"/v1/models/{model}", headers=bearer(texts["ci"]))
        assert (shown.status_code, shown.json()["error"]["message"]) == (404, error["message"])


async def test_a_key_for_a_provider_and_one_for_everything() -> None:
    engine, texts = keyed_engine(some={"models": ["fake/*"]}, every={})
    async with running_gateway(engine) as gateway:
        assert (await ask(gateway, texts["some"], model="fake/whatever")).status_code == 200
        assert (await ask(gateway, texts["some"], model="assistant")).status_code == 404
        for model in ("assistant", "secret-project", "fake/whatever"):
            assert (await ask(gateway, texts["every"], model=model)).status_code == 200
        listed = await gateway.client.get("/v1/models", headers=bearer(texts["some"]))
        assert [each["id"] for each in listed.json()["data"]] == [
            "fake/echo",
            "fake/echo-2",
            "fake/hidden",
        ]


async def test_without_a_model_the_default_is_used_if_the_key_may() -> None:
    engine, texts = keyed_engine(ci={"models": ["default"]}, other={"models": ["assistant"]})
    async with running_gateway(engine) as gateway:
        assert (await ask(gateway, texts["ci"], model=None)).status_code == 200
        answer = await ask(gateway, texts["other"], model=None)
        assert answer.status_code == 404
        assert "names no model" in answer.json()["error"]["message"]


async def test_embeddings_ask_the_key_too() -> None:
    engine, texts = keyed_engine(ci={"models": ["fake/words"], "tokens_per_minute": 50})
    async with running_gateway(engine) as gateway:
        headers = bearer(texts["ci"])
        body = {"model": "fake/words", "input": ["red cat"]}
        answer = await gateway.client.post("/v1/embeddings", json=body, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-remaining-tokens"] == "48"
        body = {"model": "fake/other", "input": ["red cat"]}
        answer = await gateway.client.post("/v1/embeddings", json=body, headers=headers)
        assert answer.status_code == 404


async def test_requests_are_limited_and_every_answer_says_so() -> None:
    engine, texts = keyed_engine(ci={"requests_per_minute": 2})
    async with running_gateway(engine) as gateway:
        for left in ("1", "0"):
            answer = await ask(gateway, texts["ci"])
            assert answer.status_code == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-remaining-requests"] == left
            assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
            assert "x-ratelimit-limit-tokens" not in answer.headers
        answer = await ask(gateway, texts["ci"])
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert 0 < int(answer.headers["retry-after"]) <= 61
        assert answer.headers["x-should-retry"] == "true"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        # Looking at the models is free, and tells the limits as well.
        listed = await gateway.client.get("/v1/models", headers=bearer(texts["ci"]))
        assert listed.status_code == 200
        assert listed.headers["x-ratelimit-remaining-requests"] == "0"


async def test_a_limit_holds_for_requests_that_come_together() -> None:
    engine, texts = keyed_engine(ci={"requests_per_minute": 7}, other={"requests_per_minute": 9})
    async with running_gateway(engine) as gateway:
        answers = await asyncio.gather(
            *(ask(gateway, texts["ci"]) for _ in range(30)),
            *(ask(gateway, texts["other"]) for _ in range(30)),
        )
    codes = [answer.status_code for answer in answers]
    assert codes[:30].count(200) == 7
    assert codes[30:].count(200) == 9
    assert codes.count(429) == 44


async def test_tokens_are_taken_before_and_corrected_after() -> None:
    used = FakeReply(text="ok", usage=Usage(input_tokens=20, output_tokens=10))
    engine, texts = keyed_engine(FakeProvider([used] * 9), ci={"tokens_per_minute": 1000})
    async with running_gateway(engine) as gateway:
        answer = await ask(gateway, texts["ci"], max_tokens=860)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
        assert answer.headers["x-ratelimit-remaining-tokens"] == "970"
        answer = await ask(gateway, texts["ci"], max_tokens=860, stream=True)
        assert answer.status_code == 200
        # A stream's head is sent before anybody knows what it takes.
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) < 70
        listed = await gateway.client.get("/v1/models", headers=bearer(texts["ci"]))
        assert listed.headers["x-ratelimit-remaining-tokens"] == "940"


async def test_a_request_that_may_take_too_much_waits_or_shrinks() -> None:
    used = FakeReply(text="ok", usage=Usage(input_tokens=300, output_tokens=300))
    engine, texts = keyed_engine(FakeProvider([used] * 9), ci={"tokens_per_minute": 1000})
    async with running_gateway(engine) as gateway:
        assert (await ask(gateway, texts["ci"], max_tokens=500)).status_code == 200
        answer = await ask(gateway, texts["ci"], max_tokens=500)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 61
        assert answer.headers["x-ratelimit-remaining-tokens"] == "400"
        assert (await ask(gateway, texts["ci"], max_tokens=100)).status_code == 200
        answer = await ask(gateway, texts["ci"], max_tokens=5000)
        assert answer.status_code == 429
        assert "retry-after" not in answer.headers
        assert answer.headers["x-should-retry"] == "false"
        assert "lower max_tokens" in answer.json()["error"]["message"]


async def test_a_request_that_money_refuses_gives_its_tokens_back() -> None:
    engine, texts = keyed_engine(
        ci={"tokens_per_minute": 1000, "budget": {"limit_usd": 0.001, "period": "day"}}
    )
    async with running_gateway(engine) as gateway:
        answer = await ask(gateway, texts["ci"])
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "insufficient_quota"
        assert answer.headers["x-ratelimit-remaining-tokens"] == "1000"


async def test_a_keys_own_budget_and_its_tags_are_in_the_ledger() -> None:
    engine, texts = keyed_engine(
        ci={"tags": {"team": "search"}, "budget": {"limit_usd": 5.0, "period": "day"}}, other={}
    )
    async with running_gateway(engine) as gateway:
        assert (await ask(gateway, texts["ci"])).status_code == 200
        assert (await ask(gateway, texts["other"])).status_code == 200
        (balance,) = await engine.budgets()
        assert balance.budget.name == "key:ci"
        assert balance.budget.key == "ci"
        assert 0 < balance.used_nanos < 5_000_000_000
        ledger = await engine.ledger()
        by_key = {row.name: row for row in await ledger.usage(by="key")}
        assert set(by_key) == {"ci", "other"}
        assert by_key["ci"].amount_nanos == balance.used_nanos
        history = (await ledger.history()).entries
        tags = {(entry.key, (entry.tags or {}).get("team")) for entry in history if entry.key}
        assert tags == {("ci", "search"), ("other", None)}


async def test_health_and_readiness_need_no_key_and_details_do() -> None:
    engine, texts = keyed_engine(every={}, some={"models": ["default"]})
    async with running_gateway(engine) as gateway:
        get = gateway.client.get
        assert (await get("/health", headers=bearer("wrong"))).status_code == 200
        assert (await get("/ready")).json() == {"status": "ready"}
        assert (await get("/ready", headers=bearer("wrong"))).status_code == 401
        assert (await get("/ready", headers=bearer(texts["some"]))).json() == {"status": "ready"}
        assert (await get("/metrics")).status_code == 401
        assert (await get("/metrics", headers=bearer(texts["some"]))).status_code == 403
        for operator in (ADMIN, texts["every"]):
            assert "targets" in (await get("/ready", headers=bearer(operator))).json()
            assert (await get("/metrics", headers=bearer(operator))).status_code == 200


async def test_without_any_key_nobody_is_asked() -> None:
    async with running_gateway(engine_with(FakeProvider())) as gateway:
        assert (await gateway.chat("Hi")).status_code == 200
        assert (await ask(gateway, "whatever")).status_code == 200
        answer = await gateway.client.get("/v1/models", headers={"origin": "http://evil.test"})
        assert answer.status_code == 403


async def test_with_a_key_the_name_in_host_does_not_matter() -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        headers = {**bearer(texts["ci"]), "host": "gateway.example"}
        answer = await gateway.client.get("/v1/models", headers=headers)
        assert answer.status_code == 200


async def test_a_key_that_another_process_makes_and_revokes_takes_effect() -> None:
    engine, texts = keyed_engine(first={})
    store = KeyStore(engine.config.storage.path)
    async with running_gateway(engine) as gateway:
        text = new_text()
        assert (await ask(gateway, text)).status_code == 401
        store.add(Key(name="late", hashes=(KeyHash(hash_of(text)),)))
        async with asyncio.timeout(20):
            while (await ask(gateway, text)).status_code != 200:
                pass
        store.revoke("late")
        async with asyncio.timeout(20):
            while (answer := await ask(gateway, text)).status_code == 200:
                pass
        assert answer.status_code == 401
        assert "was revoked" in answer.json()["error"]["message"]
        assert (await ask(gateway, texts["first"])).status_code == 200


async def test_the_first_key_shuts_the_door_and_revoking_it_does_not_open_it() -> None:
    engine = engine_with(FakeProvider())
    store = KeyStore(engine.config.storage.path)
    async with running_gateway(engine) as gateway:
        assert (await ask(gateway, None)).status_code == 200
        store.add(Key(name="first", hashes=(KeyHash(hash_of(new_text())),)))
        async with asyncio.timeout(20):
            while (await ask(gateway, None)).status_code != 401:
                pass
        store.revoke("first")
        await gateway.gate.keys.refresh()
        assert (await ask(gateway, None)).status_code == 401


async def test_an_expiry_passes_while_the_gateway_runs() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    engine, texts = keyed_engine(ci={"expires": soon})
    async with running_gateway(engine) as gateway:
        async with asyncio.timeout(20):
            while (answer := await ask(gateway, texts["ci"])).status_code == 200:
                pass
        assert answer.status_code == 401
        assert "has expired" in answer.json()["error"]["message"]


async def test_a_key_may_stop_its_own_requests_only() -> None:
    slow = FakeProvider([FakeReply(text="a b c", delay_s=20)])
    engine, texts = keyed_engine(slow, ci={}, other={})
    async with running_gateway(engine) as gateway:
        running = asyncio.create_task(ask(gateway, texts["ci"]))
        await until(lambda: slow.requests)
        listed = await gateway.client.get("/admin/v1/requests", headers=bearer(ADMIN))
        path = f"/v1/requests/{listed.json()['requests'][0]['request_id']}"
        stop = gateway.client.delete
        assert (await stop(path, headers=bearer(texts["other"]))).status_code == 404
        assert (await stop("/v1/requests/req_x", headers=bearer(texts["ci"]))).status_code == 404
        assert not running.done()
        assert (await stop(path, headers=bearer(texts["ci"]))).status_code == 204
        assert (await running).status_code == 499


def test_another_address_is_served_as_soon_as_there_is_a_key(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
    )
    everywhere = ("serve", "--host", "0.0.0.0", "--port", "0")
    refused = run_penstock(*everywhere, cwd=tmp_path)
    assert refused.code == 2
    assert "penstock keys create NAME" in refused.error_line
    text = run_penstock("keys", "create", "ci", cwd=tmp_path).out.strip()
    with started_penstock(*everywhere, cwd=tmp_path) as process:
        assert process.stdout is not None
        screen = ""
        while "Ctrl-C stops" not in screen:
            screen += (line := process.stdout.readline().decode())
            assert line, screen
        assert "a key of yours as api_key" in screen
        found = re.search(r"http://0\.0\.0\.0:(\d+)", screen)
        assert found is not None
        url = f"http://127.0.0.1:{found[1]}{CHAT}"
        assert httpx.post(url, json=BODY, timeout=30).status_code == 401
        assert httpx.post(url, json=BODY, headers=bearer(text), timeout=30).status_code == 200
        assert text not in screen


async def test_a_gateway_for_other_machines_stays_shut_without_any_key() -> None:
    engine = engine_with(FakeProvider())
    async with running_gateway(engine, key_required=True) as gateway:
        assert (await ask(gateway, None)).status_code == 401
        assert (await gateway.client.get("/health")).status_code == 200


async def test_keys_take_turns_at_a_busy_target() -> None:
    reply = FakeReply(text="ok", delay_s=0.02)
    engine, texts = keyed_engine(FakeProvider([reply] * 40), many={}, few={})
    limited = engine.config.providers["fake"].model_copy(update={"max_concurrent": 1})
    config = engine.config.model_copy(update={"providers": {"fake": limited}})
    other = type(engine)(config, keep_books=True)
    other.use(engine.provider("fake"))
    ended: list[str] = []

    async def one(gateway: Gateway, name: str) -> None:
        assert (await ask(gateway, texts[name], user="same")).status_code == 200
        ended.append(name)

    async with running_gateway(other) as gateway:
        crowd = [asyncio.create_task(one(gateway, "many")) for _ in range(20)]
        await until(lambda: other.target_health() and other.target_health()[0].waiting > 15)
        await asyncio.gather(one(gateway, "few"), *crowd)
    assert ended.index("few") < 10
