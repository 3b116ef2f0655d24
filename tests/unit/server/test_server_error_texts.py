"""Why a request failed: what its record keeps of the words of a provider."""

import io
import json
import logging
from collections.abc import Generator
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError, ProviderUnavailable, RateLimited
from penstock.engine.engine import Engine
from penstock.telemetry.error_text import LONGEST_ERROR_TEXT
from penstock.telemetry.exporters.logs import log_to
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import bearer
from tests.support.raw import RawServer, answering, whole
from tests.unit.server.admin_support import Admin, administered
from tests.unit.server.gateway_support import running_gateway

ADMIN = "admin-key-of-the-tests-0123456789"
TOKEN = "sk-very-secret-token-of-this-provider-0123456789"


@pytest.fixture
def log() -> Generator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("penstock")
    level, handlers = logger.level, list(logger.handlers)
    log_to(stream, "json")
    yield stream
    logger.handlers[:] = handlers
    logger.setLevel(level)


async def only(admin: Admin) -> dict[str, Any]:
    (found,) = (await admin.get("requests"))["requests"]
    return await admin.get(f"requests/{found['request_id']}")


@pytest.mark.parametrize("stream", [False, True])
async def test_each_attempt_keeps_what_was_said(stream: bool, log: io.StringIO) -> None:
    fake = FakeProvider([RateLimited("fake: 429: your account is empty", status=429)])
    async with administered(fake) as admin:
        await admin.chat(stream=stream)
        found = await only(admin)
    (attempt,) = found["attempts"]
    assert attempt["error_text"] == "fake: 429: your account is empty"
    assert (attempt["error"], attempt["status"]) == ("RateLimited", 429)
    assert found["error_text"] == "fake: 429: your account is empty"
    (line,) = [json.loads(each) for each in log.getvalue().splitlines() if "request_id" in each]
    assert line["error_text"] == "fake: 429: your account is empty"
    (failure,) = line["failed_attempts"]
    assert (failure["target"], failure["status"], failure["error"], failure["error_text"]) == (
        "fake/echo",
        429,
        "RateLimited",
        "fake: 429: your account is empty",
    )


async def test_a_stream_that_breaks_keeps_it_too() -> None:
    broken = FakeReply(text="one two", error=ProviderUnavailable("the wire was cut"))
    async with administered(FakeProvider([broken])) as admin:
        await admin.chat(stream=True)
        found = await only(admin)
    assert found["attempts"][0]["error_text"] == "the wire was cut"


async def test_what_failed_before_any_attempt_has_its_reason() -> None:
    async with administered() as admin:
        assert (await admin.chat(temperature=9.0)).status_code == 400
        found = await only(admin)
    assert found["attempts"] == []
    assert "temperature" in found["error_text"]


async def test_an_answer_has_none() -> None:
    async with administered() as admin:
        await admin.chat()
        found = await only(admin)
    assert (found["error_text"], found["attempts"][0]["error_text"]) == (None, None)


async def test_it_is_short_and_without_keys() -> None:
    async with administered() as admin:
        key = admin.texts["ci"]
        fake = FakeProvider([PenstockError(f"no such key {key}: " + "x" * 9000)])
        admin.engine.use(fake)
        await admin.chat()
        found = await only(admin)
    text = found["attempts"][0]["error_text"]
    assert text.startswith("no such key psk_***: xxx")
    assert len(text) <= LONGEST_ERROR_TEXT
    assert key not in json.dumps(found)


async def test_the_secret_of_a_provider_is_masked(log: io.StringIO) -> None:
    said = json.dumps({"error": {"message": f"Incorrect key: {TOKEN}"}}).encode()
    async with RawServer(answering(whole(said, status="401 Unauthorized"))) as upstream:
        config = Config.model_validate(
            {
                "server": {"admin_key": ADMIN},
                "providers": {
                    "up": {"kind": "openai-chat", "url": f"{upstream.url}/v1", "auth_token": TOKEN}
                },
                "pool": {"retries": 0},
                "models": {"default": {"targets": ["up/m"]}},
            }
        )
        async with running_gateway(Engine(config, model_files=False)) as gateway:
            await gateway.chat("Hi")
            headers = bearer(ADMIN)
            answer = await gateway.client.get("/admin/v1/requests", headers=headers)
    (found,) = answer.json()["requests"]
    assert "Incorrect key" in found["attempts"][0]["error_text"]
    assert TOKEN not in answer.text
    assert TOKEN not in log.getvalue()


async def test_it_can_be_switched_off_while_the_gateway_runs() -> None:
    fake = FakeProvider([PenstockError("first"), PenstockError("second")])
    async with administered(fake) as admin:
        await admin.chat()
        config = admin.engine.config
        server = config.server.model_copy(update={"keep_error_text": False})
        await admin.gateway.app.change(config.model_copy(update={"server": server}))
        engine = admin.gateway.app.engine
        assert engine is not None
        engine.use(fake)
        await admin.chat()
        second, first = (await admin.get("requests"))["requests"]
    assert first["attempts"][0]["error_text"] == "first"
    assert second["error"] == "PenstockError"
    assert (second["error_text"], second["attempts"][0]["error_text"]) == (None, None)
