"""JSON under attack, at every door: whatever it is, it is answered with a 2xx or a 4xx."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider
from tests.security.attack import under_attack
from tests.security.doors import DOORS, FIELDS
from tests.support.keyed import bearer
from tests.support.raw import Peer, RawServer, whole
from tests.unit.server.gateway_support import running_gateway
from tests.unit.server.sampling_support import params, socket_of

pytestmark = pytest.mark.timeout(120)

DEEP = 100_000
# As they are written, since few of them can be told otherwise.
VALUES = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "lists as deep as is allowed": "[" * 900 + "]" * 900,
    "objects as deep as is allowed": '{"a":' * 900 + "1" + "}" * 900,
    "a number beyond floats": "1e400",
    "a number of many digits": "9" * 5000,
    "one more than 64 bits": str(2**64),
    "a negative number": "-1",
    "no number": "NaN",
    "half a character": '"\\ud800"',
    "halves in the wrong order": '["\\udc00\\ud800"]',
    "a zero": '"\\u0000"',
    "a terminal's escape": '"\\u001b[31m\\r\\nx-forged: line"',
    "nothing": "null",
    "yes": "true",
    "an empty text": '""',
    "an empty list": "[]",
    "an empty object": "{}",
    "a list of objects": "[{}]",
}


def with_value(body: dict[str, Any], field: str, value: str) -> bytes:
    """The body with this field written so."""
    rest = {name: each for name, each in body.items() if name != field}
    return (json.dumps({**rest, field: 0})[:-2] + value + "}").encode()


@pytest.mark.parametrize("door", DOORS)
async def test_values_that_no_field_expects(door: str, caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        headers = bearer(target.texts["one"])
        for value in VALUES.values():
            # What is deep is as deep in any field; the rest may matter in each.
            for field in FIELDS if len(value) < DEEP else FIELDS[::5]:
                data = with_value(DOORS[door], field, value)
                answer = await target.gateway.client.post(door, content=data, headers=headers)
                assert answer.status_code in (200, 400, 404), (field, value[:40], answer.text)
                assert b"internal_error" not in answer.content


@pytest.mark.parametrize("door", DOORS)
async def test_bodies_that_are_no_json(door: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = json.dumps(DOORS[door]).encode()
    bodies = [
        *(b"", b" ", b"null", b"[]", b'"text"', b"1", b"\0", plain * 2, plain[:-1], plain + b"\0"),
        *(plain.replace(b"Hi", bad) for bad in (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\0")),
        *(b"\xef\xbb\xbf" + plain, json.dumps(DOORS[door]).encode("utf-16"), b"a=b&c=d"),
        *(b"[" * 200_000, b'{"a":' * 200_000, b'{"a":"' + b"x" * 1_000_000),
    ]
    async with under_attack(caplog) as target:
        headers = bearer(target.texts["one"])
        for data in bodies:
            answer = await target.gateway.client.post(door, content=data, headers=headers)
            assert answer.status_code == 400, (data[:60], answer.text)
        assert target.fake.requests == []


@pytest.mark.parametrize("door", DOORS)
async def test_a_name_that_is_there_twice_does_not_open_another_model(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever looks at the first, and whoever at the last, sees what is asked for."""
    async with under_attack(caplog, one={"models": ["default"]}) as target:
        plain = json.dumps({**DOORS[door], "model": "default"})
        headers = bearer(target.texts["one"])
        for data in (
            plain[:-1] + ', "model": "secret-project"}',
            '{"model": "secret-project", ' + plain[1:],
            plain[:-1] + ', "m\\u006fdel": "secret-project"}',
        ):
            await target.gateway.client.post(door, content=data, headers=headers)
        hidden = {"hidden", "fake/hidden", "secret-project"}
        assert all(request.model not in hidden for request in target.fake.requests)


async def test_messages_of_a_socket(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        headers = bearer(target.texts["one"])
        for value in VALUES.values():
            async with socket_of(target.gateway, additional_headers=headers) as socket:
                await socket.connection.send(value)
                assert (await socket.next())["type"] == "error"
                for field in ("params", "requestId", "stream", "id", "type"):
                    message = {"type": "createMessage", "id": 1, "params": params(model="default")}
                    await socket.connection.send(with_value(message, field, value).decode())
                    while (told := await socket.next())["type"] == "chunk":
                        pass
                    if told["type"] == "error":
                        assert told["error"]["data"].get("status", 400) < 500, told
                await socket.send(type="ping", id="still there")
                assert await socket.next() == {"type": "pong", "id": "still there"}


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "ollama"])
async def test_what_gets_through_can_be_said_to_a_provider(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An encoder that falls over would be an accident; a provider that refuses is none."""

    async def refuse(peer: Peer) -> None:
        while await peer.request() is not None:
            await peer.send(whole(b'{"error": {"message": "no"}}', status="400 Bad Request"))

    async with RawServer(refuse) as server:
        config = Config.model_validate(
            {
                "providers": {"one": {"kind": kind, "url": server.url, "auth_token": "x"}},
                "models": {"default": {"targets": ["one/some-model"]}},
                "pool": {"retries": 0},
            }
        )
        async with running_gateway(Engine(config, model_files=False)) as gateway:
            for door, body in DOORS.items():
                for value in (each for each in VALUES.values() if len(each) < DEEP):
                    for field in ("messages", "input", "tools", "something new"):
                        data = with_value(body, field, value)
                        answer = await gateway.client.post(door, content=data)
                        assert answer.status_code in (200, 400, 404), (door, field, answer.text)
    bad = [each for each in caplog.records if each.exc_info]
    assert bad == [], bad


async def test_many_wrong_things_at_once_are_told_in_few_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_attack(caplog, fake=FakeProvider()) as target:
        headers = bearer(target.texts["one"])
        for content in ("", {"type": "text", "text": ""}, [{"type": "input_text", "text": ""}]):
            said = [{"role": "user", "content": content}] * 10_000
            for door, body in DOORS.items():
                field = "messages" if "messages" in body else "input"
                wrong = {**body, field: said}
                answer = await target.gateway.client.post(door, json=wrong, headers=headers)
                assert answer.status_code in (200, 400)
                assert len(answer.content) < 50_000
