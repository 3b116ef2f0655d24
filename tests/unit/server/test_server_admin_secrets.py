"""Who gets into `/admin`, and that nothing secret comes out of it."""

import logging
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.server.admin.api import admin_document
from penstock.testing import FakeProvider, engine_with
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import BASE, Admin, administered
from tests.unit.server.gateway_support import running_gateway

OPERATIONS = [
    (method.upper(), path.replace("{name}", "x").replace("{request_id}", "x"))
    for path, methods in admin_document()["paths"].items()
    for method in methods
] + [("GET", f"{BASE}/openapi.json"), ("GET", f"{BASE}/nothing"), ("HEAD", f"{BASE}/keys")]


async def test_every_operation_takes_the_admin_key_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with administered() as admin:
        client, user = admin.gateway.client, admin.texts["ci"]
        for method, path in OPERATIONS:
            shown: list[tuple[dict[str, str], int]] = [
                ({}, 401),
                (bearer("psk_" + "w" * 43), 401),
                (bearer(ADMIN[:-1]), 401),
                (bearer(user), 403),
            ]
            for headers, status in shown:
                caplog.clear()
                answer = await client.request(method, path, headers=headers)
                assert answer.status_code == status, (method, path)
                (line,) = (
                    each.getMessage() for each in caplog.records if each.name == "penstock.server"
                )
                assert line.startswith(f"refused with {status}: {method} '{path}' from ")
                for secret in (user, ADMIN[:-1], "w" * 43):
                    assert secret not in line + answer.text
        assert (await admin.get("keys"))["keys"]
        assert (await admin.get("budgets"))["budgets"] == []


async def test_without_an_admin_key_nobody_gets_in_and_is_told_how() -> None:
    async with running_gateway(engine_with(FakeProvider())) as gateway:
        for headers in ({}, bearer("whatever-it-is-long-enough")):
            answer = await gateway.client.get(f"{BASE}/keys", headers=headers)
            assert answer.status_code == 401
            error = answer.json()["error"]
            assert error["code"] == "admin_key_not_set"
            assert 'admin_key = "${PENSTOCK_ADMIN_KEY}" below [server]' in error["message"]


async def test_without_any_other_key_the_admin_key_is_still_asked_for() -> None:
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN},
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/echo"]}},
        }
    )
    async with running_gateway(Engine(config, keep_books=True)) as gateway:
        assert (await gateway.client.get(f"{BASE}/keys")).status_code == 401
        answer = await gateway.client.get(f"{BASE}/keys", headers=bearer(ADMIN))
        assert answer.json() == {"keys": []}
        # A page of another site gets in with no key whatever.
        headers = {**bearer(ADMIN), "origin": "http://evil.test"}
        assert (await gateway.client.get(f"{BASE}/keys", headers=headers)).status_code == 403


async def test_nothing_secret_is_in_any_answer() -> None:
    user = new_text()
    secrets = {
        "a key": user,
        "its hash": hash_of(user).removeprefix("sha256:"),
        "the admin key": ADMIN,
        "a token": "sk-token-of-the-test-0123456789",
        "a header": "header-of-the-test-0123456789",
        "a password": "password-of-the-test",
        "a prompt": "prompt-of-the-test",
    }
    # Nobody is at this port.
    dead: dict[str, Any] = {
        "kind": "openai-chat",
        "url": "http://127.0.0.1:9/v1",
        "auth_token": secrets["a token"],
        "headers": {"x-secret": secrets["a header"]},
    }
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN},
            # No model learns, so nobody connects to it.
            "routing": {
                "index": "pgvector",
                "index_url": "postgresql://user:password-of-the-test@127.0.0.1:9/x",
            },
            "providers": {
                "fake": {},
                "dead": dead,
                "wrong": {**dead, "url": "http://user:password-of-the-test@127.0.0.1:9/v1"},
            },
            "pool": {"retries": 0},
            "models": {"default": {"targets": ["dead/model", "fake/echo"]}},
            "keys": {"ci": {"hash": hash_of(user)}},
        }
    )
    async with running_gateway(Engine(config, keep_books=True)) as gateway:
        admin = Admin(gateway, {"ci": user})
        content = f"Say {secrets['a prompt']} {user}"
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": content}],
        }
        assert (await admin.chat(**body)).status_code == 200
        assert (await admin.chat(**body, model="dead/x")).status_code == 502
        assert (await admin.chat(**body, model="wrong/x")).status_code == 500
        assert (await admin.chat(**body, model=user)).status_code == 404
        answers = [
            await admin.call(method, path.removeprefix(f"{BASE}/"))
            for method, path in OPERATIONS
            if method == "GET" and not path.endswith("/events")
        ]
        health = await admin.call("GET", "providers", params={"check": "true"})
        states = [each["health"]["status"] for each in health.json()["providers"]]
        assert states == ["up", "down", "down"]
        made = await admin.call("POST", "keys", json={"name": "new"})
        answers += [health, await admin.call("GET", "keys"), await admin.call("GET", "config")]
        text = "".join(answer.text + repr(answer.headers) for answer in answers)
        for what, secret in secrets.items():
            assert secret not in text, what
        assert made.json()["key"] not in text
