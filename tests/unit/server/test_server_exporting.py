"""A gateway that sends its traces and metrics to a real collector on loopback."""

import contextlib
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config.settings import Config, ModelConfig, ProviderConfig
from penstock.config.telemetry import TelemetryConfig
from penstock.contract.errors import ConfigurationError
from penstock.engine.engine import Engine
from penstock.server.app import application
from penstock.server.ops.otlp import exporter_of
from penstock.server.process.serve import serve
from tests.support.collector import Collector, attributes, collecting
from tests.support.services import free_port, wait_until
from tests.unit.server.gateway_support import Gateway, running_gateway

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Spans leave soon, and the levels of OpenTelemetry's loggers are put back."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    names = ("opentelemetry.exporter.otlp", "opentelemetry.sdk")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def collector() -> Generator[Collector]:
    """One that takes everything."""
    with collecting() as made:
        yield made


def config_with(provider: str = "stand-in", **telemetry: Any) -> Config:
    return Config(
        providers={provider: ProviderConfig(kind="fake")},
        models={"default": ModelConfig(targets=(f"{provider}/echo",))},
        telemetry=TelemetryConfig(**telemetry),
    )


@contextlib.asynccontextmanager
async def gateway_with(**telemetry: Any) -> AsyncGenerator[Gateway]:
    async with running_gateway(Engine(config_with(**telemetry))) as gateway:
        yield gateway


async def test_traces_and_metrics_arrive(collector: Collector) -> None:
    headers = {"authorization": "Bearer sesame"}
    async with gateway_with(
        otlp_endpoint=f"{collector.url}/", otlp_headers=headers, service_name="front"
    ) as gateway:
        response = await gateway.client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "Hi there"}]},
            headers={"traceparent": TRACEPARENT},
        )
        assert response.status_code == 200
        spans = {span.name: span for span in collector.wait_for_spans(2)}
        request, attempt = spans["chat"], spans["attempt stand-in/echo"]
        assert request.trace_id.hex() == attempt.trace_id.hex() == TRACE
        assert request.parent_span_id.hex() == PARENT
        assert attempt.parent_span_id == request.span_id
        found = attributes(request.attributes)
        assert found["penstock.request_id"] == response.headers["x-request-id"]
        assert found["gen_ai.provider.name"] == "fake"
        assert found["penstock.provider"] == "stand-in"
        assert "Hi there" not in str(collector.traces)
    # What was counted leaves at the end at the latest.
    assert "gen_ai.client.operation.duration" in collector.metric_names
    assert {sent["authorization"] for sent in collector.headers} == {"Bearer sesame"}
    assert {sender["service.name"] for sender in collector.resources()} == {"front"}
    assert len({sender["service.instance.id"] for sender in collector.resources()}) == 1


async def test_a_changed_configuration_goes_on_with_it(collector: Collector) -> None:
    async with gateway_with(otlp_endpoint=collector.url) as gateway:
        await gateway.app.change(config_with("newcomer", otlp_endpoint=collector.url))
        assert (await gateway.chat("Hi")).status_code == 200
        spans = {span.name: span for span in collector.wait_for_spans(2)}
    found = attributes(spans["attempt newcomer/echo"].attributes)
    assert found["gen_ai.provider.name"] == "fake"
    assert found["penstock.provider"] == "newcomer"


async def test_the_end_waits_for_what_is_left(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    async with gateway_with(otlp_endpoint=collector.url) as gateway:
        assert (await gateway.chat("Hi")).status_code == 200
        assert collector.spans == []
    assert len(collector.spans) == 2


async def test_the_standard_variables_are_enough(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "by-variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    async with gateway_with() as gateway:
        assert (await gateway.chat("Hi")).status_code == 200
        collector.wait_for_spans(2)
    sender = collector.resources()[0]
    assert sender["service.name"] == "by-variable"
    assert sender["deployment.environment"] == "test"
    assert collector.headers[0]["x-team"] == "blue"


async def test_without_a_name_it_is_penstock(collector: Collector) -> None:
    async with gateway_with(otlp_endpoint=collector.url) as gateway:
        await gateway.chat("Hi")
    assert collector.resources()[0]["service.name"] == "penstock"


async def test_a_share_of_the_traces(collector: Collector) -> None:
    async with gateway_with(otlp_endpoint=collector.url, sample_ratio=0) as gateway:
        await gateway.chat("Hi")
        # A caller that follows its own trace is not left without the rest of it.
        await gateway.client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "Hi"}]},
            headers={"traceparent": TRACEPARENT},
        )
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    (sent,) = collector.metrics
    (duration,) = [
        metric
        for scope in sent.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name == "gen_ai.client.operation.duration"
    ]
    assert sum(point.count for point in duration.histogram.data_points) == 2


def test_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exporter_of(Config()) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert exporter_of(Config()) is None


async def test_a_collector_that_is_away_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    caplog.set_level(logging.INFO)
    port = free_port()

    def said(words: str) -> int:
        return sum(words in record.message for record in caplog.records)

    async with gateway_with(
        otlp_endpoint=f"http://user:sesame@127.0.0.1:{port}/secret-path"
    ) as gateway:
        assert (await gateway.chat("Hi")).status_code == 200
        assert wait_until(lambda: said("takes no telemetry") == 1, 30)
        for _ in range(3):
            assert (await gateway.chat("Hi")).status_code == 200
    assert said("takes no telemetry") == 1
    assert said(f"http://127.0.0.1:{port}") == 1
    assert "sesame" not in caplog.text
    assert "secret-path" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


async def test_a_collector_that_is_back_is_told(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 400
    async with gateway_with(otlp_endpoint=collector.url) as gateway:
        await gateway.chat("Hi")
        assert wait_until(lambda: "takes no telemetry" in caplog.text, 30)
        collector.status = 200
        await gateway.chat("Hi")
        assert wait_until(lambda: "takes telemetry again" in caplog.text, 30)


async def test_a_silent_collector_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # It accepts and says nothing: who waits for it waits longer than this test may take.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with gateway_with(otlp_endpoint=url) as gateway:
            for _ in range(3):
                assert (await gateway.chat("Hi")).status_code == 200


def without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.telemetry.exporters.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_packages(monkeypatch)
    config = config_with(otlp_endpoint="http://127.0.0.1:4318")
    with pytest.raises(
        ConfigurationError, match=r"otlp_endpoint .* pip install 'penstock\[otel\]'"
    ):
        application(lambda: Engine(config), config)


def test_several_workers_say_it_once_and_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_packages(monkeypatch)
    config = config_with(otlp_endpoint="http://127.0.0.1:4318")
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[otel\]'"):
        serve(config, host="127.0.0.1", port=0, source="a test", workers=2)


def test_a_variable_that_may_be_meant_for_others_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_the_packages(monkeypatch)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert exporter_of(Config()) is None
    assert "pip install 'penstock[otel]'" in caplog.text


def test_headers_are_masked() -> None:
    config = config_with(
        otlp_endpoint="http://127.0.0.1:4318", otlp_headers={"authorization": "sesame"}
    )
    for shown in (repr(config), str(config.model_dump()), config.model_dump_json()):
        assert "authorization" in shown
        assert "sesame" not in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"otlp_endpoint": "127.0.0.1:4318"},
        {"sample_ratio": 1.5},
        {"sample_ratio": -0.1},
        {"service_name": ""},
    ],
    ids=str,
)
def test_wrong_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TelemetryConfig(**wrong)
