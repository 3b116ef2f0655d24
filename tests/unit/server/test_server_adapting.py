"""Options that a target lacks, at every endpoint and in front of every dialect."""

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.config.settings import Config
from penstock.contract.metadata import nanos_to_text
from penstock.engine.engine import Engine
from penstock.telemetry.exporters.logs import JsonLines, RequestLog
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from penstock.telemetry.records import Record, RequestRecord
from tests.conformance.subjects import BEDROCK, GEMINI, OPENAI, OPENAI_CHAT
from tests.support.wire.scenario import Pause, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import read_sse, socket_of

STOPS = ["END", "b1", "b2", "b3", "b4", "b5"]
"""More than any API of these takes."""
MODELS = {
    "openai": "m",
    "openai-chat": "o3",
    "gemini": "gemini-3.8-flash",
    "bedrock": "amazon.nova-pro-v1:0",
}
"""For each dialect a model that lacks stop sequences, or takes fewer."""
PRICE = {"input": 1.0, "output": 10.0}
HI = {"role": "user", "content": "Hi"}
PEERS = {each.name: each for each in (OPENAI, OPENAI_CHAT, GEMINI, BEDROCK)}
ADMIN_KEY = "admin-key-of-this-test"
ADAPTED = "x-penstock-adapted"


class Ask(NamedTuple):
    """One endpoint, and how it names things."""

    path: str
    body: Mapping[str, Any]
    stops: str


ENDPOINTS = {
    "chat": Ask("/v1/chat/completions", {"messages": [HI], "max_tokens": 90}, "stop"),
    "messages": Ask("/v1/messages", {"messages": [HI], "max_tokens": 90}, "stop_sequences"),
    "sampling": Ask(
        "/v1/sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
            "maxTokens": 90,
        },
        "stopSequences",
    ),
}
PEER = pytest.mark.parametrize("peer", MODELS)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
ENDPOINT = pytest.mark.parametrize("name", ENDPOINTS)


@contextlib.asynccontextmanager
async def gateway_on(
    name: str, model: str = "", folder: Path | None = None, **own: Any
) -> AsyncGenerator[tuple[Gateway, WireServer]]:
    """A gateway whose model `a` is served by one upstream; with a folder it keeps a ledger."""
    peer = PEERS[name]
    async with peer.upstream() as upstream:
        assert isinstance(upstream, WireServer)
        target = f"{peer.name}/{model or MODELS[name]}"
        models = {"a": {"targets": [target], "prices": {target: PRICE}, **own}}
        settings: dict[str, Any] = {
            "server": {"admin_key": ADMIN_KEY},
            "providers": {peer.name: peer.settings(upstream).model_dump(exclude_none=True)},
            "models": models,
            "pool": {"retries": 0},
        }
        if folder is not None:
            settings["storage"] = {"url": f"sqlite:///{folder / 'books.db'}"}
            settings["budgets"] = {"total": {"limit_usd": 1_000.0}}
        settings["providers"][peer.name]["auth_token"] = "k"
        async with running_gateway(Engine(Config.model_validate(settings))) as gateway:
            yield gateway, upstream


def said(name: str, text: str, *, stream: bool) -> tuple[str, str | None, str | None]:
    """The text of an answer, why it ended, and the stop sequence where that is told."""
    if not stream:
        answer = json.loads(text)
        if name == "chat":
            (choice,) = answer["choices"]
            return choice["message"]["content"], choice["finish_reason"], None
        if name == "messages":
            whole = "".join(block["text"] for block in answer["content"])
            return whole, answer["stop_reason"], answer["stop_sequence"]
        return answer["content"]["text"], answer["stopReason"], None
    if name == "sampling":
        events = read_sse(text)
        pieces = [data["content"]["text"] for kind, data in events if kind == "chunk"]
        return "".join(pieces), events[-1][1]["stopReason"], None
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    documents = [json.loads(line) for line in lines if line != "[DONE]"]
    if name == "chat":
        choices = [each["choices"][0] for each in documents if each["choices"]]
        pieces = [choice["delta"].get("content") or "" for choice in choices]
        return "".join(pieces), choices[-1]["finish_reason"], None
    pieces = [each["delta"]["text"] for each in documents if each["type"] == "content_block_delta"]
    (delta,) = [each["delta"] for each in documents if each["type"] == "message_delta"]
    return "".join(pieces), delta["stop_reason"], delta["stop_sequence"]


