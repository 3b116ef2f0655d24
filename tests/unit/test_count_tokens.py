"""`engine.count_tokens`: who counts, what stands in, and which errors are the caller's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.config.server import LimitsConfig
from penstock.config.settings import Config, ModelConfig, PoolConfig, ProviderConfig
from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    ModelNotFound,
    ProviderTimeout,
    RateLimited,
    UnsupportedOption,
)
from penstock.contract.exchange import SamplingRequest, TokenCount
from penstock.contract.messages import system, user
from penstock.contract.options import Capabilities
from penstock.engine.engine import Engine
from penstock.tokens import estimate_request
from tests.support.raw import Peer, RawServer, answering, unused_port, whole
from tests.support.stub import StubProvider

HI = SamplingRequest(messages=(user("Hi there"),), max_tokens=9)
MODEL = "claude-sonnet-5-5"


def engine_at(url: str, **pool: Any) -> Engine:
    claude = ProviderConfig.model_validate(
        {"kind": "anthropic", "url": url, "auth_token": "sk-count"}
    )
    return Engine(
        Config(
            providers={"claude": claude},
            models={"default": ModelConfig(targets=(f"claude/{MODEL}", "claude/other"))},
            pool=PoolConfig.model_validate(pool),
            limits=LimitsConfig(max_stop_sequences=1),
        )
    )


def refusal(status: str, kind: str) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": "no"}}
    return whole(
        msgspec.json.encode(body), status=status, headers="content-type: application/json\r\n"
    )


async def test_the_providers_own_count_of_the_first_target() -> None:
    async with (
        RawServer(answering(whole(b'{"input_tokens": 42}'))) as server,
        engine_at(server.url) as engine,
    ):
        counted = await engine.count_tokens([system("Be brief."), user("Hi there")])
    assert counted == TokenCount(42, False, "claude", MODEL)
    (request,) = server.requests
    assert request.line == "POST /v1/messages/count_tokens HTTP/1.1"
    body = msgspec.json.decode(request.body)
    assert "max_tokens" not in body
    assert (body["model"], body["system"]) == (MODEL, "Be brief.")


async def test_a_request_that_says_everything_is_counted_too() -> None:
    async with (
        RawServer(answering(whole(b'{"input_tokens": 7}'))) as server,
        engine_at(server.url) as engine,
    ):
        assert (await engine.count_tokens(HI)).tokens == 7
        with pytest.raises(TypeError, match="inside the SamplingRequest"):
            await engine.count_tokens(HI, max_tokens=5)  # pyright: ignore[reportArgumentType]


async def test_there_is_room_for_thinking_though_nobody_said_how_much() -> None:
    async with (
        RawServer(answering(whole(b'{"input_tokens": 7}'))) as server,
        engine_at(server.url) as engine,
    ):
        haiku = "claude/claude-haiku-4-5"
        await engine.count_tokens("Hi", model=haiku, reasoning_level="low")
        await engine.count_tokens("Hi", model=haiku, reasoning_level="low", max_tokens=2000)
    budgets = [msgspec.json.decode(each.body)["thinking"] for each in server.requests]
    assert [each["budget_tokens"] > 1000 for each in budgets] == [True, True]


async def test_a_model_of_short_answers_is_counted_for_as_well() -> None:
    """What is taken for the limit when nobody names one is more than some models can say."""
    short = StubProvider(name="short", able=Capabilities(max_output=4096), tokens=5)
    engine = Engine(Config(models={"default": ModelConfig(targets=("short/m",))}))
    engine.use(short)
    async with engine:
        counts = [
            await engine.count_tokens("Hi there"),
            await engine.count_tokens("Hi there", max_tokens=5000),
            await engine.count_tokens("Hi there", max_tokens=9),
        ]
    assert [counted.tokens for counted in counts] == [5, 5, 5]
    assert [request.max_tokens for _, request in short.requests] == [4096, 4096, 9]


@pytest.mark.parametrize(
    "response",
    [
        refusal("404 Not Found", "not_found_error"),
        whole(b"404 page not found", status="404 Not Found"),
        whole(b"<html>", status="502 Bad Gateway"),
        refusal("529 Overloaded", "overloaded_error"),
        whole(b'{"tokens": 3}'),
        whole(b"no json"),
    ],
    ids=["no model", "no endpoint", "proxy", "overloaded", "another protocol", "garbage"],
)
async def test_an_estimate_takes_the_place_of_a_count_that_cannot_be_had(response: bytes) -> None:
    async with RawServer(answering(response)) as server, engine_at(server.url) as engine:
        counted = await engine.count_tokens("Hi there")
    assert len(server.requests) == 1
    assert counted == TokenCount(estimate_request(HI, MODEL), True, "claude", MODEL)


async def test_an_estimate_when_nobody_is_there() -> None:
    async with engine_at(f"http://127.0.0.1:{await unused_port()}") as engine:
        assert (await engine.count_tokens("Hi there")).estimated


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (refusal("401 Unauthorized", "authentication_error"), AuthenticationFailed),
        (refusal("429 Too Many", "rate_limit_error"), RateLimited),
        (refusal("400 Bad", "invalid_request_error"), InvalidRequest),
    ],
)
async def test_what_the_caller_must_know_is_raised(
    response: bytes, error: type[AuthenticationFailed | RateLimited | InvalidRequest]
) -> None:
    async with RawServer(answering(response)) as server, engine_at(server.url) as engine:
        with pytest.raises(error) as caught:
            await engine.count_tokens("Hi there")
    assert (caught.value.provider, caught.value.model) == ("claude", MODEL)
    assert (caught.value.request_id or "").startswith("req_")


async def test_the_callers_own_limit_is_the_callers() -> None:
    async def silent(peer: Peer) -> None:
        while await peer.request():
            pass

    async with RawServer(silent) as server, engine_at(server.url) as engine:
        with pytest.raises(ProviderTimeout, match=r"own limit of 0\.05 s"):
            await engine.count_tokens("Hi there", timeout=0.05)
    async with (
        RawServer(silent) as server,
        engine_at(server.url, request_timeout_s=0.05) as engine,
    ):
        assert (await engine.count_tokens("Hi there")).estimated


async def test_a_wrong_request_is_refused_before_anybody_is_asked() -> None:
    async with (
        RawServer(answering(whole(b'{"input_tokens": 7}'))) as server,
        engine_at(server.url) as engine,
    ):
        with pytest.raises(InvalidRequest, match="is blank"):
            await engine.count_tokens(" ")
        with pytest.raises(InvalidRequest, match="no such option"):
            await engine.count_tokens("Hi", maximum=3)  # pyright: ignore[reportCallIssue]
        with pytest.raises(InvalidRequest, match="stop_sequences: 2 given"):
            await engine.count_tokens("Hi", stop_sequences=["a", "b"])
        with pytest.raises(ModelNotFound):
            await engine.count_tokens("Hi", model="nowhere")
        with pytest.raises(UnsupportedOption, match="temperature"):
            await engine.count_tokens("Hi", model="claude/claude-opus-5-5", temperature=0.5)
        dropped = await engine.count_tokens(
            "Hi", model="claude/claude-opus-5-5", temperature=0.5, ignore_invalid_options=True
        )
    assert dropped.tokens == 7
    assert len(server.requests) == 1


async def test_only_the_first_target_is_asked() -> None:
    first, second = StubProvider(name="first", tokens=None), StubProvider(name="second", tokens=5)
    engine = Engine(Config(models={"default": ModelConfig(targets=("first/m", "second/m"))}))
    engine.use(first)
    engine.use(second)
    async with engine:
        assert await engine.count_tokens("Hi there") == TokenCount(
            estimate_request(HI, "m"), True, "first", "m"
        )
    assert not second.requests
