"""The application without a server: what no HTTP client can bring about."""

import sys
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.contract.errors import ConfigurationError
from penstock.contract.options import Capabilities
from penstock.engine.engine import Engine
from penstock.server.app import application
from penstock.server.dispatch import App, Route
from penstock.server.doors.openai_chat.endpoint import ROUTES, room
from penstock.server.exchange import Exchange
from penstock.server.process.serve import warm
from penstock.testing import FakeProvider, engine_with


async def run(app: Any, scope: dict[str, Any], events: Iterable[dict[str, Any]]) -> list[Any]:
    """What the application sends for these events."""
    waiting = iter(events)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return next(waiting)

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app(scope, receive, send)
    return sent


def fake_app() -> Any:
    engine = engine_with(FakeProvider())
    return application(lambda: engine, engine.config)


def request(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": []}


LIFESPAN = ({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})


async def while_running(
    app: Any, *asked: tuple[dict[str, Any], Iterable[dict[str, Any]]]
) -> list[list[Any]]:
    """What the application sends for each of these between its start and its end."""
    answers: list[list[Any]] = []
    stages = iter(LIFESPAN)

    async def receive() -> dict[str, Any]:
        stage = next(stages)
        if stage is LIFESPAN[1]:
            answers.extend([await run(app, scope, events) for scope, events in asked])
        return stage

    async def send(_: dict[str, Any]) -> None:
        pass

    await app({"type": "lifespan"}, receive, send)
    return answers


async def test_the_engine_lives_as_long_as_the_server() -> None:
    class Watched(FakeProvider):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    provider = Watched()
    engine = engine_with(provider)
    sent = await run(application(lambda: engine, engine.config), {"type": "lifespan"}, LIFESPAN)
    assert [event["type"] for event in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert provider.closed


async def test_an_engine_that_cannot_be_opened_stops_the_start() -> None:
    def refuse() -> Engine:
        raise ConfigurationError("no such provider")

    (sent,) = await run(application(refuse, Config.embedded()), {"type": "lifespan"}, LIFESPAN)
    assert sent == {"type": "lifespan.startup.failed", "message": "no such provider"}


async def test_nothing_is_answered_before_the_start() -> None:
    start, _ = await run(fake_app(), request("GET", "/health"), ())
    assert start["status"] == 503


@pytest.mark.parametrize("path", ["/v1/sampling/ws", "/nowhere"])
async def test_a_websocket_that_cannot_be_had_is_closed(path: str) -> None:
    scope: dict[str, Any] = {"type": "websocket", "path": path, "headers": []}
    closed = [{"type": "websocket.close", "code": 1008}]
    assert await run(fake_app(), scope, ()) == closed
    start, body = await run(fake_app(), scope | {"extensions": {"websocket.http.response": {}}}, ())
    assert start["type"] == "websocket.http.response.start"
    assert start["status"] == (404 if path == "/nowhere" else 503)
    assert b"x-request-id" in dict(start["headers"])
    assert b'"error"' in body["body"]


async def test_a_body_that_lies_about_its_length() -> None:
    engine = engine_with(FakeProvider())
    app = App(lambda: engine, ROUTES, max_request_bytes=10)
    whole = [{"type": "http.request", "body": b"x" * 11, "more_body": False}]
    pieces = [
        {"type": "http.request", "body": b"x" * 5, "more_body": True},
        {"type": "http.request", "body": b"x" * 6, "more_body": False},
    ]
    chat = request("POST", "/v1/chat/completions")
    for start, _ in await while_running(app, (chat, whole), (chat, pieces)):
        assert start["status"] == 413


@pytest.mark.parametrize(
    ("able", "tokens"),
    [
        (Capabilities(), 4096),
        (Capabilities(max_output=1000), 1000),
        (Capabilities(max_output=128_000), 16_384),
        (Capabilities(context_window=8192), 4096),
        (Capabilities(context_window=1024), 512),
        (Capabilities(max_output=128_000, context_window=20_000), 10_000),
    ],
)
async def test_how_much_a_model_may_say_when_nobody_says(able: Capabilities, tokens: int) -> None:
    class Able(FakeProvider):
        def capabilities(self, model: str) -> Capabilities:
            return able

    async with engine_with(Able()) as engine:
        assert room(engine, None) == tokens


async def test_a_first_target_without_a_key_leaves_the_second_its_chance() -> None:
    config = Config(
        providers={"openai-chat": ProviderConfig(), "fake": ProviderConfig()},
        models={"default": ModelConfig(targets=("openai-chat/x", "fake/echo"))},
    )
    async with Engine(config) as engine:
        assert room(engine, "default") == 4096


@pytest.mark.parametrize("missing", [[], ["xllamacpp"]])
async def test_the_embedded_model_is_warmed_when_it_is_there(
    missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.process.serve.missing", lambda: missing)
    model = FakeProvider(name="embedded")
    async with Engine(Config.embedded()) as engine:
        engine.use(model)
        await warm(engine)
    assert [request.max_tokens for request in model.requests] == ([] if missing else [1])


async def test_a_provider_over_http_is_warmed_by_its_client() -> None:
    config = Config(
        providers={"up": ProviderConfig(kind="vllm")},
        models={"default": ModelConfig(targets=("up/x",))},
    )
    async with Engine(config) as engine:
        await warm(engine)
    assert "penstock.providers.http.client" in sys.modules
    async with Engine(Config(providers={"fake": ProviderConfig()})) as engine:
        await warm(engine)


async def test_a_failure_after_the_end_is_nobodys_business(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_: Engine, exchange: Exchange) -> None:
        await exchange.reply(b"{}")
        raise RuntimeError("too late")

    engine = engine_with(FakeProvider())
    app = App(lambda: engine, {("GET", "/x"): Route(handler)}, max_request_bytes=1)
    (answer,) = await while_running(app, (request("GET", "/x"), ()))
    assert [event["type"] for event in answer] == ["http.response.start", "http.response.body"]
    assert "failed" in caplog.text