REASONS = {
    "chat": ("stop", None),
    "messages": ("stop_sequence", "END"),
    "sampling": ("stopSequence", None),
}


@ENDPOINT
@PEER
@STREAM
async def test_a_stop_sequence_ends_the_answer_and_the_call(
    name: str, peer: str, stream: bool, tmp_path: Path
) -> None:
    ask = ENDPOINTS[name]
    async with gateway_on(peer, folder=tmp_path) as (gateway, upstream):
        # Without the cut it would never end.
        pause = Pause(after=3)
        upstream.play(Scenario(text=("one E", "ND ", "two ", "three"), pause=pause))
        body = {**ask.body, "model": "a", "stream": stream, ask.stops: STOPS}
        response = await gateway.client.post(ask.path, json=body)
        assert response.status_code == 200, response.text
        assert said(name, response.text, stream=stream) == ("one ", *REASONS[name])
        assert response.headers[ADAPTED] == "stop_sequences=emulated"
        async with asyncio.timeout(20):
            await upstream.gone()
        assert upstream.seen[-1].stop == ()
        # It is billed once, for the prompt and what was delivered.
        ledger = await gateway.engine.ledger()
        (entry,) = [each for each in (await ledger.history()).entries if each.kind == "settle"]
        assert entry.estimated
        assert 0 < entry.amount_nanos < 1_000 * 1_000
        if not stream:
            assert response.headers["x-penstock-cost-usd"] == nanos_to_text(entry.amount_nanos)
        assert [balance.held_nanos for balance in await ledger.balances()] == [0]
        assert not await ledger.verify()


@PEER
async def test_the_websocket_ends_at_a_stop_sequence(peer: str) -> None:
    async with gateway_on(peer) as (gateway, upstream):
        upstream.play(Scenario(text=("one E", "ND ", "two "), pause=Pause(after=3)))
        async with socket_of(gateway) as socket:
            await socket.ask(1, "Hi", model="a", stream=True, stopSequences=STOPS)
            end = await socket.end(1)
        result = end["result"]
        assert (result["content"]["text"], result["stopReason"]) == ("one ", "stopSequence")
        assert result["_metadata"]["adapted"] == ["stop_sequences=emulated"]


OPTIONS: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("openai", "gpt-6-luna", "chat", {"temperature": 0.5}, "temperature=omitted"),
    ("openai", "gpt-6-luna", "sampling", {"temperature": 0.5}, "temperature=omitted"),
    ("bedrock", "amazon.nova-pro-v1:0", "chat", {"temperature": 1.5}, "temperature=1"),
    ("openai-chat", "gpt-4o", "messages", {"max_tokens": 32_000}, "max_tokens=16384"),
    ("openai-chat", "gpt-4o", "chat", {"reasoning_effort": "high"}, "reasoning_level=omitted"),
    ("openai-chat", "o3", "chat", {"reasoning_effort": "xhigh"}, "reasoning_level=high"),
    ("bedrock", "m", "messages", {"top_k": 5}, "top_k=omitted"),
    (
        "openai",
        "m",
        "messages",
        {"context_management": {"edits": []}},
        "context_management=omitted",
    ),
]


