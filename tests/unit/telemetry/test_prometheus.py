"""What Prometheus reads from the text is what the records said, and there is never too much."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from penstock.contract.exchange import Usage
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from penstock.telemetry.hooks import Hooks
from tests.support.telemetry import ATTEMPTED, FINISHED, STARTED, attempted, finished, play

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
PLACE = {"provider": "openai", "upstream_model": "gpt-6"}


def samples(metrics: PrometheusMetrics) -> Samples:
    """Every sample of the exposition, read back by Prometheus's own parser."""
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_text(body.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def told(*records: Any, **options: Any) -> PrometheusMetrics:
    metrics = PrometheusMetrics(**options)
    for record in records:
        metrics(record)
    return metrics


def test_a_request_is_counted_with_its_time_tokens_and_cost() -> None:
    hooks, metrics = Hooks(), PrometheusMetrics()
    hooks.subscribe(metrics)
    play(hooks, usage=Usage(10, 4, 6, 2, 1))
    found = samples(metrics)
    request = {"operation": "chat", "model": "assistant", "outcome": "ok"}
    assert value(found, "penstock_requests_total", **request, error="") == 1
    assert value(found, "penstock_request_duration_seconds_sum", **request) == 2.0
    assert value(found, "penstock_request_duration_seconds_count", **request) == 1
    assert value(found, "penstock_request_duration_seconds_bucket", **request, le="1.0") == 0
    assert value(found, "penstock_request_duration_seconds_bucket", **request, le="2.5") == 1
    assert value(found, "penstock_attempts_total", **PLACE, outcome="ok", error="") == 1
    assert value(found, "penstock_attempt_duration_seconds_sum", **PLACE, outcome="ok") == 1.5
    tokens = {"input": 10, "output": 4, "cached_input": 6, "cache_write": 2, "reasoning": 1}
    for kind, count in tokens.items():
        assert value(found, "penstock_tokens_total", **PLACE, type=kind) == count
    assert value(found, "penstock_cost_usd_total", **PLACE) == 0.0015


def test_failures_are_told_apart_by_their_type() -> None:
    failed = attempted(outcome="failed", error="RateLimited", status=429)
    found = samples(
        told(
            failed,
            ATTEMPTED,
            finished(attempts=(failed, ATTEMPTED)),
            finished(outcome="failed", error="AllTargetsFailed", usage=None, cost_nanos=None),
            finished(outcome="cancelled", usage=None, cost_nanos=None),
            targets=["openai/gpt-6"],
            models=["assistant"],
        )
    )
    tried = {**PLACE, "outcome": "failed", "error": "RateLimited"}
    assert value(found, "penstock_attempts_total", **tried) == 1
    request = {"operation": "chat", "model": "assistant"}
    for outcome, error in (("ok", ""), ("failed", "AllTargetsFailed"), ("cancelled", "")):
        labels = {**request, "outcome": outcome, "error": error}
        assert value(found, "penstock_requests_total", **labels) == 1


def test_the_first_token_is_measured_for_streams_alone() -> None:
    found = samples(
        told(finished(first_token_s=0.3), finished(first_token_s=0.5, stream=True, model=None))
    )
    assert value(found, "penstock_first_token_seconds_sum", model="assistant") == 0.5


def test_requests_in_progress_go_up_and_down_and_never_below_zero() -> None:
    metrics = told(finished(request_id="from before the subscription"), STARTED)
    name = "penstock_requests_in_progress"
    assert value(samples(metrics), name, operation="chat") == 1
    metrics(FINISHED)
    metrics(FINISHED)
    assert value(samples(metrics), name, operation="chat") == 0


def test_a_request_without_a_model_counts_to_the_default() -> None:
    found = samples(told(finished(requested_model=None, provider=None, model=None)))
    labels = {"operation": "chat", "model": "default", "outcome": "ok", "error": ""}
    assert value(found, "penstock_requests_total", **labels) == 1
    assert not any(name.startswith(("penstock_tokens", "penstock_cost")) for name, _ in found)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text(min_size=1, max_size=4), st.booleans()), max_size=60))
def test_what_callers_write_never_makes_more_series_than_the_limit(
    asked: list[tuple[str, bool]],
) -> None:
    metrics = PrometheusMetrics(models=["assistant"], targets=["openai/gpt-6"], max_names=3)
    for name, answered in asked:
        outcome = "ok" if answered else "failed"
        error = None if answered else "ModelNotFound"
        attempt = attempted(model=name, outcome=outcome, error=error)
        metrics(attempt)
        metrics(
            finished(
                requested_model=name,
                model=name,
                outcome=outcome,
                error=error,
                attempts=(attempt,),
            )
        )
    found = samples(metrics)
    models = {dict(labels).get("model", "") for _, labels in found} - {""}
    upstream = {dict(labels).get("upstream_model", "") for _, labels in found} - {""}
    answered_for = {name for name, answered in asked if answered}
    assert len(models - {"other", "default"}) <= 3
    assert len(upstream - {"other"}) <= 3
    assert models | upstream <= answered_for | {"other", "default", "assistant", "gpt-6"}
    # However they are called, all of them are counted.
    total = sum(value for (name, _), value in found.items() if name == "penstock_requests_total")
    assert total == len(asked)


def test_labels_with_quotes_and_line_breaks_can_be_read_back() -> None:
    odd = 'a "model"\\\nwith\ttricks'
    found = samples(told(finished(requested_model=odd)))
    labels = {"operation": "chat", "model": odd, "outcome": "ok", "error": ""}
    assert value(found, "penstock_requests_total", **labels) == 1


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    body, content_type = told(FINISHED).exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    # The parser is untyped, and its answer is not.
    parse: Callable[[str], Iterable[Metric]] = vars(openmetrics)["text_string_to_metric_families"]
    names = {family.name for family in parse(body.decode())}
    assert {"penstock_requests", "penstock_tokens", "penstock_cost_usd"} <= names


def test_two_engines_in_one_process_do_not_meet() -> None:
    first, second = told(FINISHED), told()
    assert len(samples(first)) > len(samples(second))


@pytest.mark.parametrize("record", [STARTED, ATTEMPTED, FINISHED])
def test_nothing_that_is_unique_to_a_request_becomes_a_label(record: Any) -> None:
    metrics = PrometheusMetrics()
    metrics(record)
    size = len(samples(metrics))
    for number in range(20):
        metrics(msgspec.structs.replace(record, request_id=f"req_{number}"))
    assert len(samples(metrics)) == size
