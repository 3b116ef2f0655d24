"""Spans and metrics as the real SDK exports them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock import SamplingRequest, assistant, user
from penstock.contract.exchange import Usage
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.telemetry.exporters.otel import OpenTelemetry
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import RequestContent
from tests.support.telemetry import ATTEMPT, ATTEMPTED, FINISHED, STARTED, attempted, finished, play

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@dataclass
class Sdk:
    """The real SDK with exporters in memory."""

    hooks: Hooks
    telemetry: OpenTelemetry
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracers: TracerProvider

    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def sdk_with(**options: Any) -> Sdk:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = OpenTelemetry(tracer_provider=tracers, meter_provider=meters, **options)
    hooks = Hooks()
    hooks.subscribe(telemetry, content=telemetry.capture_content)
    return Sdk(hooks, telemetry, exporter, reader, tracers)


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    sdk = sdk_with(kinds={"openai": "openai"})
    yield sdk
    sdk.tracers.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def test_a_request_is_a_span_with_its_attempt_under_it(sdk: Sdk) -> None:
    begun = msgspec.structs.replace(STARTED, max_tokens=99, temperature=0.5)
    play(sdk.hooks, begun, usage=Usage(10, 4, 6, 2, 1), response_id="resp_1", model="gpt-6-0101")
    attempt, request = sdk.spans()
    assert request.name == "chat assistant"
    assert request.kind is SpanKind.CLIENT
    assert request.status.status_code is StatusCode.UNSET
    assert (request.start_time, request.end_time) == (1000 * 10**9, 1002 * 10**9)
    assert attributes(request) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "assistant",
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "gpt-6-0101",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 6,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "penstock.attempts": 1,
        "penstock.cost_usd": 0.0015,
        "penstock.outcome": "ok",
        "penstock.provider": "openai",
        "penstock.request_id": "req_1",
    }
    assert attempt.name == "attempt openai/gpt-6"
    assert attempt.kind is SpanKind.CLIENT
    assert parent_id(attempt) == span_id(request)
    assert trace_id(attempt) == trace_id(request)
    assert (attempt.start_time, attempt.end_time) == (1000_250_000_000, 1001_750_000_000)
    assert attributes(attempt) == {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-6",
        "penstock.attempt": 1,
        "penstock.outcome": "ok",
        "penstock.provider": "openai",
        "penstock.request_id": "req_1",
    }


def test_a_failover_shows_each_attempt_with_its_error(sdk: Sdk) -> None:
    sdk.hooks.started(STARTED)
    with sdk.hooks.attempting(ATTEMPT):
        pass
    first = attempted(outcome="failed", error="RateLimited", status=429, retryable=True)
    sdk.hooks.attempt(first)
    second = msgspec.structs.replace(ATTEMPT, number=2, provider="claude", model="claude-5")
    with sdk.hooks.attempting(second):
        pass
    answered = attempted(
        number=2, provider="claude", model="claude-5", dropped_options=("temperature",)
    )
    sdk.hooks.attempt(answered)
    sdk.hooks.finished(finished(attempts=(first, answered), provider="claude"))
    failed = sdk.span("attempt openai/gpt-6")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is None
    assert attributes(failed)["error.type"] == "RateLimited"
    assert attributes(failed)["http.response.status_code"] == 429
    assert attributes(failed)["penstock.retryable"] is True
    other = sdk.span("attempt claude/claude-5")
    assert "error.type" not in attributes(other)
    assert attributes(other)["penstock.dropped_options"] == ("temperature",)
    request = sdk.span("chat assistant")
    assert parent_id(failed) == parent_id(other) == span_id(request)
    assert request.status.status_code is StatusCode.UNSET
    assert attributes(request)["penstock.attempts"] == 2


def test_a_failed_request_has_an_error_type_and_a_cancelled_one_has_none(sdk: Sdk) -> None:
    play(sdk.hooks, outcome="failed", error="AllTargetsFailed", usage=None, stop_reason=None)
    request = sdk.span("chat assistant")
    assert request.status.status_code is StatusCode.ERROR
    assert attributes(request)["error.type"] == "AllTargetsFailed"
    assert "gen_ai.response.model" not in attributes(request)
    sdk.exporter.clear()
    play(sdk.hooks, outcome="cancelled", stop_reason=None)
    request = sdk.span("chat assistant")
    assert request.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(request)
    assert attributes(request)["penstock.outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("kinds", "provider", "expected"),
    [
        ({"claude": "anthropic"}, "claude", "anthropic"),
        ({"google": "gemini"}, "google", "gcp.gemini"),
        ({}, "bedrock", "aws.bedrock"),
        ({}, "mistral", "mistral_ai"),
        ({}, "xai", "x_ai"),
        ({"local": "openai-chat"}, "local", "openai-chat"),
        ({}, "groq", "groq"),
    ],
)
def test_providers_are_called_as_the_conventions_call_them(
    kinds: dict[str, str], provider: str, expected: str
) -> None:
    sdk = sdk_with(kinds=kinds)
    sdk.hooks.started(STARTED)
    sdk.hooks.finished(finished(provider=provider))
    found = attributes(sdk.span("chat assistant"))
    assert found["gen_ai.provider.name"] == expected
    assert found["penstock.provider"] == provider


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("endTurn", "stop"),
        ("stopSequence", "stop"),
        ("maxTokens", "length"),
        ("toolUse", "tool_call"),
        ("something new", "something new"),
    ],
)
def test_stop_reasons_are_told_in_the_conventions_words(
    sdk: Sdk, stop_reason: str, expected: str
) -> None:
    play(sdk.hooks, stop_reason=stop_reason)
    found = attributes(sdk.span("chat assistant"))
    assert found["gen_ai.response.finish_reasons"] == (expected,)


def test_the_trace_of_the_caller_goes_on(sdk: Sdk) -> None:
    begun = msgspec.structs.replace(STARTED, traceparent=TRACEPARENT, tracestate="vendor=1")
    play(sdk.hooks, begun)
    request = sdk.span("chat assistant")
    assert f"{trace_id(request):032x}" == TRACE
    assert f"{parent_id(request):016x}" == PARENT
    assert request.parent is not None
    assert request.parent.trace_state["vendor"] == "1"


@pytest.mark.parametrize("header", [None, "", "nonsense", "00-" + "0" * 32 + f"-{PARENT}-01"])
def test_without_a_usable_header_the_span_of_the_task_is_the_parent(
    sdk: Sdk, header: str | None
) -> None:
    with sdk.tracers.get_tracer("test").start_as_current_span("caller") as caller:
        play(sdk.hooks, msgspec.structs.replace(STARTED, traceparent=header))
    assert parent_id(sdk.span("chat assistant")) == caller.get_span_context().span_id


def test_a_call_to_a_provider_carries_the_attempt_and_no_baggage(sdk: Sdk) -> None:
    sdk.hooks.started(msgspec.structs.replace(STARTED, traceparent=TRACEPARENT))
    headers: dict[str, str] = {"accept": "text/event-stream"}
    token = context.attach(baggage.set_baggage("user", "u1"))
    try:
        with sdk.hooks.attempting(ATTEMPT):
            sdk.telemetry.inject(headers)
    finally:
        context.detach(token)
    sdk.hooks.attempt(ATTEMPTED)
    attempt = sdk.span("attempt openai/gpt-6")
    expected = f"00-{TRACE}-{span_id(attempt):016x}-01"
    assert headers == {"accept": "text/event-stream", "traceparent": expected}


def test_outside_of_an_attempt_a_call_carries_the_span_of_the_task(sdk: Sdk) -> None:
    headers: dict[str, str] = {}
    sdk.telemetry.inject(headers)
    assert headers == {}
    with sdk.tracers.get_tracer("test").start_as_current_span("health check") as span:
        sdk.telemetry.inject(headers)
    assert f"{span.get_span_context().span_id:016x}" in headers["traceparent"]


def test_the_state_of_the_task_is_left_as_it_was(sdk: Sdk) -> None:
    play(sdk.hooks)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_loser_of_a_race_may_end_after_its_request(sdk: Sdk) -> None:
    sdk.hooks.started(STARTED)
    with sdk.hooks.attempting(ATTEMPT):
        pass
    sdk.hooks.finished(FINISHED)
    sdk.hooks.attempt(attempted(outcome="cancelled"))
    request, attempt = sdk.spans()
    assert parent_id(attempt) == span_id(request)


def test_a_request_that_began_before_the_subscription_is_whole_all_the_same(sdk: Sdk) -> None:
    sdk.hooks.attempt(ATTEMPTED)
    assert sdk.spans() == ()
    sdk.hooks.finished(FINISHED)
    attempt, request = sdk.spans()
    assert (request.name, attempt.name) == ("chat assistant", "attempt openai/gpt-6")
    assert parent_id(attempt) == span_id(request)
    assert (request.start_time, request.end_time) == (1000 * 10**9, 1002 * 10**9)


def test_closing_ends_the_spans_of_what_still_runs(sdk: Sdk) -> None:
    sdk.hooks.started(STARTED)
    with sdk.hooks.attempting(ATTEMPT):
        pass
    assert sdk.spans() == ()
    sdk.telemetry.close()
    assert {span.name for span in sdk.spans()} == {"chat assistant", "attempt openai/gpt-6"}


def test_metrics_follow_the_conventions(sdk: Sdk) -> None:
    begun = msgspec.structs.replace(STARTED, stream=True)
    play(sdk.hooks, begun, first_token_s=0.3, model="gpt-6")
    labels = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "assistant",
        "gen_ai.response.model": "gpt-6",
    }
    (duration,) = sdk.points("gen_ai.client.operation.duration")
    assert isinstance(duration, HistogramDataPoint)
    assert (duration.sum, dict(duration.attributes or {})) == (2.0, labels)
    assert list(duration.explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    assert duration.explicit_bounds[-1] == 81.92
    (first,) = sdk.points("gen_ai.client.operation.time_to_first_chunk")
    assert (first.sum, dict(first.attributes)) == (0.3, labels)
    tokens = {
        point.attributes["gen_ai.token.type"]: point
        for point in sdk.points("gen_ai.client.token.usage")
    }
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 10, "output": 4}
    assert list(tokens["input"].explicit_bounds)[-1] == 67108864
    (cost,) = sdk.points("penstock.cost")
    assert cost.value == 0.0015
    (attempt,) = sdk.points("penstock.attempt.duration")
    assert attempt.sum == 1.5
    assert attributes(sdk.span("chat assistant"))["gen_ai.response.time_to_first_chunk"] == 0.3


def test_a_failed_operation_is_measured_with_its_error(sdk: Sdk) -> None:
    play(sdk.hooks, outcome="failed", error="ModelNotFound", provider=None, model=None, usage=None)
    (duration,) = sdk.points("gen_ai.client.operation.duration")
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "other",
        "error.type": "ModelNotFound",
    }
    assert sdk.points("gen_ai.client.token.usage") == []


def test_only_streams_have_a_time_to_the_first_chunk(sdk: Sdk) -> None:
    play(sdk.hooks, first_token_s=0.3)
    assert sdk.points("gen_ai.client.operation.time_to_first_chunk") == []


def test_an_estimate_is_marked_on_the_span_and_is_in_no_metric(sdk: Sdk) -> None:
    play(sdk.hooks, usage=Usage(10, 4, estimated=True))
    found = attributes(sdk.span("chat assistant"))
    assert found["gen_ai.usage.input_tokens"] == 10
    assert found["penstock.usage.estimated"] is True
    assert sdk.points("gen_ai.client.token.usage") == []


def test_what_callers_write_does_not_become_ever_more_series() -> None:
    sdk = sdk_with(models=["assistant"], max_names=2)
    for number in range(20):
        begun = msgspec.structs.replace(STARTED, requested_model=f"nonsense-{number}")
        play(sdk.hooks, begun, outcome="failed", error="ModelNotFound", provider=None, model=None)
    (point,) = sdk.points("gen_ai.client.operation.duration")
    assert point.count == 20
    assert point.attributes["gen_ai.request.model"] == "other"


CALL = ToolUse(id="call_1", name="weather", input={"city": "Paris"})
REQUEST = SamplingRequest(
    messages=(
        user("Weather in Paris?", Image(data="aGk=", mime_type="image/png")),
        assistant(CALL),
        user(ToolResult(tool_use_id="call_1", content=(Text(text="rainy"),))),
    ),
    max_tokens=9,
    system_prompt="Be brief.",
)
ANSWER: tuple[Content, ...] = (Reasoning(text="Hm."), Text(text="It rains."))


def play_with_content(sdk: Sdk) -> dict[str, Any]:
    sdk.hooks.started(STARTED)
    sdk.hooks.content(RequestContent("req_1", REQUEST, ANSWER))
    # Told without being asked for, as by somebody who subscribed it in the wrong way.
    if not sdk.telemetry.capture_content:
        sdk.telemetry(RequestContent("req_1", REQUEST, ANSWER))
    sdk.hooks.finished(FINISHED)
    return attributes(sdk.span("chat assistant"))


def test_what_was_said_is_not_recorded(sdk: Sdk) -> None:
    written = repr(play_with_content(sdk))
    for text in ("Paris", "rainy", "Be brief", "It rains", "weather"):
        assert text not in written


def test_what_was_said_is_recorded_when_that_is_asked_for() -> None:
    found = play_with_content(sdk_with(capture_content=True))
    assert json.loads(found["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "Be brief."}
    ]
    picture = {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "content": "",
        "bytes": 3,
    }
    question = {"type": "text", "content": "Weather in Paris?"}
    call = {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Paris"}}
    result = {"type": "tool_call_response", "id": "call_1", "response": "rainy"}
    assert json.loads(found["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [question, picture]},
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [result]},
    ]
    said = [
        {"type": "reasoning", "content": "Hm."},
        {"type": "text", "content": "It rains."},
    ]
    assert json.loads(found["gen_ai.output.messages"]) == [{"role": "assistant", "parts": said}]


def test_other_parts_of_an_answer_have_their_form_as_well() -> None:
    sdk = sdk_with(capture_content=True)
    sdk.hooks.started(STARTED)
    content = (Text(text="found"),)
    answer: tuple[Content, ...] = (
        Image(url="https://x/y.png"),
        Audio(data="aGkh", mime_type="audio/wav"),
        MCPCall(id="m1", server="docs", name="search", input={"q": "tide"}, content=content),
    )
    sdk.hooks.content(RequestContent("req_1", REQUEST, answer))
    sdk.hooks.finished(FINISHED)
    found = attributes(sdk.span("chat assistant"))
    ((message),) = json.loads(found["gen_ai.output.messages"])
    link, sound, called, answered = message["parts"]
    assert link == {"type": "uri", "modality": "image", "uri": "https://x/y.png"}
    assert (sound["type"], sound["modality"], sound["bytes"]) == ("blob", "audio", 3)
    arguments = {"type": "mcp", "server": "docs", "arguments": {"q": "tide"}}
    assert called["server_tool_call"] == arguments
    assert answered["server_tool_call_response"] == {"type": "mcp", "content": "found"}
