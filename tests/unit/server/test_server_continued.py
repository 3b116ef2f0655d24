"""An answer that another target finished says so at every endpoint, in its record and the log."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anthropic
import openai
import pytest

from penstock.config.settings import Config
from penstock.contract.errors import StreamInterrupted
from penstock.contract.exchange import Metadata
from penstock.contract.options import MCPTool
from penstock.engine.engine import Engine
from penstock.mcp.http import over_http
from penstock.server.answer_headers import facts, stream_end_facts
from penstock.telemetry.exporters.logs import RequestLog, log_to
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import ADMIN, bearer
from tests.unit.server import anthropic_support, gateway_support, responses_support
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import CREATE, params, read_sse, socket_of

SECOND = "second/echo"
TEXT = "One two three."
MARK = f": x-penstock-continued-by: {SECOND}\n\n"
PATHS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": (gateway_support.CHAT, gateway_support.chat_body("Hi"), '"finish_reason":"stop"'),
    "responses": (responses_support.RESPONSES, {"input": "Hi"}, "event: response.completed"),
    "messages": (
        anthropic_support.MESSAGES,
        anthropic_support.body("Hi"),
        "event: message_delta",
    ),
}
"""The path, the body, and what begins the terminal event."""


@contextlib.asynccontextmanager
async def breaking_gateway(*first: FakeReply) -> AsyncGenerator[Gateway]:
    """The first target breaks after two words; the second one continues."""
    broken = first or (FakeReply(text="One two ", error=StreamInterrupted("cut")),)
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN},
            "providers": {name: {"kind": "fake"} for name in ("first", "second")},
            "pool": {"retries": 0},
            "models": {"default": {"targets": ["first/echo", SECOND]}},
        }
    )
    engine = Engine(config, model_files=False, keep_books=True)
    engine.use(FakeProvider(broken, name="first"))
    engine.use(FakeProvider(["three."], name="second"))
    async with running_gateway(engine) as gateway:
        yield gateway


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_says_so_before_its_terminal_event(path: str) -> None:
    address, body, terminal = PATHS[path]
    async with breaking_gateway() as gateway:
        answer = await gateway.client.post(address, json={**body, "stream": True})
    assert answer.status_code == 200
    assert answer.text.count(MARK) == 1
    assert answer.text.index("two") < answer.text.index(MARK) < answer.text.index(terminal)


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_names_an_unknown_stop_reason_too(path: str) -> None:
    address, body, _ = PATHS[path]
    odd = FakeReply(text="One.", stop_reason="of\ntomorrow")
    async with breaking_gateway(odd) as gateway:
        answer = await gateway.client.post(address, json={**body, "stream": True})
    assert ": x-penstock-stop-detail: of%0Atomorrow\n\n" in answer.text
    assert "continued-by" not in answer.text


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_of_one_target_has_no_mark(path: str) -> None:
    address, body, _ = PATHS[path]
    async with breaking_gateway(FakeReply(text="One.")) as gateway:
        answer = await gateway.client.post(address, json={**body, "stream": True})
    assert "x-penstock" not in answer.text


async def test_official_clients_read_over_the_mark() -> None:
    async with (
        breaking_gateway() as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client,
    ):
        chunks = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        said = [chunk.choices[0].delta.content or "" async for chunk in chunks]
    assert "".join(said) == TEXT
    async with (
        breaking_gateway() as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client,
    ):
        events = await client.responses.create(model="default", input="Hi", stream=True)
        kinds = [event.type async for event in events]
    assert kinds[-1] == "response.completed"
    async with (
        breaking_gateway() as gateway,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="none") as client,
        client.messages.stream(
            model="default", max_tokens=99, messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        assert await stream.get_final_text() == TEXT


async def test_sampling_says_so_in_its_metadata() -> None:
    async with breaking_gateway() as gateway:
        answer = await gateway.client.post(CREATE, json={**params("Hi"), "stream": True})
    name, last = read_sse(answer.text)[-1]
    assert (name, last["_metadata"]["continued_by"]) == ("complete", SECOND)
    async with breaking_gateway() as gateway, socket_of(gateway) as socket:
        await socket.ask(1, "Hi")
        end = await socket.end(1)
    assert end["result"]["_metadata"]["continued_by"] == SECOND


async def test_the_mcp_tool_says_so_in_its_result() -> None:
    from mcp import Client

    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    async with breaking_gateway() as gateway:
        server = MCPTool(f"{gateway.url}/mcp", "penstock", {})
        async with Client(over_http(server)) as client:
            result = await client.call_tool("generate", {"prompt": "Hi"}, progress_callback=ignore)
    assert result.structured_content is not None
    assert result.structured_content["text"] == TEXT
    assert result.structured_content["continued_by"] == SECOND
    assert result.structured_content["stop_detail"] is None


async def test_the_record_in_the_admin_api_says_so() -> None:
    async with breaking_gateway() as gateway:
        address, body, _ = PATHS["chat"]
        await gateway.client.post(address, json={**body, "stream": True}, headers=bearer(ADMIN))
        found = await gateway.client.get("/admin/v1/requests", headers=bearer(ADMIN))
        (record,) = found.json()["requests"]
    assert record["continued_by"] == SECOND
    assert [each["outcome"] for each in record["attempts"]] == ["failed", "ok"]


@pytest.fixture
def written() -> Generator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("penstock")
    level, handlers = logger.level, list(logger.handlers)
    log_to(stream, "json")
    yield stream
    logger.handlers[:] = handlers
    logger.setLevel(level)


async def test_the_line_in_the_json_log_says_so(written: io.StringIO) -> None:
    async with breaking_gateway() as gateway:
        gateway.engine.hooks.subscribe(RequestLog())
        address, body, _ = PATHS["chat"]
        await gateway.client.post(address, json={**body, "stream": True})
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    named = [line.get("continued_by") for line in lines if line["logger"] == "penstock.requests"]
    assert named
    assert set(named) == {SECOND}


def test_the_header_and_the_mark_have_the_same_name_and_value() -> None:
    metadata = Metadata(provider="p", model="m", request_id="r", latency_ms=1, continued_by="é\n/x")
    (value,) = [value for name, value in facts(metadata) if name == b"x-penstock-continued-by"]
    assert value == b"%C3%A9%0A/x"
    assert stream_end_facts(metadata) == b": x-penstock-continued-by: %C3%A9%0A/x\n\n"
