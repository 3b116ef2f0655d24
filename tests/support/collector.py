"""A collector on loopback: takes OTLP over HTTP, and reads its protobuf."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Generator, Iterable
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.services import wait_until


class Collector:
    """What has been sent to it."""

    def __init__(self, port: int) -> None:
        """Filled by its server."""
        self.url = f"http://127.0.0.1:{port}"
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        """What it answers."""
        self.received = 0

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metric_names(self) -> set[str]:
        """All metrics so far."""
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resources(self) -> list[dict[str, str]]:
        """Who has sent: the attributes of each resource, of traces and then of metrics."""
        senders: list[Any] = [one for sent in self.traces for one in sent.resource_spans]
        senders += [one for sent in self.metrics for one in sent.resource_metrics]
        return [attributes(sender.resource.attributes) for sender in senders]

    def wait_for_spans(self, number: int, seconds: float = 15.0) -> list[Span]:
        """At least so many spans."""
        assert wait_until(lambda: len(self.spans) >= number, seconds), self.spans
        return self.spans


def attributes(pairs: Iterable[Any]) -> dict[str, str]:
    """The texts among the attributes."""
    return {pair.key: pair.value.string_value for pair in pairs}


@contextlib.contextmanager
def collecting(port: int = 0) -> Generator[Collector]:
    """A collector that listens until the end of the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            collector.received += 1
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            if collector.status == 200:
                if self.path == "/v1/traces":
                    collector.traces.append(ExportTraceServiceRequest.FromString(data))
                elif self.path == "/v1/metrics":
                    collector.metrics.append(ExportMetricsServiceRequest.FromString(data))
                else:
                    raise AssertionError(self.path)
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    collector = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
