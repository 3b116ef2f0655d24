"""What a request would cost, and calls that were made elsewhere, with a real ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import BudgetExceeded, Caller, InvalidRequest, ModelNotFound, Usage
from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Target
from penstock.engine.engine import Engine
from penstock.keys.policy import KeyTerms
from penstock.keys.records import Key, KeyHash, hash_of
from penstock.testing import FakeProvider

PRICES = {"fake/words-60": {"input": 3, "output": 15}, "fake/words-40": {"input": 1, "output": 2}}


def configuration(tmp_path: Path, **sections: Any) -> penstock.Config:
    return penstock.Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {
                "default": {"targets": ["fake/words-60", "fake/words-40"], "prices": PRICES},
                "free": {"targets": ["fake/echo"]},
            },
            "storage": {"url": f"sqlite:///{tmp_path / 'x.db'}"},
            **sections,
        }
    )


async def entries(engine: Engine) -> int:
    return len((await (await engine.ledger()).history()).entries)


async def test_an_estimate_is_what_would_be_reserved_and_calls_nothing(tmp_path: Path) -> None:
    budgets = {"total": {"limit_usd": 1}, "soft": {"limit_usd": 0, "hard": False}}
    async with penstock.open(configuration(tmp_path, budgets=budgets)) as engine:
        provider = FakeProvider()
        engine.use(provider)
        found = await engine.estimate("Count to sixty.", max_tokens=60)
        first, second = found.targets
        assert found.fits
        assert (first.model, second.model) == ("words-60", "words-40")
        assert first.max_input_tokens >= first.input_tokens > 0
        assert (first.output_tokens, first.max_output_tokens) == (60, 60)
        assert first.worst_nanos == first.max_input_tokens * 3_000 + 60 * 15_000
        assert first.expected_nanos == first.input_tokens * 3_000 + 60 * 15_000
        assert first.worst_nanos is not None
        assert second.worst_nanos is not None
        assert second.worst_nanos < first.worst_nanos
        assert [(each.budget, each.fits, each.hard) for each in first.budgets] == [
            ("soft", True, False),
            ("total", True, True),
        ]
        assert first.budgets[1].asked_nanos == first.worst_nanos
        assert (provider.requests, await entries(engine)) == ([], 0)
        # What is reserved for the request is the most expensive of these.
        await engine.create_message("Count to sixty.", max_tokens=60)
        page = await (await engine.ledger()).history(oldest_first=True)
        assert page.entries[0].amount_nanos == first.worst_nanos
        written = json.loads(json.dumps(found.to_dict()))
        assert written["targets"][0]["worst_usd"] == pytest.approx(first.worst_nanos / 1e9)
        assert written["targets"][0]["budgets"][1]["remaining_nanos"] == 1_000_000_000


@pytest.mark.parametrize("limit_nanos", [0, 100_000, 300_000, 1_000_000, 1_200_000, 5_000_000])
@pytest.mark.parametrize("max_tokens", [1, 60, 100])
async def test_an_estimate_fits_when_the_request_does(
    tmp_path: Path, limit_nanos: int, max_tokens: int
) -> None:
    budgets = {"total": {"limit_usd": limit_nanos / 1e9, "period": "day"}}
    async with penstock.open(configuration(tmp_path, budgets=budgets)) as engine:
        found = await engine.estimate("Count.", max_tokens=max_tokens)
        decision = await engine.route("Count.", max_tokens=max_tokens)
        verdicts = [each.budgets for each in found.targets]
        assert [each.budgets for each in decision.ranked] == verdicts
        fitting = [each.model for each in found.targets if each.fits]
        assert found.fits == bool(fitting)
        if fitting:
            result = await engine.create_message("Count.", max_tokens=max_tokens)
            assert result.model == fitting[0]
            return
        with pytest.raises(BudgetExceeded) as refused:
            await engine.create_message("Count.", max_tokens=max_tokens)
        reasons = [each.budgets[0].reason for each in found.targets]
        assert any(str(refused.value).startswith(reason) for reason in reasons)


async def test_a_target_without_a_price_fits_no_hard_budget(tmp_path: Path) -> None:
    config = penstock.Config.model_validate(
        {
            "providers": {"far": {"kind": "openai-chat", "url": "https://llm.example.com/v1"}},
            "models": {"default": {"targets": ["far/secret"]}},
            "budgets": {"total": {"limit_usd": 1}},
            "storage": {"url": f"sqlite:///{tmp_path / 'x.db'}"},
        }
    )
    async with penstock.open(config) as engine:
        (only,) = (await engine.estimate("Hi", max_tokens=9)).targets
        assert (only.worst_nanos, only.expected_nanos, only.price_source) == (None, None, None)
        assert not only.fits
        assert (
            "no price for far/secret; the hard budget 'total' requires one"
            in only.budgets[0].reason
        )
        assert "worst_usd" not in only.to_dict()


async def test_an_estimate_for_a_key_has_its_models_budgets_and_tags(tmp_path: Path) -> None:
    budgets = {
        "mine": {"limit_usd": 0.0001, "key": "ci"},
        "team": {"limit_usd": 1, "tags": {"team": "a"}},
        "other": {"limit_usd": 0, "key": "cd"},
    }
    key = Key(name="ci", hashes=(KeyHash(hash_of("x")),), models=("default",), tags={"team": "a"})
    async with penstock.open(configuration(tmp_path, budgets=budgets)) as engine:
        caller = KeyTerms(key, {"default": ("fake/words-60", "fake/words-40")}).caller
        found = await engine.estimate("Hi", max_tokens=60, model="default", caller=caller)
        assert [each.budget for each in found.targets[0].budgets] == ["mine", "team"]
        assert not found.fits
        with pytest.raises(ModelNotFound):
            await engine.estimate("Hi", max_tokens=60, model="free", caller=caller)


async def test_what_is_wrong_with_a_request_is_said_as_for_the_request(tmp_path: Path) -> None:
    async with penstock.open(configuration(tmp_path)) as engine:
        with pytest.raises(InvalidRequest, match="max_tokens"):
            await engine.estimate("Hi", max_tokens=0)
        with pytest.raises(InvalidRequest, match="max_tokens: is required"):
            await engine.estimate("Hi")
        with pytest.raises(ModelNotFound):
            await engine.estimate("Hi", max_tokens=5, model="nothing")


# ---- calls made elsewhere


async def test_a_recorded_call_is_priced_and_counted_also_above_the_limit(tmp_path: Path) -> None:
    budgets = {
        "total": {"limit_usd": 0.001, "period": "forever"},
        "ci": {"limit_usd": 1, "key": "ci", "period": "forever"},
        "cd": {"limit_usd": 1, "key": "cd", "period": "forever"},
    }
    async with penstock.open(configuration(tmp_path, budgets=budgets)) as engine:
        usage = Usage(input_tokens=1000, output_tokens=100, cached_input_tokens=400)
        recorded = await engine.record_usage(
            "fake/words-60", usage, key="ci", tags={"team": "a"}, latency_s=2.5
        )
        assert (recorded.cost_nanos, recorded.price_source) == (4_500_000, "configuration")
        assert recorded.overdrawn == ("total",)
        assert recorded.to_dict()["cost_usd"] == pytest.approx(0.0045)
        used = {each.budget.name: each.used_nanos for each in await engine.budgets()}
        assert used == {"total": 4_500_000, "ci": 4_500_000, "cd": 0}
        with pytest.raises(BudgetExceeded, match="'total'"):
            await engine.create_message("Hi", max_tokens=5)
        ledger = await engine.ledger()
        (entry,) = (await ledger.history()).entries
        assert (entry.kind, entry.key, entry.tags) == ("record", "ci", {"team": "a"})
        assert (entry.provider, entry.model, entry.request_id) == (
            "fake",
            "words-60",
            recorded.request_id,
        )
        assert (entry.input_tokens, entry.output_tokens, entry.cached_tokens) == (1000, 100, 400)
        (row,) = await ledger.usage("key")
        assert (row.name, row.requests, row.amount_nanos) == ("ci", 1, 4_500_000)
        assert await ledger.usage(key="cd") == []
        # A budget that is set later counts it, too.
        await engine.set_budget(1.0, name="late", period="forever")
        used = {each.budget.name: each.used_nanos for each in await engine.budgets()}
        assert used["late"] == 4_500_000
        assert await ledger.verify() == []


async def test_a_call_without_a_known_price_is_recorded_as_unpriced(tmp_path: Path) -> None:
    config = configuration(tmp_path, providers={"fake": {}, "far": {"kind": "nvidia"}})
    async with penstock.open(config) as engine:
        recorded = await engine.record_usage("far/secret", {"input_tokens": 5, "output_tokens": 1})
        assert (recorded.cost_nanos, recorded.price_source) == (None, None)
        (row,) = await (await engine.ledger()).usage()
        assert (row.requests, row.unpriced, row.input_tokens) == (1, 1, 5)


async def test_routing_learns_how_long_a_recorded_call_took(tmp_path: Path) -> None:
    models = {
        "default": {"targets": ["fake/words-60", "fake/words-40"], "routing": "fastest"},
    }
    async with penstock.open(configuration(tmp_path, models=models)) as engine:
        for target, seconds in (("fake/words-60", 9.0), ("fake/words-40", 0.5)):
            for _ in range(20):
                usage = {"input_tokens": 10, "output_tokens": 50}
                await engine.record_usage(target, usage, latency_s=seconds)
        decision = await engine.route("Hi", max_tokens=50)
        assert decision.targets[0] == Target("fake", "words-40")
        assert decision.ranked[1].latency_ms == pytest.approx(9000, rel=0.5)


async def test_routing_learns_how_good_a_recorded_answer_was(tmp_path: Path) -> None:
    models = {
        "default": {
            "targets": ["fake/words-60", "fake/words-40"],
            "routing": "learned",
            "prices": PRICES,
        },
    }
    routing = {"explore": 0.0, "trust": "always"}
    async with penstock.open(configuration(tmp_path, models=models, routing=routing)) as engine:
        usage = {"input_tokens": 10, "output_tokens": 50}
        for _ in range(30):
            await engine.record_usage("fake/words-60", usage, quality=0.05, prompt="Count.")
            await engine.record_usage("fake/words-40", usage, quality=0.95, prompt="Count.")
        assert engine.learning is not None
        await engine.learning.catch_up()
        decision = await engine.route("Count.", max_tokens=50)
        by_name = {each.target.model: each.quality for each in decision.ranked}
        assert decision.targets[0].model == "words-40"
        assert (by_name["words-40"] or 0) > 0.7
        assert (by_name["words-60"] or 0) < 0.3


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"target": "words"}, "target"),
        ({"target": ""}, "target"),
        ({"target": 5}, "target"),
        ({"usage": {}}, "usage"),
        ({"usage": {"input": 5}}, "usage.input"),
        ({"usage": {"input_tokens": -1}}, "usage.input_tokens"),
        ({"usage": {"input_tokens": 1.5}}, "usage.input_tokens"),
        ({"usage": {"input_tokens": True}}, "usage.input_tokens"),
        ({"usage": {"input_tokens": 10**13}}, "usage.input_tokens"),
        ({"usage": {"input_tokens": 5, "cached_input_tokens": 6}}, "usage.cached_input_tokens"),
        ({"usage": {"output_tokens": 5, "reasoning_tokens": 6}}, "usage.reasoning_tokens"),
        ({"usage": {"audio_seconds": float("nan")}}, "usage.audio_seconds"),
        ({"usage": {"input_tokens": 5, "estimated": 1}}, "usage.estimated"),
        ({"usage": "many"}, "usage"),
        ({"key": ""}, "key"),
        ({"key": 5}, "key"),
        ({"tags": {"a": ""}}, "tags"),
        ({"tags": {str(number): "x" for number in range(17)}}, "tags"),
        ({"tags": ["a"]}, "tags"),
        ({"latency_s": -1}, "latency_s"),
        ({"latency_s": float("inf")}, "latency_s"),
        ({"latency_s": "1"}, "latency_s"),
        ({"quality": 1.1}, "quality"),
        ({"quality": True}, "quality"),
        ({"prompt": 5}, "prompt"),
    ],
)
async def test_nonsense_is_refused_and_nothing_is_written(
    tmp_path: Path, fields: dict[str, Any], path: str
) -> None:
    good: dict[str, Any] = {"target": "fake/words-60", "usage": {"input_tokens": 5}}
    async with penstock.open(configuration(tmp_path)) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.record_usage(**{**good, **fields})
        assert [each.path for each in caught.value.problems] == [path]
        assert await entries(engine) == 0


async def test_every_problem_of_a_recorded_call_is_told_at_once(tmp_path: Path) -> None:
    async with penstock.open(configuration(tmp_path)) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.record_usage("x", {"input_tokens": -1}, quality=2, key="", latency_s=-1)
        assert [each.path for each in caught.value.problems] == [
            "target",
            "usage.input_tokens",
            "key",
            "latency_s",
            "quality",
        ]


async def test_only_a_target_that_can_be_called_is_recorded(tmp_path: Path) -> None:
    async with penstock.open(configuration(tmp_path)) as engine:
        with pytest.raises(ModelNotFound, match="there is no provider 'nobody'"):
            await engine.record_usage("nobody/x", {"input_tokens": 5})
    async with Engine(penstock.Config.embedded()) as engine:
        with pytest.raises(ConfigurationError, match="keeps no ledger"):
            await engine.record_usage("embedded/default", {"input_tokens": 5})


def test_both_without_an_event_loop(tmp_path: Path) -> None:
    with penstock.sync.open(configuration(tmp_path)) as engine:
        assert engine.estimate("Hi", max_tokens=5).fits
        recorded = engine.record_usage("fake/words-60", Usage(input_tokens=1, output_tokens=1))
        assert recorded.cost_nanos == 18_000


async def test_a_callers_key_goes_before_what_is_said_of_it(tmp_path: Path) -> None:
    async with penstock.open(configuration(tmp_path)) as engine:
        caller = Caller(key="ci", tags={"team": "a"})
        await engine.record_usage(
            "fake/words-60", {"input_tokens": 1}, key="cd", tags={"team": "b"}, caller=caller
        )
        (entry,) = (await (await engine.ledger()).history()).entries
        assert (entry.key, entry.tags) == ("ci", {"team": "a"})
