"""Everything that a gateway says: no secret is in it, and nobody can write its log or its headers.

The configuration is full of secrets, every door is driven into every kind of answer, and then all
that came back, was logged, printed or shown is searched.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import logging
import traceback
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys import keyring
from penstock.keys.records import hash_of, new_text
from penstock.server.auth import gate as access
from penstock.telemetry.exporters.logs import ConsoleLines, JsonLines
from penstock.testing import FakeProvider
from tests.security.attack import BODY, under_attack
from tests.security.doors import DOORS
from tests.support.keyed import ADMIN, bearer
from tests.support.raw import Peer, RawServer, whole
from tests.unit.server.gateway_support import CHAT, Gateway, running_gateway, until
from tests.unit.server.sampling_support import socket_of

pytestmark = pytest.mark.timeout(60)
PROVIDER_KEY = "sk-provider-Zq7token4411xyz"
HEADER = "Wv9-header-value-28"
MCP_TOKEN = "Mc3-servers-token-77"


@asynccontextmanager
async def full_of_secrets(tmp_path: Path) -> AsyncGenerator[tuple[Gateway, dict[str, str]]]:
    """A gateway whose provider repeats what it is sent, in an error."""

    async def repeat(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            said = " ".join(f"{name}: {value}" for name, value in request.headers.items())
            error = {"error": {"message": said, "type": said, "code": said}}
            await peer.send(whole(json.dumps(error).encode(), status="401 Unauthorized"))

    texts = {name: new_text() for name in ("one", "limited", "lost")}
    async with RawServer(repeat) as server:
        config = Config.model_validate(
            {
                "server": {"admin_key": ADMIN, "cors_origins": ["https://app.example"]},
                "storage": {"url": f"sqlite:///{tmp_path}/books.db"},
                "providers": {
                    "up": {
                        "kind": "openai-chat",
                        "url": server.url,
                        "auth_token": PROVIDER_KEY,
                        "headers": {"x-team": HEADER},
                    }
                },
                "models": {"default": {"targets": ["up/some"]}},
                "pool": {"retries": 0},
                "keys": {
                    "one": {"hash": hash_of(texts["one"])},
                    "limited": {"hash": hash_of(texts["limited"]), "requests_per_minute": 1},
                },
            }
        )
        async with running_gateway(Engine(config, model_files=False, keep_books=True)) as gateway:
            yield gateway, texts


def found_in(text: str, secrets: Mapping[str, str]) -> list[str]:
    return [name for name, secret in secrets.items() if secret[4:-4] in text]


async def test_no_secret_is_said_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    heard: list[str] = []
    async with full_of_secrets(tmp_path) as (gateway, texts):
        shown = [
            *({}, bearer("wrong"), bearer(texts["one"]), bearer(texts["limited"]), bearer(ADMIN)),
            *(bearer(texts["one"] + "x"), {"x-api-key": texts["one"], "origin": "https://x.y"}),
            {"authorization": f"Basic {texts['one']}", "origin": "https://app.example"},
        ]
        for headers in shown:
            for door, body in DOORS.items():
                tools = [
                    {
                        "type": "mcp",
                        "server_label": "s",
                        "server_url": f"http://127.0.0.1:9/{MCP_TOKEN}",
                        "authorization": MCP_TOKEN,
                        "require_approval": "never",
                    }
                ]
                for fields in ({}, {"stream": True}, {"model": texts["lost"]}, {"tools": tools}):
                    answer = await gateway.client.post(
                        door, json={**body, **fields}, headers=headers
                    )
                    heard.append(f"{answer.headers!r} {answer.text}")
            for path in ("/health", "/ready", "/metrics", "/v1/models", "/admin/v1/config", "/x"):
                for method in ("GET", "OPTIONS", "DELETE"):
                    answer = await gateway.client.request(method, path, headers=headers)
                    heard.append(f"{answer.headers!r} {answer.text}")
        gate = gateway.gate
        states = (gateway.app, gate, gate.keys, gateway.engine, gateway.engine.config, gateway)
        heard += [repr(each) for each in states] + [repr(vars(gate)), repr(vars(gateway.app))]
        heard += [repr(task) for task in asyncio.all_tasks()]
        heard += [gateway.engine.config.model_dump_json(), repr(await gateway.engine.usage_stats())]
        secrets = {**texts, "provider": PROVIDER_KEY, "header": HEADER, "admin": ADMIN}
    tracebacks = [
        "".join(traceback.format_exception(*record.exc_info))
        for record in caplog.records
        if record.exc_info and record.exc_info[0] is not None
    ]
    places = {
        "an answer": "\n".join(heard),
        "the log": caplog.text + repr([vars(record) for record in caplog.records]),
        "a traceback": "".join(tracebacks),
        "the output": "".join(capfd.readouterr()),
    }
    # It is not for want of refusals and repetitions that none is found.
    assert "refused with 401" in places["the log"]
    assert "***" in places["an answer"]
    secrets["mcp"] = MCP_TOKEN
    for where, text in places.items():
        # A caller is told what it wrote itself into an address or a name; nobody else is.
        known = [] if where != "an answer" else ["mcp", "lost"]
        assert set(found_in(text, secrets)) <= set(known), where


FORGED = [
    *("\r\nx-forged: yes", "\nERROR forged line", "\x1b[2J\x1b[31m", "\x00", "\u2028forged"),
    *(
        "%0d%0ax-forged:%20yes",
        "\x85",
        "\u202eevil",
        "a" * 3000,
        "\x7f\x9b31m",
        "{}%s%(x)s{0}",
        "\ud7ff\uffff",
    ),
]


@pytest.mark.parametrize("form", [ConsoleLines, JsonLines])
async def test_nobody_writes_a_line_of_the_log_or_a_header(
    form: type[logging.Formatter], caplog: pytest.LogCaptureFixture
) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(form())
    logging.getLogger("penstock").addHandler(handler)
    try:
        async with under_attack(caplog, one={"models": ["default"]}) as target:
            client = target.gateway.client
            for text in FORGED:
                for key in ("one", "two"):
                    headers = bearer(target.texts[key])
                    for door, body in DOORS.items():
                        fields = {"model": f"default{text}", "user": text, "metadata": {"a": text}}
                        answer = await client.post(door, json={**body, **fields}, headers=headers)
                        assert answer.status_code in (400, 404)
                        assert "x-forged" not in answer.headers
                    # The id that a caller gives is repeated in a header.
                    for method, path in (
                        ("GET", f"/v1/models/{text}"),
                        ("DELETE", f"/v1/requests/{text}"),
                    ):
                        answer = await client.request(
                            method, httpx_path(path), headers={**headers, "x-request-id": "a b"}
                        )
                        assert answer.status_code in (200, 400, 404, 431)
                        assert "x-forged" not in answer.headers
                line = f"GET /v1/{text} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
                assert b"\r\nx-forged: yes\r\n" not in await target.raw(line.encode())
    finally:
        logging.getLogger("penstock").removeHandler(handler)
    lines = written.getvalue().splitlines()
    assert len(lines) == len([each for each in caplog.records if each.name.startswith("penstock")])
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith(("ERROR", "x-forged")) for line in lines)


async def test_a_long_name_makes_no_long_line(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        for door, body in DOORS.items():
            await target.gateway.client.post(
                door, json={**body, "model": "m" * 100_000}, headers=bearer(target.texts["one"])
            )
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("penstock.")]
    assert any("mmm" in line for line in lines)
    assert all(len(line) < 1000 for line in lines), max(map(len, lines))


def httpx_path(path: str) -> str:
    """Percent-encoded to the last byte, as nothing else gets through a client."""
    return "".join(
        each
        if (each.isalnum() and each.isascii()) or each == "/"
        else "".join(f"%{byte:02x}" for byte in each.encode("utf-8", "surrogatepass"))
        for each in path
    )


@pytest.mark.parametrize("header", ["x-request-id", "traceparent", "tracestate", "origin"])
async def test_what_a_caller_says_in_a_header_makes_no_header(
    header: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with under_attack(caplog) as target:
        for value in (b"\xff\xfe", b"a" * 5000, b"\t\t", b"a, b", b'"><script>', b"\x80\x85"):
            head = target.head(f"POST {CHAT} HTTP/1.1", header.encode() + b": " + value)
            body = json.dumps(BODY).encode()
            sent = head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
            assert await target.send(sent) in ([200], [400])


async def test_a_key_cannot_stop_or_see_the_request_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_attack(caplog, fake=FakeProvider()) as target:
        client, texts = target.gateway.client, target.texts
        engine = target.gateway.engine
        one = target.gateway.gate.keys.find(texts["one"].encode()).terms
        assert one is not None
        handle = await engine.create_message_stream(
            "a b c", max_tokens=9, model="default", caller=one.caller, request_id="req_of_one"
        )
        async with handle:
            other, unknown = [
                await client.delete(f"/v1/requests/{name}", headers=bearer(texts["two"]))
                for name in ("req_of_one", "req_of_nobody")
            ]
            # Nothing tells the one from the other but the name that was asked for.
            assert (other.status_code, unknown.status_code) == (404, 404)
            told = [
                each.text.replace(name, "x").replace(each.headers["x-request-id"], "y")
                for each, name in ((other, "req_of_one"), (unknown, "req_of_nobody"))
            ]
            assert told[0] == told[1]
            async with socket_of(target.gateway, additional_headers=bearer(texts["two"])) as socket:
                await socket.send(type="cancel", id="req_of_one")
                # The same id names a request of its own key, and the other one is left alone.
                await socket.send(
                    type="createMessage",
                    id=1,
                    requestId="req_of_one",
                    params={**DOORS["/v1/sampling/createMessage"]},
                )
                assert (await socket.next())["type"] == "complete"
            result = await handle.result()
            assert result.stop_reason != "cancelled"
        own = await client.delete("/v1/requests/req_of_one", headers=bearer(texts["one"]))
        assert own.status_code == 404


def _comparisons(module: Any) -> list[str]:
    """Of `==` in this module, those that have a digest or a shown text on a side."""
    tree = ast.parse(inspect.getsource(module))
    secret = {"shown", "digest", "_admin", "text", "admin_key"}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        and any(
            getattr(side, "id", getattr(side, "attr", "")) in secret
            for side in (node.left, *node.comparators)
        )
    ]


def test_secrets_are_compared_in_constant_time() -> None:
    """By construction: hashes are looked up, and compared with `hmac.compare_digest` alone."""
    for module in (access, keyring):
        assert _comparisons(module) == []
        assert "hmac.compare_digest(" in inspect.getsource(module)


async def test_cors_and_names_that_lead_here(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        client, key = target.gateway.client, bearer(target.texts["one"])
        for origin in ("https://evil.example", "null", "http://localhost.evil.example", "*"):
            answer = await client.get("/v1/models", headers={**key, "origin": origin})
            assert "access-control-allow-origin" not in answer.headers
            asked = {"origin": origin, "access-control-request-method": "POST"}
            answer = await client.options(CHAT, headers=asked)
            assert answer.status_code == 401
            assert not any(name.startswith("access-control") for name in answer.headers)
    config = Config.model_validate(
        {"providers": {"fake": {}}, "models": {"default": {"targets": ["fake/echo"]}}}
    )
    async with running_gateway(Engine(config)) as gateway:
        hosts = [
            *("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "evil.example:8400"),
            *("localhost@evil.example", "0.0.0.0", "[::ffff:8.8.8.8]", "10.0.0.1", "local host"),
        ]
        for host in hosts:
            answer = await gateway.client.get("/v1/models", headers={"host": host})
            assert answer.status_code == 403, host
        for origin in ("https://evil.example", "null", "http://localhost.evil.example", "x"):
            answer = await gateway.client.post(CHAT, json=BODY, headers={"origin": origin})
            assert answer.status_code == 403, origin
        assert (await gateway.chat("Hi")).status_code == 200
        await until(lambda: gateway.server.running_requests == 0)
