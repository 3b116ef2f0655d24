"""Counters and histograms for Prometheus; needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.contract.exchange import Usage
from penstock.telemetry.names import OTHER, Names
from penstock.telemetry.records import (
    AttemptRecord,
    Record,
    RequestRecord,
    RequestStarted,
    has_answered,
)

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.exposition import choose_encoder
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Prometheus's client is not installed: pip install 'penstock[prometheus]'", name=error.name
    ) from error

DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
FIRST_TOKEN_BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
DEFAULT_MODEL = "default"
"""The label of a request that names no model."""


class PrometheusMetrics:
    """A subscriber that counts, in a registry of its own; `exposition()` is what `/metrics` says.

    The label `model` is what callers ask for, `upstream_model` what a provider calls it. Names that
    are neither in the configuration nor have ever been answered for are `other`, as are those
    beyond `max_names`.
    """

    def __init__(
        self,
        *,
        models: Iterable[str] = (),
        targets: Iterable[str] = (),
        max_names: int = 100,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`models` and `targets` (`provider/model`) are those of the configuration."""
        self.registry = registry or CollectorRegistry()
        self._models = Names((DEFAULT_MODEL, *models), max_names)
        self._targets = Names(targets, max_names)
        self._running: dict[str, str] = {}
        place = ("provider", "upstream_model")
        self._in_progress = Gauge(
            "penstock_requests_in_progress",
            "Requests that have begun and not ended.",
            ("operation",),
            registry=self.registry,
        )
        self._requests = Counter(
            "penstock_requests",
            "Requests that have ended, by how they did.",
            ("operation", "model", "outcome", "error"),
            registry=self.registry,
        )
        self._duration = Histogram(
            "penstock_request_duration_seconds",
            "Time from a request to the end of its answer.",
            ("operation", "model", "outcome"),
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        self._first_token = Histogram(
            "penstock_first_token_seconds",
            "Time from a request to the first piece of its streamed answer.",
            ("model",),
            buckets=FIRST_TOKEN_BUCKETS,
            registry=self.registry,
        )
        self._attempts = Counter(
            "penstock_attempts",
            "Tries at one target, by how they ended.",
            (*place, "outcome", "error"),
            registry=self.registry,
        )
        self._attempt_duration = Histogram(
            "penstock_attempt_duration_seconds",
            "Time that one try at one target took.",
            (*place, "outcome"),
            buckets=DURATION_BUCKETS,
            registry=self.registry,
        )
        self._tokens = Counter(
            "penstock_tokens",
            "Tokens as the provider counted them; cached and reasoning are parts of the others.",
            (*place, "type"),
            registry=self.registry,
        )
        self._cost = Counter(
            "penstock_cost_usd",
            "What requests cost, in US dollars, where the price is known.",
            place,
            registry=self.registry,
        )

    def __call__(self, record: Record) -> None:
        """Count it."""
        match record:
            case RequestStarted(request_id=request_id, operation=operation):
                self._running[request_id] = operation
                self._in_progress.labels(operation).inc()
            case AttemptRecord():
                self._count_attempt(record)
            case RequestRecord():
                self._count_request(record)
            case _:
                pass

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics in the format that this `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _count_attempt(self, record: AttemptRecord) -> None:
        place = self._place(record.provider, record.model, has_answered(record))
        self._attempts.labels(*place, record.outcome, record.error or "").inc()
        self._attempt_duration.labels(*place, record.outcome).observe(record.duration_s)

    def _count_request(self, record: RequestRecord) -> None:
        # One that began before the subscription was never counted up.
        if operation := self._running.pop(record.request_id, None):
            self._in_progress.labels(operation).dec()
        answered = has_answered(record)
        model = self._models.label(record.requested_model or DEFAULT_MODEL, proven=answered)
        what = (record.operation, model, record.outcome)
        self._requests.labels(*what, record.error or "").inc()
        self._duration.labels(*what).observe(record.duration_s)
        if record.stream and record.first_token_s is not None:
            self._first_token.labels(model).observe(record.first_token_s)
        if record.provider is None or record.model is None:
            return
        place = self._place(record.provider, record.model, answered)
        for kind, tokens in _counts(record.usage):
            self._tokens.labels(*place, kind).inc(tokens)
        if record.cost_nanos:
            self._cost.labels(*place).inc(record.cost_nanos / 1e9)

    def _place(self, provider: str, model: str, proven: bool) -> tuple[str, str]:
        # A provider's name is one of the configuration's, or there would be nobody to ask.
        target = f"{provider}/{model}"
        return provider, model if self._targets.label(target, proven=proven) == target else OTHER


def _counts(usage: Usage | None) -> Iterable[tuple[str, int]]:
    if usage is None:
        return
    for kind, tokens in (
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cached_input", usage.cached_input_tokens),
        ("cache_write", usage.cache_write_tokens),
        ("reasoning", usage.reasoning_tokens),
    ):
        if tokens:
            yield kind, tokens
