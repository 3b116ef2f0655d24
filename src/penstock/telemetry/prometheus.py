"""Counters and histograms for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from penstock.contract.exchange import Usage
from penstock.telemetry.merged import Merged, Samples, samples_of
from penstock.telemetry.names import OTHER, Names
from penstock.telemetry.records import (
    AttemptRecord,
    Record,
    RequestRecord,
    RequestStarted,
    has_answered,
)

M = TypeVar("M", Counter, Gauge, Histogram)
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
        self._models = Names((DEFAULT_MODEL,), max_names)
        self._targets = Names((), max_names)
        self.know(models, targets)
        self._running: dict[str, str] = {}
        place = ("provider", "upstream_model")
        self._in_progress = _Cells(
            Gauge(
                "penstock_requests_in_progress",
                "Requests that have begun and not ended.",
                ("operation",),
                registry=self.registry,
            )
        )
        self._requests = _Cells(
            Counter(
                "penstock_requests",
                "Requests that have ended, by how they did.",
                ("operation", "model", "outcome", "error"),
                registry=self.registry,
            )
        )
        self._duration = _Cells(
            Histogram(
                "penstock_request_duration_seconds",
                "Time from a request to the end of its answer.",
                ("operation", "model", "outcome"),
                buckets=DURATION_BUCKETS,
                registry=self.registry,
            )
        )
        self._first_token = _Cells(
            Histogram(
                "penstock_first_token_seconds",
                "Time from a request to the first piece of its streamed answer.",
                ("model",),
                buckets=FIRST_TOKEN_BUCKETS,
                registry=self.registry,
            )
        )
        self._attempts = _Cells(
            Counter(
                "penstock_attempts",
                "Tries at one target, by how they ended.",
                (*place, "outcome", "error"),
                registry=self.registry,
            )
        )
        self._attempt_duration = _Cells(
            Histogram(
                "penstock_attempt_duration_seconds",
                "Time that one try at one target took.",
                (*place, "outcome"),
                buckets=DURATION_BUCKETS,
                registry=self.registry,
            )
        )
        self._tokens = _Cells(
            Counter(
                "penstock_tokens",
                "Tokens as providers counted them; cached and reasoning are parts of the others.",
                (*place, "type"),
                registry=self.registry,
            )
        )
        self._cost = _Cells(
            Counter(
                "penstock_cost_usd",
                "What requests cost, in US dollars, where the price is known.",
                place,
                registry=self.registry,
            )
        )

    def know(self, models: Iterable[str], targets: Iterable[str]) -> None:
        """These names are in the configuration, too."""
        self._models.know(models)
        self._targets.know(targets)

    def __call__(self, record: Record) -> None:
        """Count it."""
        match record:
            case RequestStarted(request_id=request_id, operation=operation):
                self._running[request_id] = operation
                self._in_progress.at(operation).inc()
            case AttemptRecord():
                self._count_attempt(record)
            case RequestRecord():
                self._count_request(record)
            case _:
                pass

    def exposition(self, accept: str = "", others: Sequence[Samples] = ()) -> tuple[bytes, str]:
        """The metrics in the format that this `Accept` header prefers, and its content type.

        `others` are those of other processes, which are added.
        """
        encode, content_type = choose_encoder(accept)
        if not others:
            return encode(self.registry), content_type
        merged = CollectorRegistry()
        merged.register(Merged([self.samples(), *others]))
        return encode(merged), content_type

    def samples(self) -> Samples:
        """What there is now, for another process to add."""
        return samples_of(self.registry)

    def _count_attempt(self, record: AttemptRecord) -> None:
        place = self._place(record.provider, record.model, has_answered(record))
        self._attempts.at(*place, record.outcome, record.error or "").inc()
        self._attempt_duration.at(*place, record.outcome).observe(record.duration_s)

    def _count_request(self, record: RequestRecord) -> None:
        # One that began before the subscription was never counted up.
        if operation := self._running.pop(record.request_id, None):
            self._in_progress.at(operation).dec()
        answered = has_answered(record)
        model = self._models.label(record.requested_model or DEFAULT_MODEL, proven=answered)
        what = (record.operation, model, record.outcome)
        self._requests.at(*what, record.error or "").inc()
        self._duration.at(*what).observe(record.duration_s)
        if record.stream and record.first_token_s is not None:
            self._first_token.at(model).observe(record.first_token_s)
        if record.provider is None or record.model is None:
            return
        place = self._place(record.provider, record.model, answered)
        for kind, tokens in _counts(record.usage):
            self._tokens.at(*place, kind).inc(tokens)
        if record.cost_nanos:
            self._cost.at(*place).inc(record.cost_nanos / 1e9)

    def _place(self, provider: str, model: str, proven: bool) -> tuple[str, str]:
        # A provider's name is one of the configuration's, or there would be nobody to ask.
        target = f"{provider}/{model}"
        return provider, model if self._targets.label(target, proven=proven) == target else OTHER


class _Cells(Generic[M]):
    """A metric by its labels; looking them up in the library each time costs more than counting."""

    __slots__ = ("_cells", "_metric")

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._cells: dict[tuple[str, ...], M] = {}

    def at(self, *labels: str) -> M:
        cell = self._cells.get(labels)
        if cell is None:
            # As many as there are names, which have a limit.
            cell = self._cells[labels] = self._metric.labels(*labels)
        return cell


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
