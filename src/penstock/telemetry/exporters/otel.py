"""Spans and metrics by OpenTelemetry's conventions for generative AI; needs the extra `otel`.

A request is a span, and each attempt a span under it. Tokens, cost and content stand on the
request's span only, so that no backend that adds them up counts them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

import msgspec

from penstock._version import __version__
from penstock.telemetry.exporters import conventions as names
from penstock.telemetry.hooks import current_attempt
from penstock.telemetry.label_guard import Names
from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Record,
    RequestContent,
    RequestIdentity,
    RequestRecord,
    RequestStarted,
    has_answered,
    identity_of,
)

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "OpenTelemetry is not installed: pip install 'penstock[otel]'", name=error.name
    ) from error

SCOPE = "penstock"
# The W3C headers alone: baggage is the caller's, and would leave for a provider with the request.
_PROPAGATOR = TraceContextTextMapPropagator()


class OpenTelemetry:
    """A subscriber that writes spans and metrics with the given or the global providers.

    Subscribe it with `content=True` only together with `capture_content=True`, which puts what was
    said on the request's span as `gen_ai.input.messages`, `gen_ai.output.messages` and
    `gen_ai.system_instructions`, each as JSON.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        kinds: Mapping[str, str] | None = None,
        models: Iterable[str] = (),
        max_names: int = 100,
        capture_content: bool = False,
    ) -> None:
        """`kinds` says which kind a configured provider is, as `{"claude": "anthropic"}`.

        `models` are the names that callers may ask for. Any other becomes a value in metrics only
        when it has been answered for, and at most `max_names` of them do.
        """
        self.capture_content = capture_content
        self._kinds = dict(kinds or {})
        self._names = Names(models, max_names)
        self._tracer = trace.get_tracer(SCOPE, __version__, tracer_provider)
        self._requests: dict[RequestIdentity, Span] = {}
        self._attempts: dict[tuple[RequestIdentity, int], Span] = {}
        meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        self._duration = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self._first_chunk = meter.create_histogram(
            names.TIME_TO_FIRST_CHUNK,
            "s",
            "Time to receive the first chunk of a streamed answer.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self._attempt_duration = meter.create_histogram(
            names.ATTEMPT_DURATION,
            "s",
            "Time that one try at one target took.",
            explicit_bucket_boundaries_advisory=names.SECONDS_BUCKETS,
        )
        self._cost = meter.create_counter(names.COST, "USD", "What requests cost, if known.")

    def know(self, models: Iterable[str], kinds: Mapping[str, str]) -> None:
        """These names are in the configuration, too, and the providers are of these kinds."""
        self._names.know(models)
        self._kinds.update(kinds)

    def __call__(self, record: Record) -> None:
        """Write it down."""
        match record:
            case RequestStarted():
                self._requests[identity_of(record)] = self._begin_request(record)
            case AttemptStarted():
                self._attempts[identity_of(record), record.number] = self._begin_attempt(record)
            case AttemptRecord():
                self._end_attempt(record)
            case RequestContent():
                self._write_content(record)
            case RequestRecord():
                self._end_request(record)
            case _:
                pass

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Add `traceparent` (and `tracestate`) to the headers of a call to a provider.

        It names the attempt that the running task makes; outside of one, the task's own span.
        """
        attempt = current_attempt()
        span = attempt and self._attempts.get((identity_of(attempt), attempt.number))
        _PROPAGATOR.inject(headers, trace.set_span_in_context(span) if span else None)

    def close(self) -> None:
        """End the spans of whatever is still running; the providers are their makers' to close."""
        for span in (*self._attempts.values(), *self._requests.values()):
            span.end()
        self._attempts.clear()
        self._requests.clear()

    def _begin_request(self, record: RequestStarted) -> Span:
        parent = otel_context.get_current()
        if record.traceparent:
            carrier = {"traceparent": record.traceparent, "tracestate": record.tracestate or ""}
            parent = _PROPAGATOR.extract(carrier, parent)
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: record.operation,
            names.REQUEST_ID: record.request_id,
        }
        if record.requested_model is not None:
            attributes[names.REQUEST_MODEL] = record.requested_model
        if record.stream:
            attributes[names.REQUEST_STREAM] = True
        if record.max_tokens is not None:
            attributes[names.REQUEST_MAX_TOKENS] = record.max_tokens
        if record.temperature is not None:
            attributes[names.REQUEST_TEMPERATURE] = record.temperature
        return self._tracer.start_span(
            _span_name(record.operation, record.requested_model),
            parent,
            SpanKind.CLIENT,
            attributes,
            start_time=_nanoseconds(record.started),
        )

    def _begin_attempt(self, record: AttemptStarted | AttemptRecord) -> Span:
        request = self._requests.get(identity_of(record))
        attributes: dict[str, AttributeValue] = {
            names.PROVIDER: self._provider_name(record.provider),
            names.PROVIDER_CONFIGURED: record.provider,
            names.REQUEST_MODEL: record.model,
            names.REQUEST_ID: record.request_id,
            names.ATTEMPT: record.number,
        }
        return self._tracer.start_span(
            f"attempt {record.provider}/{record.model}",
            trace.set_span_in_context(request) if request else None,
            SpanKind.CLIENT,
            attributes,
            start_time=_nanoseconds(record.started),
        )

    def _end_attempt(self, record: AttemptRecord) -> None:
        span = self._attempts.pop((identity_of(record), record.number), None)
        if span is None and identity_of(record) in self._requests:
            span = self._begin_attempt(record)
        # One that began before the subscription comes with the record of its request.
        if span is not None:
            self._close_attempt(span, record)
        model = self._names.label(record.model, proven=has_answered(record))
        self._attempt_duration.record(
            record.duration_s,
            {
                names.PROVIDER: self._provider_name(record.provider),
                names.REQUEST_MODEL: model,
                names.OUTCOME: record.outcome,
                **_failure(record),
            },
        )

    def _close_attempt(self, span: Span, record: AttemptRecord) -> None:
        if record.first_token_s is not None:
            span.set_attribute(names.RESPONSE_FIRST_CHUNK, record.first_token_s)
        if record.status is not None:
            span.set_attribute(names.HTTP_STATUS, record.status)
        if record.outcome == "failed":
            span.set_attribute(names.RETRYABLE, record.retryable)
        if record.adapted:
            span.set_attribute(names.ADAPTED, tuple(map(str, record.adapted)))
        if record.dropped_options:
            span.set_attribute(names.DROPPED_OPTIONS, record.dropped_options)
        _end(span, record)

    def _end_request(self, record: RequestRecord) -> None:
        span = self._requests.pop(identity_of(record), None)
        if span is None:
            span = self._begin_request(
                RequestStarted(
                    request_id=record.request_id,
                    operation=record.operation,
                    started=record.started,
                    stream=record.stream,
                    requested_model=record.requested_model,
                    key=record.key,
                )
            )
            self._requests[identity_of(record)] = span
            for attempt in record.attempts:
                self._close_attempt(self._begin_attempt(attempt), attempt)
            del self._requests[identity_of(record)]
        for name, value in self._answer(record):
            span.set_attribute(name, value)
        _end(span, record)
        self._measure(record)

    def _answer(self, record: RequestRecord) -> Iterable[tuple[str, AttributeValue]]:
        yield names.ATTEMPTS, len(record.attempts)
        if record.provider is not None:
            yield names.PROVIDER, self._provider_name(record.provider)
            yield names.PROVIDER_CONFIGURED, record.provider
        if record.model is not None and has_answered(record):
            yield names.RESPONSE_MODEL, record.model
        if record.stream and record.first_token_s is not None:
            yield names.RESPONSE_FIRST_CHUNK, record.first_token_s
        if record.stop_reason is not None:
            yield names.RESPONSE_FINISH_REASONS, (names.finish_reason(record.stop_reason),)
        if record.response_id is not None:
            yield names.RESPONSE_ID, record.response_id
        if record.cost_nanos is not None:
            yield names.COST_USD, record.cost_nanos / 1e9
        if record.usage is not None:
            yield from names.usage_attributes(record.usage)
            if record.usage.estimated:
                yield names.ESTIMATED, True
            if record.usage.implausible:
                yield names.IMPLAUSIBLE, True

    def _measure(self, record: RequestRecord) -> None:
        answered = has_answered(record)
        labels: dict[str, AttributeValue] = {names.OPERATION: record.operation}
        if record.provider is not None:
            labels[names.PROVIDER] = self._provider_name(record.provider)
        if record.requested_model is not None:
            label = self._names.label(record.requested_model, proven=answered)
            labels[names.REQUEST_MODEL] = label
        if record.model is not None and answered:
            labels[names.RESPONSE_MODEL] = self._names.label(record.model, proven=True)
        self._duration.record(record.duration_s, {**labels, **_failure(record)})
        if record.stream and record.first_token_s is not None:
            self._first_chunk.record(record.first_token_s, labels)
        if record.cost_nanos:
            self._cost.add(record.cost_nanos / 1e9, labels)
        # The conventions want counts of the provider, and no estimates that nobody asked for.
        if record.usage is not None and not record.usage.estimated:
            counts = {"input": record.usage.input_tokens, "output": record.usage.output_tokens}
            for kind, tokens in counts.items():
                if tokens is not None:
                    self._tokens.record(tokens, {**labels, names.TOKEN_TYPE: kind})

    def _write_content(self, record: RequestContent) -> None:
        span = self._requests.get(identity_of(record))
        if span is None or not self.capture_content:
            return
        span.set_attribute(
            names.INPUT_MESSAGES, _json(names.input_messages(record.request.messages))
        )
        answer = {"role": "assistant", "parts": names.parts_of(record.answer)}
        span.set_attribute(names.OUTPUT_MESSAGES, _json([answer]))
        if system := record.request.system_prompt:
            span.set_attribute(
                names.SYSTEM_INSTRUCTIONS, _json([{"type": "text", "content": system}])
            )

    def _provider_name(self, configured: str) -> str:
        kind = self._kinds.get(configured, configured)
        return names.PROVIDERS.get(kind, kind)


def _span_name(operation: str, model: str | None) -> str:
    return f"{operation} {model}" if model else operation


def _failure(record: AttemptRecord | RequestRecord) -> dict[str, AttributeValue]:
    return {names.ERROR_TYPE: record.error or "_OTHER"} if record.outcome == "failed" else {}


def _end(span: Span, record: AttemptRecord | RequestRecord) -> None:
    span.set_attribute(names.OUTCOME, record.outcome)
    span.set_attributes(_failure(record))
    if record.outcome == "failed":
        span.set_status(Status(StatusCode.ERROR))
    span.end(_nanoseconds(record.started + record.duration_s))


def _nanoseconds(unix_s: float) -> int:
    return int(unix_s * 1e9)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
