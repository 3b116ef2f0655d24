"""Requests are counted once, where they end; unknown is not zero."""

import asyncio
import math
import statistics
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import AllTargetsFailed, InvalidRequest, ModelNotFound, RateLimited
from penstock.contract.metadata import Metadata, Usage
from penstock.contract.ports import Target
from penstock.telemetry import usage_counters as module
from penstock.telemetry.latency import Latencies
from penstock.telemetry.records import AttemptRecord
from penstock.telemetry.usage_counters import UsageCounters, UsageStats

SOL = Target("openai", "sol")
QWEN = Target("local", "qwen")
NOTHING = Usage()


def metadata(*, latency_ms: int = 10, cost_nanos: int | None = None) -> Metadata:
    return Metadata(
        provider="p", model="m", request_id="r", latency_ms=latency_ms, cost_nanos=cost_nanos
    )


def tried(target: Target, usage: Usage | None) -> AttemptRecord:
    return AttemptRecord(
        request_id="r",
        number=1,
        provider=target.provider,
        model=target.model,
        started=0.0,
        duration_s=1.0,
        outcome="ok",
        usage=usage,
    )


def cost(attempts: Sequence[AttemptRecord]) -> int | None:
    (each,) = attempts
    tokens = (each.usage or NOTHING).input_tokens or 0
    return None if each.provider == QWEN.provider else 100 * tokens


def test_answers_add_up_by_target_and_in_all() -> None:
    counters = UsageCounters()
    counters.answered(SOL, metadata(cost_nanos=1_000))
    counters.took([tried(SOL, Usage(10, 5, 4, None, 2))], cost)
    counters.answered(SOL, metadata(cost_nanos=500))
    counters.answered(QWEN, metadata())
    # One target was tried in vain, another broke off, a third has answered.
    counters.took([tried(QWEN, None), tried(QWEN, Usage(3, None)), tried(SOL, Usage(5, 1))], cost)
    stats = counters.stats()
    sol, qwen = stats.models
    assert (sol.provider, sol.model, sol.requests, sol.failures) == ("openai", "sol", 2, {})
    assert sol.usage == Usage(15, 6, 4, None, 2)
    assert (sol.cost_nanos, sol.cost_usd, sol.unpriced) == (1_500, 1.5e-6, 0)
    assert (qwen.usage, qwen.cost_nanos, qwen.cost_usd, qwen.unpriced) == (
        Usage(3, None),
        None,
        None,
        1,
    )
    total = stats.total
    assert (total.provider, total.model, total.requests) == (None, None, 3)
    assert (total.usage, total.cost_nanos, total.unpriced) == (Usage(18, 6, 4, None, 2), 1_500, 1)


def test_failures_are_counted_by_their_name_and_where_they_happened() -> None:
    counters = UsageCounters()
    counters.failed(RateLimited("slow", provider="openai", model="sol"))
    counters.failed(RateLimited("slow"), SOL)
    counters.failed(asyncio.CancelledError(), SOL)
    counters.failed(GeneratorExit(), QWEN)
    counters.failed(InvalidRequest("bad"))
    counters.failed(ModelNotFound("none", model="chosen by a caller"))
    counters.failed(AllTargetsFailed("all", attempts=[]))
    counters.failed(RuntimeError("a bug"))
    stats = counters.stats()
    by_name = {(row.provider, row.model): row for row in stats.models}
    assert by_name["openai", "sol"].failures == {"RateLimited": 2, "RequestCancelled": 1}
    assert by_name["local", "qwen"].failures == {"RequestCancelled": 1}
    assert by_name[None, None].failures == {
        "InvalidRequest": 1,
        "ModelNotFound": 1,
        "AllTargetsFailed": 1,
        "RuntimeError": 1,
    }
    assert (stats.total.requests, stats.total.failed) == (8, 8)
    assert stats.total.latency is None


def test_providers_and_keys_have_rows_of_their_own() -> None:
    counters = UsageCounters()
    other = Target("openai", "luna")
    counters.answered(SOL, metadata(cost_nanos=1_000), "ci")
    counters.took([tried(SOL, Usage(10, 5)), tried(QWEN, Usage(1, 0))], cost, "ci")
    counters.answered(other, metadata(cost_nanos=500))
    counters.took([tried(other, Usage(5, 1))], cost)
    counters.failed(RateLimited("slow"), other, "ci")
    counters.failed(asyncio.CancelledError(), QWEN, "me")
    counters.failed(InvalidRequest("bad"))
    stats = counters.stats()
    openai, local = stats.providers
    assert (openai.provider, openai.model, openai.key) == ("openai", None, None)
    assert (openai.requests, openai.failed, openai.cost_nanos) == (3, 1, 1_500)
    assert (local.provider, local.requests, local.usage) == ("local", 1, Usage(1, 0))
    ci, me = stats.keys
    assert (ci.provider, ci.model, ci.key, ci.requests) == (None, None, "ci", 2)
    assert (ci.failures, ci.cost_nanos, ci.usage) == ({"RateLimited": 1}, 1_000, Usage(11, 5))
    assert (me.key, me.failures) == ("me", {"RequestCancelled": 1})
    assert stats.total.requests == 5


def test_keys_beyond_the_limit_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    counters = UsageCounters()
    for number in range(10):
        counters.answered(SOL, metadata(), f"key-{number}")
    rows = [(row.key, row.requests) for row in counters.stats().keys]
    assert rows == [("*", 8), ("key-0", 1), ("key-1", 1)]


def test_names_that_callers_make_up_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 3)
    counters = UsageCounters()
    for number in range(50):
        counters.answered(Target("openai", f"made-up-{number}"), metadata())
    stats = counters.stats()
    assert [(row.model, row.requests) for row in stats.models] == [
        ("*", 47),
        ("made-up-0", 1),
        ("made-up-1", 1),
        ("made-up-2", 1),
    ]
    assert stats.total.requests == 50


def test_the_counts_that_were_given_away_do_not_change_and_have_a_json_form() -> None:
    counters = UsageCounters()
    counters.failed(RateLimited("slow"), SOL)
    before = counters.stats()
    counters.failed(RateLimited("slow"), SOL)
    assert before.total.failures == {"RateLimited": 1}
    assert before.started_at == counters.stats().started_at
    assert msgspec.json.decode(msgspec.json.encode(before), type=UsageStats) == before


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200), st.integers(0, 200))
def test_quantiles_are_close_to_the_true_ones_however_they_were_gathered(
    durations: list[int], split: int
) -> None:
    first, second = Latencies(), Latencies()
    for index, duration in enumerate(durations):
        (first if index < split else second).add(duration)
    first.merge(second)
    summary = first.summary()
    assert summary is not None
    ordered = sorted(durations)
    for share, found in ((0.5, summary.p50_ms), (0.9, summary.p90_ms), (0.99, summary.p99_ms)):
        true = ordered[max(1, math.ceil(share * len(ordered))) - 1]
        assert found == pytest.approx(true, rel=0.03)
    assert summary.mean_ms == pytest.approx(statistics.fmean(durations))
    assert summary.max_ms == ordered[-1]


def test_without_durations_there_is_nothing_to_tell() -> None:
    assert Latencies().summary() is None