@pytest.mark.parametrize("case", OPTIONS, ids=lambda case: f"{case[0]}-{case[4]}")
@STREAM
async def test_an_advisory_option_is_adapted_told_and_refused_on_request(
    case: tuple[str, str, str, dict[str, Any], str], stream: bool
) -> None:
    peer, model, name, option, told = case
    ask = ENDPOINTS[name]
    records: list[Record] = []
    metrics = PrometheusMetrics()
    async with gateway_on(peer, model) as (gateway, upstream):
        gateway.engine.hooks.subscribe(records.append)
        gateway.engine.hooks.subscribe(metrics)
        body = {**ask.body, "model": "a", "stream": stream, **option}
        upstream.play(Scenario(text=("Hello",)))
        response = await gateway.client.post(ask.path, json=body)
        assert response.status_code == 200, response.text
        assert response.headers[ADAPTED] == told
        (record,) = [each for each in records if isinstance(each, RequestRecord)]
        assert list(map(str, record.adapted)) == [told]
        option_name, _, _ = told.partition("=")
        exposed = metrics.exposition()[0].decode()
        assert f'penstock_adapted_total{{answer="adapted",option="{option_name}"}} 1.0' in exposed
        sent = len(upstream.seen)
        strict = {"x-penstock-adapt": "refuse"}
        refused = await gateway.client.post(ask.path, json=body, headers=strict)
        assert refused.status_code == 400, refused.text
        assert option_name in refused.json()["error"]["message"]
        assert len(upstream.seen) == sent


@pytest.mark.parametrize("level", ["xhigh", "max"])
@pytest.mark.parametrize("name", ["chat", "messages"])
async def test_an_effort_that_the_target_has_is_sent_as_it_is(name: str, level: str) -> None:
    ask = ENDPOINTS[name]
    effort = {"reasoning_effort": level} if name == "chat" else {"output_config": {"effort": level}}
    async with gateway_on("openai", "gpt-6-luna") as (gateway, upstream):
        upstream.play(Scenario(text=("Hello",)))
        response = await gateway.client.post(ask.path, json={**ask.body, "model": "a", **effort})
        assert response.status_code == 200, response.text
        assert ADAPTED not in response.headers
        assert json.loads(upstream.bodies[-1])["reasoning"]["effort"] == level


async def test_an_option_is_said_in_the_words_of_the_target() -> None:
    async with gateway_on("gemini") as (gateway, upstream):
        upstream.play(Scenario(text=("Hello",)))
        body = {"model": "a", "messages": [HI], "top_p": 0.5, "seed": 7, "store": True}
        response = await gateway.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        assert response.headers[ADAPTED] == "store=omitted"
        config = json.loads(upstream.bodies[-1])["generationConfig"]
        assert (config["topP"], config["seed"]) == (0.5, 7)


async def test_verbosity_goes_where_the_responses_api_has_it() -> None:
    async with gateway_on("openai", "gpt-6-luna") as (gateway, upstream):
        upstream.play(Scenario(text=("Hello",)), Scenario(text=("Hello",)))
        body = {"model": "a", "input": "Hi", "text": {"verbosity": "low"}}
        response = await gateway.client.post("/v1/responses", json=body)
        assert response.status_code == 200, response.text
        assert ADAPTED not in response.headers
        assert json.loads(upstream.bodies[-1])["text"]["verbosity"] == "low"
        chat = {"model": "a", "messages": [HI], "verbosity": "low"}
        await gateway.client.post("/v1/chat/completions", json=chat)
        assert json.loads(upstream.bodies[-1])["text"]["verbosity"] == "low"
    async with gateway_on("openai", "gpt-4.1") as (gateway, upstream):
        upstream.play(Scenario(text=("Hello",)))
        response = await gateway.client.post("/v1/responses", json=body)
        assert response.headers[ADAPTED] == "verbosity=omitted"
        assert "verbosity" not in upstream.bodies[-1]


