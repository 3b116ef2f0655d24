"""Readiness and metrics of a running gateway."""

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider
from tests.unit.server.gateway_support import running_gateway


def engine_of(*providers: FakeProvider, **sections: object) -> Engine:
    config = {
        "providers": {provider.name: {"kind": "fake"} for provider in providers},
        "models": {"default": {"targets": [f"{provider.name}/echo" for provider in providers]}},
        **sections,
    }
    engine = Engine(Config.model_validate(config), keep_books=True)
    for provider in providers:
        engine.use(provider)
    return engine


async def test_a_gateway_is_ready_as_long_as_a_target_is_well() -> None:
    engine = engine_of(FakeProvider(name="first"), FakeProvider(name="second"))
    async with running_gateway(engine) as gateway:
        answer = await gateway.client.get("/ready")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")
        engine.mark_down("first/echo", "maintenance")
        assert (await gateway.client.get("/ready")).status_code == 200
        engine.mark_down("second/echo", "maintenance")
        answer = await gateway.client.get("/ready")
        assert answer.status_code == 503
        (problem,) = answer.json()["problems"]
        assert "no target of the default model is well" in problem
        assert "marked down: maintenance" in problem
        assert {each["target"] for each in answer.json()["targets"]} == {
            "first/echo",
            "second/echo",
        }
        assert [each["state"] for each in answer.json()["background"]] == ["running"] * 2


async def test_a_gateway_whose_ledger_is_gone_is_not_ready() -> None:
    engine = engine_of(FakeProvider(), storage={"url": "sqlite:////proc/none/x.db"})
    async with running_gateway(engine) as gateway:
        answer = await gateway.client.get("/ready")
        assert answer.status_code == 503
        assert answer.json()["problems"][0].startswith("ledger: storage.url: the folder /proc/none")


async def test_metrics_count_what_came_through_any_door() -> None:
    async with running_gateway(engine_of(FakeProvider())) as gateway:
        assert (await gateway.chat("Hi there", model="default")).status_code == 200
        await gateway.stream("Hi there", model="default")
        assert (await gateway.chat("Hi", model="no-such-model")).status_code == 404
        answer = await gateway.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        lines = answer.text.splitlines()
    labels = 'model="default",operation="chat",outcome="ok"'
    assert f'penstock_requests_total{{error="",{labels}}} 2.0' in lines
    assert 'penstock_requests_in_progress{operation="chat"} 0.0' in lines
    assert any('error="ModelNotFound",model="other"' in line for line in lines)
    tokens = 'penstock_tokens_total{provider="fake",type="input",upstream_model="echo"} 4.0'
    assert tokens in lines


@pytest.mark.parametrize("path", ["/ready", "/metrics"])
async def test_only_reading_is_allowed(path: str) -> None:
    async with running_gateway(engine_of(FakeProvider())) as gateway:
        assert (await gateway.client.post(path)).status_code == 405
        assert (await gateway.client.head(path)).status_code == 200
