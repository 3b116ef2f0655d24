"""Spans and metrics on their way to a collector, by OTLP over HTTP; needs the extra `otel`.

Both are sent by threads of OpenTelemetry's own, out of a queue that drops what it cannot hold: a
collector that is slow or away holds no request up. Its standard variables hold for all that is not
said here: `OTEL_EXPORTER_OTLP_*`, `OTEL_BSP_*`, `OTEL_METRIC_EXPORT_*`,
`OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from penstock._version import __version__
from penstock.telemetry.exporters.conventions import OTLP_ENDPOINT
from penstock.telemetry.exporters.otel import OpenTelemetry

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExportResult,
        MetricsData,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "OTLP over HTTP is not installed: pip install 'penstock[otel]'", name=error.name
    ) from error

FLUSH_S = 1.5
"""How long the end of the process waits for what has not been sent yet."""
_UNNAMED = "unknown_service"
_QUIET: Mapping[str, int] = {
    # They complain of every batch, and of every span; one warning an outage says as much.
    "opentelemetry.exporter.otlp": logging.CRITICAL,
    "opentelemetry.sdk": logging.ERROR,
}

_log = logging.getLogger(__name__)


class Otlp:
    """Sends what it is told, until it is closed. Subscribe its `subscriber`."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        service_name: str | None = None,
        sample_ratio: float | None = None,
    ) -> None:
        """`endpoint` is without `/v1/traces`; the standard variables say what is not given."""
        for name, level in _QUIET.items():
            logging.getLogger(name).setLevel(level)
        base = None if endpoint is None else endpoint.rstrip("/")
        watch = _Watch(base or os.environ.get(OTLP_ENDPOINT, ""))
        self._spans = _Spans(watch, base and f"{base}/v1/traces", headers)
        self._metrics = _Metrics(watch, base and f"{base}/v1/metrics", headers)
        resource = _resource(service_name)
        # Left to the interpreter's exit, they would wait for a collector that is away.
        self._tracers = TracerProvider(
            sampler=None if sample_ratio is None else ParentBasedTraceIdRatio(sample_ratio),
            resource=resource,
            shutdown_on_exit=False,
        )
        self._tracers.add_span_processor(BatchSpanProcessor(self._spans))
        self._meters = MeterProvider(
            [PeriodicExportingMetricReader(self._metrics)],
            resource=resource,
            shutdown_on_exit=False,
        )
        self.subscriber = OpenTelemetry(tracer_provider=self._tracers, meter_provider=self._meters)

    def close(self, limit_s: float = FLUSH_S) -> None:
        """Send what is left, and return after `limit_s` in any case; blocks the thread."""
        self.subscriber.close()
        deadline = time.monotonic() + limit_s
        # Threads that nobody waits for: a collector that accepts and is silent keeps one of them
        # longer than the process may stay.
        closing = {
            threading.Thread(target=self._tracers.shutdown, daemon=True): self._spans.give_up,
            threading.Thread(target=self._meters.shutdown, daemon=True): self._metrics.give_up,
        }
        for thread in closing:
            thread.start()
        for thread, give_up in closing.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                give_up()


class _Watch:
    """Says once that the collector is away, and once that it is back."""

    def __init__(self, endpoint: str) -> None:
        # Without what may be a secret: the user, the path and the query.
        parts = urlsplit(endpoint)
        self._where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._lock = threading.Lock()
        self._away = False

    def note(self, taken: bool) -> None:
        """A batch was taken, or was not."""
        with self._lock:
            if taken != self._away:
                return
            self._away = not taken
        if taken:
            _log.info("the collector at %s takes telemetry again", self._where)
        else:
            _log.warning(
                "the collector at %s takes no telemetry: requests go on, and what is told of them "
                "meanwhile is lost; this is not said again before it is back",
                self._where,
            )


class _Spans(OTLPSpanExporter):
    def __init__(
        self, watch: _Watch, endpoint: str | None, headers: Mapping[str, str] | None
    ) -> None:
        super().__init__(endpoint=endpoint, headers=dict(headers or {}))
        self._watch = watch

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._watch.note(result is SpanExportResult.SUCCESS)
        return result

    def give_up(self) -> None:
        """Try no more, whatever is on its way."""
        self.shutdown()


class _Metrics(OTLPMetricExporter):
    def __init__(
        self, watch: _Watch, endpoint: str | None, headers: Mapping[str, str] | None
    ) -> None:
        super().__init__(endpoint=endpoint, headers=dict(headers or {}))
        self._watch = watch

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis)  # pyright: ignore[reportUnknownMemberType]
        self._watch.note(result is MetricExportResult.SUCCESS)
        return result

    def give_up(self) -> None:
        """Try no more, whatever is on its way."""
        self.shutdown()  # pyright: ignore[reportUnknownMemberType]


def _resource(service_name: str | None) -> Resource:
    """Who sends: each process for itself, for counters of several workers must not be mixed."""
    own: dict[str, str] = {"service.version": __version__, SERVICE_INSTANCE_ID: str(uuid.uuid4())}
    found = Resource.create(own)
    if service_name is None and not str(found.attributes[SERVICE_NAME]).startswith(_UNNAMED):
        return found
    return Resource.create({**own, SERVICE_NAME: service_name or "penstock"})
