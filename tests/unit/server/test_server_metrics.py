"""`/metrics`: counts by key, and the state of budgets and breakers at the moment of the scrape."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from penstock.budget.pricing.amounts import NANOS
from penstock.budget.reports import Balance
from penstock.budget.rules import Budget
from penstock.contract.errors import ProviderUnavailable
from penstock.server.admin.responses import TargetInfo
from penstock.server.ops import probes
from penstock.server.ops.state_metrics import MOST_LABELS, StateMetrics
from penstock.telemetry.exporters.prometheus import NO_KEY, PrometheusMetrics
from penstock.telemetry.records import CallRefused
from penstock.testing import FakeProvider
from tests.support.keyed import ADMIN, bearer
from tests.support.telemetry import finished
from tests.unit.server.admin_support import Admin, administered
from tests.unit.server.sampling_support import SOCKET

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scrape(admin: Admin, key: str = ADMIN) -> Samples:
    answer = await admin.gateway.client.get("/metrics", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return read(answer.text)


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


async def test_requests_tokens_and_cost_are_counted_by_key() -> None:
    async with administered(one={}, two={}) as admin:
        for key in ("one", "one", "two"):
            await admin.chat(key)
        found = await scrape(admin)
    assert value(found, "penstock_key_requests_total", key="one", outcome="ok") == 2
    assert value(found, "penstock_key_requests_total", key="two", outcome="ok") == 1
    # The fake model reads 20 tokens and answers 10, at 1,000 dollars a million.
    assert value(found, "penstock_key_tokens_total", key="one", type="input") == 4
    assert value(found, "penstock_key_tokens_total", key="one", type="output") == 4
    assert value(found, "penstock_key_cost_usd_total", key="two") == pytest.approx(0.004)


async def test_refusals_are_counted_by_key_and_reason() -> None:
    keys: dict[str, Any] = {
        "fast": {"requests_per_minute": 1},
        "few": {"models": ["assistant"]},
        "poor": {"budget": {"limit_usd": 0.0}},
    }
    async with administered(None, **keys) as admin:
        for key in ("fast", "fast", "few", "poor"):
            await admin.chat(key)
        await admin.gateway.client.get("/v1/models")
        await admin.gateway.client.get("/admin/v1/keys", headers=bearer(admin.texts["fast"]))
        found = await scrape(admin)
    for key, reason in (
        ("fast", "rate_limit"),
        ("few", "model"),
        ("poor", "budget"),
        (NO_KEY, "unauthorized"),
        ("fast", "forbidden"),
    ):
        assert value(found, "penstock_refusals_total", key=key, reason=reason) == 1, (key, reason)


def test_the_labels_of_keys_are_limited() -> None:
    metrics = PrometheusMetrics(max_keys=3)
    for number in range(10):
        metrics(finished(key=f"k{number}"))
        metrics(finished(key="other"))
    metrics(
        CallRefused(status=401, method="GET", path="/", peer="x", key=None, reason="no key", at=0.0)
    )
    found = read(metrics.exposition()[0].decode())
    counted = {
        dict(labels)["key"]: number
        for (name, labels), number in found.items()
        if name == "penstock_key_requests_total"
    }
    assert counted == {"k0": 1, "other": 10, "k1": 1, "_other": 8}
    assert value(found, "penstock_refusals_total", key=NO_KEY, reason="unauthorized") == 1


async def test_what_is_left_of_budgets() -> None:
    async with administered() as admin:
        await admin.send("PUT", "budgets/team", {"limit_usd": 2, "period": "day"})
        await admin.chat()
        found = await scrape(admin)
    labels = {"budget": "team", "period": "day"}
    used = value(found, "penstock_budget_used_usd", **labels)
    assert used == pytest.approx(0.004)
    assert value(found, "penstock_budget_limit_usd", **labels) == 2.0
    assert value(found, "penstock_budget_held_usd", **labels) == 0.0
    assert value(found, "penstock_budget_remaining_usd", **labels) == pytest.approx(1.996)


async def test_the_state_of_breakers() -> None:
    fake = FakeProvider([ProviderUnavailable("down")] * 5)
    async with administered(fake) as admin:
        for _ in range(5):
            await admin.chat()
        found = await scrape(admin)
    place = {"provider": "fake", "upstream_model": "echo"}
    states = {
        state: value(found, "penstock_breaker_state", **place, state=state)
        for state in ("closed", "half_open", "open")
    }
    assert states == {"closed": 0.0, "half_open": 0.0, "open": 1.0}


async def test_a_ledger_that_does_not_answer_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "ANSWERED_S", 0.0)
    async with administered() as admin:
        await admin.send("PUT", "budgets/team", {"limit_usd": 2})
        await admin.chat()
        found = await scrape(admin)
    assert value(found, "penstock_key_requests_total", key="ci", outcome="ok") == 1
    assert not [name for name, _ in found if name.startswith("penstock_budget_")]


def test_the_labels_of_budgets_and_targets_are_limited() -> None:
    balances = [
        Balance(
            budget=Budget(name=f"b{number}", limit_nanos=NANOS),
            used_nanos=NANOS // 2,
            held_nanos=0,
            period_start=0.0,
            resets_at=None,
        )
        for number in range(MOST_LABELS + 10)
    ]
    targets = [
        TargetInfo(
            target=f"p/m{number}",
            state="open" if number else "closed",
            reason="",
            retry_in_s=None,
            in_flight=0,
            waiting=0,
            limit=None,
            status="up",
            checked_at=None,
            evidence=None,
        )
        for number in range(MOST_LABELS + 10)
    ]
    families = {each.name: each for each in StateMetrics(balances, targets).collect()}
    limits = families["penstock_budget_limit_usd"].samples
    assert len(limits) == MOST_LABELS + 1
    assert limits[-1].labels == {"budget": "_other", "period": ""}
    assert limits[-1].value == 10.0
    breakers = families["penstock_breaker_state"].samples
    assert len(breakers) == 3 * (MOST_LABELS + 1)
    assert breakers[-1].labels == {
        "provider": "_other",
        "upstream_model": "_other",
        "state": "open",
    }
    assert breakers[-1].value == 1.0


# -- the key of a scraper


@pytest.fixture
def scraper() -> dict[str, Any]:
    return {"prometheus": {"scope": "metrics"}, "ci": {}}


async def test_a_key_for_metrics_opens_nothing_else(scraper: dict[str, Any]) -> None:
    async with administered(None, **scraper) as admin:
        key = bearer(admin.texts["prometheus"])
        client = admin.gateway.client
        await scrape(admin, admin.texts["prometheus"])
        assert (await client.head("/metrics", headers=key)).status_code == 200
        routes = {(method, path.replace("*", "x")) for method, path in admin.gateway.app.routes}
        public = {"/", "/health", "/ready", "/openapi.json", "/metrics"}
        asked = sorted(each for each in routes if each[1] not in public)
        assert len(asked) > 20
        for method, path in asked:
            answer = await client.request(method, path, headers=key, json={})
            assert answer.status_code == 403, (method, path, answer.text)
        # What it reads there is what everybody reads.
        ready = await client.get("/ready", headers=key)
        assert ready.json() == {"status": "ready"}
        url = f"ws://{admin.gateway.host}:{admin.gateway.port}{SOCKET}"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, proxy=None, additional_headers=key)
        assert refused.value.response.status_code == 403


async def test_a_key_for_certain_models_does_not_scrape() -> None:
    async with administered(None, few={"models": ["assistant"]}) as admin:
        headers = bearer(admin.texts["few"])
        assert (await admin.gateway.client.get("/metrics", headers=headers)).status_code == 403


async def test_the_admin_api_makes_such_a_key() -> None:
    async with administered() as admin:
        made = await admin.send("POST", "keys", {"name": "p", "scope": "metrics"}, status=201)
        assert made["info"]["scope"] == "metrics"
        await scrape(admin, made["key"])
        listed = {each["name"]: each["scope"] for each in (await admin.get("keys"))["keys"]}
        assert listed == {"ci": "calls", "p": "metrics"}
        body = {"name": "q", "scope": "metrics", "models": ["default"]}
        error = await admin.error("POST", "keys", 409, json=body)
        assert "leave models and budget out" in error["message"]
        error = await admin.error("POST", "keys", 400, json={"name": "q", "scope": "all"})
        assert error["param"] == "scope"
