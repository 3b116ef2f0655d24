"""Keys under attack: nothing gets in, nothing is given away, and no text of a key is anywhere."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.load import parse
from penstock.contract.errors import ConfigurationError, PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.engine.engine import Engine
from penstock.keys.keyring import Keyring
from penstock.keys.records import PREFIX, Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from penstock.server.auth.gate import Access, Gate, Needs
from penstock.server.dispatch import App, Route
from penstock.server.doors.openai_chat.endpoint import ROUTES
from penstock.server.errors import HttpProblem
from penstock.server.exchange import Exchange
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.cli.harness import run_penstock
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway

BODY = chat_body("Hi there", model="default", max_tokens=10)
DOORS = [
    ("POST", CHAT),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/models"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models/default"),
    ("GET", "/metrics"),
    ("GET", "/admin/v1/keys"),
    ("GET", "/admin"),
    ("DELETE", "/v1/requests/req_1"),
    ("GET", "/nothing-is-here"),
    ("POST", "/v1/models"),
    ("OPTIONS", CHAT),
]


@asynccontextmanager
async def attacked(**keys: dict[str, Any]) -> AsyncGenerator[tuple[Gateway, dict[str, str]]]:
    engine, texts = keyed_engine(**(keys or {"ci": {}}))
    async with running_gateway(engine) as gateway:
        yield gateway, texts


@pytest.mark.parametrize(("method", "path"), DOORS)
async def test_every_door_is_shut_without_a_key(method: str, path: str) -> None:
    async with attacked() as (gateway, texts):
        for headers in ({}, bearer("psk_" + "x" * 43), bearer(texts["ci"][:-1])):
            answer = await gateway.client.request(method, path, json=BODY, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                assert answer.json()["error"]["code"] == "invalid_api_key"


def refusing_headers(text: str) -> list[dict[str, str | bytes]]:
    return [
        {"authorization": text},
        {"authorization": f"Basic {text}"},
        {"authorization": f"Bearer{text}"},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {text} {text}"},
        {"authorization": f"Bearer {text},{text}"},
        {"authorization": f"Bearer {text.upper()}"},
        {"authorization": f"Bearer {hash_of(text)}"},
        {"authorization": f"Bearer {hash_of(text).removeprefix('sha256:')}"},
        {"authorization": "", "x-api-key": text},
        {"authorization": "Bearer wrong", "x-api-key": text},
        {"x-api-key": f"Bearer {text}"},
        {"x-api-key": ""},
        {"cookie": f"key={text}"},
        {"proxy-authorization": f"Bearer {text}"},
        {"x-goog-api-key": text},
        {"authorization": b"Bearer " + text.encode() + b"\xff"},
        {"authorization": "Bearer ключ".encode()},
        {"authorization": "Bearer " + "x" * 20_000},
    ]


async def test_a_key_in_the_wrong_place_or_form_opens_nothing() -> None:
    async with attacked() as (gateway, texts):
        for headers in refusing_headers(texts["ci"]):
            raw = [
                (name.encode(), value if isinstance(value, bytes) else value.encode())
                for name, value in headers.items()
            ]
            answer = await gateway.client.post(CHAT, json=BODY, headers=raw)
            assert answer.status_code == 401, headers
            assert texts["ci"] not in answer.text
        for query in (f"?key={texts['ci']}", f"?api_key={texts['ci']}"):
            assert (await gateway.client.post(CHAT + query, json=BODY)).status_code == 401
        assert (await gateway.client.post(CHAT, json=BODY, headers=bearer(texts["ci"]))).is_success


async def test_of_two_headers_of_one_name_only_one_is_looked_at() -> None:
    async with attacked() as (gateway, texts):
        good, bad = (f"Bearer {text}".encode() for text in (texts["ci"], "wrong"))
        codes: list[int] = []
        for first, second in ((good, bad), (bad, good)):
            headers = [(b"authorization", first), (b"authorization", second)]
            answer = await gateway.client.get("/v1/models", headers=headers)
            codes.append(answer.status_code)
        assert codes == [401, 200]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from([b"authorization", b"x-api-key", b"api-key"]),
    value=st.binary(max_size=600),
    path=st.text(max_size=30),
    needs=st.sampled_from(["optional", "key", "operator", "admin"]),
)
def test_no_bytes_whatever_get_in(name: bytes, value: bytes, path: str, needs: Needs) -> None:
    ring = Keyring([Key(name="ci", hashes=(KeyHash(hash_of(new_text())),))])
    gate = Gate(ring, ADMIN)
    status = 401
    access = Access(asked=True)
    try:
        access = gate.access({name: value}, path, needs)
    except HttpProblem as problem:
        status = problem.failure.status
    # Without a key that is looked at, `optional` lets in, and gives nothing.
    assert (status, access.operator, access.terms, access.admin) == (401, False, None, False)


@pytest.mark.parametrize("state", ["revoked", "expired", "rotated"])
async def test_a_key_that_was_good_once_opens_nothing(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = keyed_engine(other={})
    store, text = KeyStore(engine.config.storage.path), new_text()
    past = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    expires = past if state == "expired" else None
    store.add(Key(name="old", hashes=(KeyHash(hash_of(text)),), expires=expires))
    if state == "revoked":
        store.revoke("old")
    elif state == "rotated":
        store.rotate("old", hash_of(new_text()))
    async with running_gateway(engine) as gateway:
        answer = await gateway.client.post(CHAT, json=BODY, headers=bearer(text))
    assert answer.status_code == 401
    (line,) = [record.getMessage() for record in caplog.records if "refused" in record.msg]
    assert "POST '/v1/chat/completions' from 127.0.0.1:" in line
    assert text not in line
    if state != "rotated":
        assert f"key old: {state}" in line


async def test_admin_paths_take_the_admin_key_alone() -> None:
    async with attacked(ci={}) as (gateway, texts):
        paths = ("/admin", "/admin/", "/admin/v1/x", "/%61dmin/v1/x", "/admin/../admin/x")
        for path in paths:
            url = f"{gateway.url}{path}"
            assert (await gateway.client.get(url)).status_code == 401
            assert (await gateway.client.get(url, headers=bearer("wrong"))).status_code == 401
            answer = await gateway.client.get(url, headers=bearer(texts["ci"]))
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "admin_key_required"
            # There is nothing behind it, and only the admin may know.
            assert (await gateway.client.get(url, headers=bearer(ADMIN))).status_code == 404
        answer = await gateway.client.post(CHAT, json=BODY, headers=bearer(ADMIN))
        assert answer.status_code == 403


async def test_a_route_below_admin_is_guarded_whatever_it_says_itself() -> None:
    engine, texts = keyed_engine(ci={})
    seen: list[str] = []

    async def secret(_: Engine, exchange: Exchange) -> None:
        seen.append(exchange.path)
        await exchange.reply(b"{}")

    routes = {**ROUTES, ("GET", "/admin/v1/secret"): Route(secret, needs="nothing")}
    gate = Gate(Keyring([Key(name="ci", hashes=(KeyHash(hash_of(texts["ci"])),))]), ADMIN)
    app = App(lambda: engine, routes, max_request_bytes=100, gate=gate)
    shown = (b"", texts["ci"].encode(), ADMIN.encode())
    async with engine:
        app._engine = engine  # pyright: ignore[reportPrivateUsage]
        codes = [await _status(app, "/admin/v1/secret", each) for each in shown]
    assert codes == [401, 403, 200]
    assert seen == ["/admin/v1/secret"]


async def _status(app: App, path: str, shown: bytes) -> int:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:  # pragma: no cover
        raise AssertionError

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    headers = [(b"x-api-key", shown)] if shown else []
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    await app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("value", ["", "   ", "${EMPTY_KEY:-}"])
async def test_an_empty_admin_key_is_none(value: str) -> None:
    config = parse(f'[server]\nadmin_key = "{value}"\n')
    assert config.server.admin_key is None
    gate = Gate(Keyring(), None)
    for headers in ({}, {b"x-api-key": b""}, {b"authorization": b"Bearer "}):
        with pytest.raises(HttpProblem) as caught:
            gate.access(headers, "/admin/v1/keys", "admin")
        assert caught.value.failure.status == 401


def test_a_short_admin_key_is_refused_without_being_told() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse('[server]\nadmin_key = "hunter2"\n')
    assert "it has 7 characters: give 16 or more" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_the_text_of_a_key_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "penstock.toml").write_text(
        f'[server]\nadmin_key = "{ADMIN}"\n'
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
    )
    made = run_penstock(
        *("keys", "create", "ci", "--budget", "5", "--tokens-per-minute", "9"), cwd=tmp_path
    )
    first = made.out.strip()
    second = run_penstock("keys", "rotate", "ci", "--grace", "1h", cwd=tmp_path).out.strip()
    assert first != second
    assert first.startswith(PREFIX)
    shown = [
        run_penstock(*command, cwd=tmp_path)
        for command in (
            ("keys", "list"),
            ("keys", "list", "--json"),
            ("keys", "create", "ci"),
            ("doctor", "--json"),
        )
    ]
    config = parse((tmp_path / "penstock.toml").read_text())
    engine = Engine(config, keep_books=True)
    errors: list[str] = []
    async with running_gateway(engine) as gateway:
        for text in (first, second, first[:-1], ADMIN, f"{second}x"):
            for fields in ({}, {"model": "nothing"}, {"messages": "wrong"}):
                answer = await gateway.client.post(
                    CHAT, json={**BODY, **fields}, headers=bearer(text)
                )
                errors.append(answer.text + repr(answer.headers))
        gate = gateway.gate
        found = gate.keys.find(second.encode())
        reprs = [repr(each) for each in (gate, found, gate.keys, gateway.app, config, engine)]
        reprs += [repr(vars(gate)), config.model_dump_json()]
        reprs.append(repr(copy.copy(found.terms)))
    shown.append(run_penstock("keys", "revoke", "ci", "--json", cwd=tmp_path))
    printed = "".join(one.out + one.err for one in shown)
    texts = {
        "an answer": "".join(errors),
        "what commands print": printed,
        "the log": caplog.text + repr([vars(record) for record in caplog.records]),
        "a repr": "".join(reprs),
        "the output": "".join(capfd.readouterr()),
    }
    assert "refused with 401" in texts["the log"]
    assert "refused with 429" in texts["the log"]
    for where, text in texts.items():
        for secret in (first, second, ADMIN):
            assert secret[len(PREFIX) : -4] not in text, f"a key is in {where}"
    files = [path for path in config.storage.path.parent.rglob("*") if path.is_file()]
    assert config.storage.path in files
    for path in files:
        for secret in (first, second, ADMIN):
            assert secret[len(PREFIX) : -4].encode() not in path.read_bytes(), path


async def test_a_key_that_was_put_into_a_path_or_a_name_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with attacked(ci={"models": ["assistant"]}) as (gateway, texts):
        text = texts["ci"]
        await gateway.client.get(f"/v1/models/{text}")
        answer = await gateway.client.post(CHAT, json={**BODY, "model": text}, headers=bearer(text))
        assert answer.status_code == 404
        await gateway.client.get(f"/v1/%0d%0aforged:%20line{'x' * 5000}")
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.server"]
    assert len(lines) == 3
    assert all(text not in line and len(line) < 400 and line.isprintable() for line in lines)
    assert "psk_***" in lines[0]


def test_an_error_of_a_key_can_be_pickled_without_it() -> None:
    engine, texts = keyed_engine(ci={"models": ["assistant"]})
    ring = Keyring([Key(name="ci", hashes=(KeyHash(hash_of(texts["ci"])),), models=("assistant",))])
    terms = ring.find(texts["ci"].encode()).terms
    assert terms is not None
    request = SamplingRequest(messages=(user("Hi"),), max_tokens=1, model="default")
    with pytest.raises(PenstockError) as caught:
        terms.admit(request, engine.targets("default"))
    assert texts["ci"] not in repr(pickle.dumps(caught.value))


async def test_a_header_without_end_does_not_hold_the_gateway() -> None:
    async with attacked() as (gateway, texts):
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ")
        for _ in range(64):
            writer.write(b"x" * 16_384)
        await writer.drain()
        answer = await gateway.client.get("/v1/models", headers=bearer(texts["ci"]))
        assert answer.status_code == 200
        writer.write(b"\r\n\r\n")
        first = b""
        with suppress(ConnectionError):
            first = await asyncio.wait_for(reader.readline(), 30)
        assert b"200" not in first
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