async def test_the_configuration_of_a_model_refuses_and_a_header_overrides_it() -> None:
    async with gateway_on("openai", "gpt-6-luna", adapt="refuse") as (gateway, upstream):
        upstream.play(*[Scenario(text=("Hello",))] * 2)
        body = {"model": "a", "messages": [HI], "temperature": 0.5}
        path = "/v1/chat/completions"
        assert (await gateway.client.post(path, json=body)).status_code == 400
        allowed = await gateway.client.post(path, json=body, headers={"x-penstock-adapt": "Adapt"})
        assert allowed.status_code == 200, allowed.text
        async with socket_of(gateway) as socket:
            await socket.ask(1, "Hi", model="a", temperature=0.5)
            assert (await socket.end(1))["type"] == "error"
        # The default model is not of this table, and adapts.
        other = {**body, "model": "openai/gpt-6-luna"}
        assert (await gateway.client.post(path, json=other)).status_code == 200


@ENDPOINT
@pytest.mark.parametrize("value", ["yes", "", "adapt, refuse"])
async def test_another_value_of_the_header_is_refused(name: str, value: str) -> None:
    ask = ENDPOINTS[name]
    async with gateway_on("openai") as (gateway, upstream):
        response = await gateway.client.post(
            ask.path, json={**ask.body, "model": "a"}, headers={"x-penstock-adapt": value}
        )
        assert response.status_code == 400, response.text
        assert "x-penstock-adapt" in response.text
        assert "give adapt or refuse" in response.text
        assert not upstream.seen


async def test_what_is_essential_is_refused_all_the_same() -> None:
    async with gateway_on("bedrock", "m") as (gateway, upstream):
        body = {"model": "a", "messages": [HI], "logprobs": True, "temperature": 1.5}
        response = await gateway.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400, response.text
        # Only what cannot be done is named.
        assert "does not support logprobs;" in response.json()["error"]["message"]
        assert not upstream.seen


async def test_engine_sample_adapts_and_create_message_refuses() -> None:
    async with gateway_on("openai", "gpt-6-luna") as (gateway, upstream):
        engine = gateway.engine
        upstream.play(*[Scenario(text=("one EN", "D two"))] * 2)
        params = {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
            "maxTokens": 90,
            "temperature": 0.5,
            "stopSequences": ["END"],
        }
        result = await engine.sample(params, model="a")
        assert (result.text, result.stop_reason) == ("one ", "stopSequence")
        assert result.stop_sequence == "END"
        assert result.metadata.adapted == ("stop_sequences=emulated", "temperature=omitted")
        assert result.metadata.dropped_options == ("temperature",)
        with pytest.raises(Exception, match="does not support temperature; leave it out"):
            await engine.create_message("Hi", max_tokens=9, model="a", temperature=0.5)
        # What is done here with the same result needs no leave.
        kept = await engine.create_message("Hi", max_tokens=9, model="a", stop_sequences=["END"])
        assert (kept.text, kept.metadata.dropped_options) == ("one ", ())


async def test_the_admin_api_and_the_log_tell_what_was_adapted() -> None:
    async with gateway_on("openai", "gpt-6-luna") as (gateway, upstream):
        logger, written = logging.Logger("lines"), io.StringIO()
        handler = logging.StreamHandler(written)
        handler.setFormatter(JsonLines())
        logger.addHandler(handler)
        gateway.engine.hooks.subscribe(RequestLog(logger))
        upstream.play(Scenario(text=("Hello",)))
        body = {"model": "a", "messages": [HI], "temperature": 0.5}
        response = await gateway.client.post("/v1/chat/completions", json=body)
        request_id = response.headers["x-request-id"]
        found = await gateway.client.get(
            f"/admin/v1/requests/{request_id}", headers={"authorization": f"Bearer {ADMIN_KEY}"}
        )
        assert found.status_code == 200, found.text
        assert found.json()["attempts"][0]["adapted"] == ["temperature=omitted"]
        assert json.loads(written.getvalue())["adapted"] == ["temperature=omitted"]
