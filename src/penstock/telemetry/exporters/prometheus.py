"""Counters and histograms for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.contract.adaptation import ADVISORY_FIELDS, OPTIONS
from penstock.contract.exchange import Usage
from penstock.telemetry.label_guard import OTHER, OVERFLOW, Names
from penstock.telemetry.merge import Merged, Samples, samples_of
from penstock.telemetry.records import (
    AttemptRecord,
    CallRefused,
    Record,
    RequestIdentity,
    RequestRecord,
    RequestStarted,
    has_answered,
    identity_of,
)
from penstock.telemetry.series import Counted, Current, Observed

DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
FIRST_TOKEN_BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6)
DEFAULT_MODEL = "default"
"""The label of a request that names no model."""
NO_KEY = "_none"
"""The label of a request without a key."""
MOST_KEYS = 200
"""Keys that have a label of their own, in the order of their first request."""
_REFUSALS = {401: "unauthorized", 403: "forbidden", 404: "model", 429: "rate_limit", 503: "storage"}
_OPTIONS = frozenset({*OPTIONS, *ADVISORY_FIELDS})
"""Options that have a label of their own; a caller may send fields of any name."""
_REFUSED_BY_ERROR = {"BudgetExceeded": "budget", "SamplingRejected": "approval"}


STATUSES = ("up", "degraded", "down")


class Condition(NamedTuple):
    """The health of a provider, or of one model there."""

    provider: str
    model: str | None
    status: Literal["up", "degraded", "down"]


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
        max_keys: int = MOST_KEYS,
        registry: CollectorRegistry | None = None,
        health: Callable[[], Iterable[Condition]] = lambda: (),
    ) -> None:
        """`models` and `targets` (`provider/model`) are those of the configuration.

        `health` gives the conditions of targets and providers whenever metrics are read.
        """
        self._health = health
        self.registry = registry or CollectorRegistry()
        self._models = Names((DEFAULT_MODEL,), max_names)
        self._targets = Names((), max_names)
        self._keys = Names((), max_keys, OVERFLOW)
        self.know(models, targets)
        self._running: dict[RequestIdentity, str] = {}
        place = ("provider", "upstream_model")
        registry = self.registry
        self._in_progress = Counted(
            "penstock_requests_in_progress",
            "Requests that have begun and not ended.",
            ("operation",),
            registry,
            gauge=True,
        )
        self._requests = Counted(
            "penstock_requests",
            "Requests that have ended, by how they did.",
            ("operation", "model", "outcome", "error"),
            registry,
        )
        self._duration = Observed(
            "penstock_request_duration_seconds",
            "Time from a request to the end of its answer.",
            ("operation", "model", "outcome"),
            registry,
            buckets=DURATION_BUCKETS,
        )
        self._first_token = Observed(
            "penstock_first_token_seconds",
            "Time from a request to the first piece of its streamed answer.",
            ("model",),
            registry,
            buckets=FIRST_TOKEN_BUCKETS,
        )
        self._attempts = Counted(
            "penstock_attempts",
            "Tries at one target, by how they ended.",
            (*place, "outcome", "error"),
            registry,
        )
        self._attempt_duration = Observed(
            "penstock_attempt_duration_seconds",
            "Time that one try at one target took.",
            (*place, "outcome"),
            registry,
            buckets=DURATION_BUCKETS,
        )
        self._tokens = Counted(
            "penstock_tokens",
            "Tokens as providers counted them; cached and reasoning are parts of the others.",
            (*place, "type"),
            registry,
        )
        self._implausible = Counted(
            "penstock_implausible_usage",
            "Attempts whose provider reported impossible token counts, which estimates replace.",
            place,
            registry,
        )
        self._adapted = Counted(
            "penstock_adapted",
            "Options that a target did not get as they were, by what became of them.",
            ("option", "answer"),
            registry,
        )
        self._cost = Counted(
            "penstock_cost_usd",
            "What requests cost, in US dollars, where the price is known.",
            place,
            registry,
        )
        self._key_requests = Counted(
            "penstock_key_requests",
            "Requests that have ended, by key.",
            ("key", "outcome"),
            registry,
        )
        self._key_tokens = Counted(
            "penstock_key_tokens",
            "Tokens as providers counted them, by key.",
            ("key", "type"),
            registry,
        )
        self._key_cost = Counted(
            "penstock_key_cost_usd",
            "What requests cost, in US dollars, by key.",
            ("key",),
            registry,
        )
        self._refusals = Counted(
            "penstock_refusals",
            "Requests that were refused before a model was called, by key and reason.",
            ("key", "reason"),
            registry,
        )

        Current(
            "penstock_target_health",
            "Workers that see the target in this status.",
            (*place, "status"),
            registry,
            self._target_health,
        )
        Current(
            "penstock_provider_health",
            "Workers that see the provider in this status.",
            ("provider", "status"),
            registry,
            self._provider_health,
        )

    def _target_health(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for provider, model, status in self._health():
            if model is not None:
                place = self._place(provider, model, False)
                yield from (((*place, each), float(each == status)) for each in STATUSES)

    def _provider_health(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for provider, model, status in self._health():
            if model is None:
                yield from (((provider, each), float(each == status)) for each in STATUSES)

    def know(self, models: Iterable[str], targets: Iterable[str]) -> None:
        """These names are in the configuration, too."""
        self._models.know(models)
        self._targets.know(targets)

    def __call__(self, record: Record) -> None:
        """Count it."""
        if isinstance(record, RequestStarted):
            self._running[identity_of(record)] = record.operation
            self._in_progress.add(1, record.operation)
        elif isinstance(record, AttemptRecord):
            self._count_attempt(record)
        elif isinstance(record, RequestRecord):
            self._count_request(record)
            self._count_for_key(record)
        elif isinstance(record, CallRefused):
            reason = _REFUSALS.get(record.status, OTHER)
            self._refusals.add(1, self._key(record.key), reason)

    def exposition(
        self,
        accept: str = "",
        others: Sequence[Samples] = (),
        states: Collector | None = None,
    ) -> tuple[bytes, str]:
        """The metrics in the format that this `Accept` header prefers, and its content type.

        `others` are those of other processes, which are added. `states` collects what is known only
        at the moment of the scrape.
        """
        encode, content_type = choose_encoder(accept)
        if not others and states is None:
            return encode(self.registry), content_type
        merged = CollectorRegistry()
        merged.register(Merged([self.samples(), *others]))
        if states is not None:
            merged.register(states)
        return encode(merged), content_type

    def samples(self) -> Samples:
        """What there is now, for another process to add."""
        return samples_of(self.registry)

    def _count_attempt(self, record: AttemptRecord) -> None:
        place = self._place(record.provider, record.model, has_answered(record))
        self._attempts.add(1, *place, record.outcome, record.error or "")
        self._attempt_duration.observe(record.duration_s, *place, record.outcome)
        if record.usage is not None and record.usage.implausible:
            self._implausible.add(1, *place)
        for each in record.adapted:
            option = each.option if each.option in _OPTIONS else OTHER
            self._adapted.add(1, option, each.answer)

    def _count_request(self, record: RequestRecord) -> None:
        # One that began before the subscription was never counted up.
        if operation := self._running.pop(identity_of(record), None):
            self._in_progress.add(-1, operation)
        answered = has_answered(record)
        model = self._models.label(record.requested_model or DEFAULT_MODEL, proven=answered)
        what = (record.operation, model, record.outcome)
        self._requests.add(1, *what, record.error or "")
        self._duration.observe(record.duration_s, *what)
        if record.stream and record.first_token_s is not None:
            self._first_token.observe(record.first_token_s, model)
        if record.provider is None or record.model is None:
            return
        place = self._place(record.provider, record.model, answered)
        for kind, tokens in _counts(record.usage):
            self._tokens.add(tokens, *place, kind)
        if record.cost_nanos:
            self._cost.add(record.cost_nanos / 1e9, *place)

    def _count_for_key(self, record: RequestRecord) -> None:
        key = self._key(record.key)
        self._key_requests.add(1, key, record.outcome)
        for kind, tokens in _counts(record.usage):
            self._key_tokens.add(tokens, key, kind)
        if record.cost_nanos:
            self._key_cost.add(record.cost_nanos / 1e9, key)
        if (reason := _REFUSED_BY_ERROR.get(record.error or "")) is not None:
            self._refusals.add(1, key, reason)

    def _key(self, name: str | None) -> str:
        # Only keys that were shown and known have a name here.
        return NO_KEY if name is None else self._keys.label(name, proven=True)

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
