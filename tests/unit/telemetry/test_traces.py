"""A trace from the caller through the gateway to the provider, with real HTTP on both sides."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Config
from penstock.config.settings import ModelConfig, PoolConfig, ProviderConfig
from penstock.engine.engine import Engine
from penstock.telemetry.exporters.otel import OpenTelemetry
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.scenario import Failure, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, chat_body, running_gateway

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CHAT = "/v1/chat/completions"


@dataclass
class Traced:
    gateway: Gateway
    upstream: WireServer
    exporter: InMemorySpanExporter
    unsubscribe: Callable[[], None]

    async def ask(self, **fields: object) -> httpx.Response:
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "who=me"}
        body = chat_body("Hi", model="default", **fields)
        return await self.gateway.client.post(CHAT, json=body, headers=headers)

    def sent(self) -> list[dict[str, str]]:
        return [dict(each.headers) for each in self.upstream.seen]


@pytest.fixture
async def traced() -> AsyncGenerator[Traced]:
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    async with WireServer(OpenAIChat()) as upstream:
        provider = ProviderConfig.model_validate({"kind": "openai-chat", "url": upstream.url})
        engine = Engine(
            Config(
                providers={"chat": provider},
                models={"default": ModelConfig(targets=("chat/one", "chat/two"))},
                pool=PoolConfig(retries=0),
            )
        )
        telemetry = OpenTelemetry(tracer_provider=tracers)
        unsubscribe = engine.hooks.subscribe(telemetry)
        async with running_gateway(engine) as gateway:
            yield Traced(gateway, upstream, exporter, unsubscribe)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_provider_sees_the_callers_trace_and_the_span_of_its_attempt(
    traced: Traced, stream: bool
) -> None:
    traced.upstream.play(Scenario(failure=Failure("overloaded")), Scenario(text=("Hello",)))
    assert (await traced.ask(stream=stream)).status_code == 200
    spans = traced.exporter.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in spans if span.context} == {TRACE}
    attempts = [span for span in spans if span.name.startswith("attempt ")]
    (request,) = [span for span in spans if span not in attempts]
    assert [span.name for span in attempts] == ["attempt chat/one", "attempt chat/two"]
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    for span, headers in zip(attempts, traced.sent(), strict=True):
        assert span.context is not None
        assert headers["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
        assert headers["tracestate"] == "vendor=1"
        assert "baggage" not in headers


async def test_without_a_subscriber_nothing_goes_to_the_provider(traced: Traced) -> None:
    traced.unsubscribe()
    traced.upstream.play(Scenario(text=("Hello",)))
    assert (await traced.ask()).status_code == 200
    assert "traceparent" not in traced.sent()[0]
