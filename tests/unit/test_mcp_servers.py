"""MCP servers through the whole engine: secrets that nobody sees, and readers that cope."""

import asyncio
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Config, Engine, MCPTool, PenstockError, ToolEnded, ToolStarted
from penstock.config.settings import ModelConfig, ProviderConfig
from tests.conformance.checks.mcp import LOST, SEARCH, SECRET, SERVER
from tests.support.raw import Peer, RawServer, whole
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.scenario import Scenario
from tests.support.wire.server import WireServer
from tests.unit.cli.harness import run_penstock
from tests.unit.server.gateway_support import running_gateway

KINDS = ("openai", "anthropic", "gemini")
JSON = "content-type: application/json\r\n"
SCENARIO = Scenario(mcp=(SEARCH, LOST), text=("Two ", "tides."))


def engine_at(url: str, kind: str = "openai") -> Engine:
    provider = ProviderConfig.model_validate({"kind": kind, "url": url, "auth_token": "sk-a-key"})
    models = {"default": ModelConfig(targets=("up/test-model",))}
    return penstock.open(Config(providers={"up": provider}, models=models))


async def echo(peer: Peer) -> None:
    """A provider that says in its error all that it was told."""
    while request := await peer.request():
        said = request.body.decode()
        error = {"type": "invalid_request_error", "status": "INVALID_ARGUMENT", "message": said}
        body = msgspec.json.encode({"type": "error", "error": error})
        await peer.send(whole(body, status="400 Bad Request", headers=JSON))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_no_error_and_no_log_holds_a_header_of_a_server(
    kind: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {"max_tokens": 9, "mcp_tools": [SERVER]}
    async with RawServer(echo) as server, engine_at(server.url, kind) as engine:
        ask = engine.create_message_stream if stream else engine.create_message
        with pytest.raises(PenstockError) as caught:
            await ask("Hello", **options)
        (sent,) = server.requests
    assert SECRET in sent.body.decode()
    error = caught.value
    seen = [str(error), repr(error), repr(vars(error)), caplog.text]
    seen += traceback.format_exception(error)
    assert "docs" in str(error), "the provider's own words are kept"
    assert not [words for words in seen if SECRET in words]


def test_no_request_shows_a_header_of_a_server() -> None:
    request = penstock.SamplingRequest(
        messages=(penstock.user("hi"),), max_tokens=9, mcp_tools=(SERVER,)
    )
    assert "Authorization" in repr(request)
    assert SECRET not in repr(request) + str(request) + f"{SERVER}"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_provider_cannot_be_told_is_refused_before_anything_is_sent(
    kind: str,
) -> None:
    tool = MCPTool("http://host/mcp", "docs", {"X-Key": SECRET}, allowed_tools=["search"])
    async with RawServer(echo) as server, engine_at(server.url, kind) as engine:
        with pytest.raises(penstock.InvalidRequest) as caught:
            await engine.create_message("Hello", max_tokens=9, mcp_tools=[tool])
        assert SECRET not in str(caught.value)
        refused = {
            "anthropic": ("mcp_tools[0].url",),
            "gemini": ("mcp_tools[0].allowed_tools",),
        }
        assert getattr(caught.value, "options", None) == refused.get(kind)
        assert bool(server.requests) is (kind == "openai")


async def test_a_handle_gives_the_events_and_its_texts_the_text() -> None:
    async with WireServer(OpenAIResponses()) as upstream, engine_at(upstream.url) as engine:
        upstream.play(SCENARIO, SCENARIO, SCENARIO)
        options: dict[str, Any] = {"max_tokens": 9, "mcp_tools": [SERVER]}
        handle = await engine.create_message_stream("Hello", **options)
        kinds = [type(event) for event in [event async for event in handle]][:4]
        assert kinds == [ToolStarted, ToolEnded] * 2
        handle = await engine.create_message_stream("Hello", **options)
        assert [text async for text in handle.texts()] == ["Two ", "tides."]
        handle = await engine.create_message_stream("Hello", **options)
        assert [call.name for call in (await handle.result()).mcp_calls] == ["search", "open"]


async def test_the_gateways_clients_read_the_text_and_are_asked_to_call_nothing() -> None:
    async with WireServer(OpenAIResponses()) as upstream:
        upstream.play(SCENARIO, SCENARIO)
        async with running_gateway(engine_at(upstream.url)) as gateway:
            choice = (await gateway.chat("Hello")).json()["choices"][0]
            assert choice["message"] == {
                "role": "assistant",
                "content": "Two tides.",
                "refusal": None,
            }
            events = await gateway.stream("Hello")
        assert "tool_calls" not in json.dumps(events)
        said = [event["choices"][0]["delta"].get("content") for event in events[:-1]]
        assert said == ["", "Two ", "tides.", None]
        assert events[-1] == "[DONE]"


async def test_the_command_line_prints_the_text(tmp_path: Path) -> None:
    async with WireServer(OpenAIResponses()) as upstream:
        upstream.play(SCENARIO)
        (tmp_path / "penstock.toml").write_text(
            f'[providers.openai]\nurl = "{upstream.url}"\nauth_token = "k"\n'
        )
        command = ("ask", "Hello", "--model", "openai/test-model")
        finished = await asyncio.to_thread(run_penstock, *command, cwd=tmp_path)
    assert (finished.code, finished.out) == (0, "Two tides.\n")
