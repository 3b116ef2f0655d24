"""What a key's owner sees, and what requests would cost, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, engine_with
from tests.support.keyed import bearer
from tests.unit.server.admin_support import Admin, administered
from tests.unit.server.gateway_support import CHAT, chat_body, running_gateway

KEYS: dict[str, dict[str, Any]] = {
    "ci": {
        "models": ["default"],
        "requests_per_minute": 9,
        "tokens_per_minute": 5000,
        "budget": {"limit_usd": 5.0, "period": "day"},
        "tags": {"team": "blue"},
    },
    "cd": {},
}


async def own(admin: Admin, key: str = "ci", **query: Any) -> dict[str, Any]:
    answer = await admin.gateway.client.get(
        "/v1/usage", params=query, headers=bearer(admin.texts[key])
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_key_sees_its_own_spending_limits_and_requests() -> None:
    async with administered(**KEYS) as admin:
        await admin.chat("ci")
        await admin.chat("cd")
        await admin.chat("cd", model="assistant")
        await admin.chat("ci", model="secret-project")
        mine, theirs = await own(admin), await own(admin, "cd")
        assert (mine["key"]["name"], mine["key"]["models"]) == ("ci", ["default"])
        assert [each["period"] for each in mine["periods"]] == [
            "hour",
            "day",
            "week",
            "month",
            "forever",
        ]
        assert {each["usage"]["requests"] for each in mine["periods"]} == {1}
        spent = mine["periods"][1]["usage"]["amount_nanos"]
        assert spent > 0
        assert [(each["name"], each["amount_nanos"]) for each in mine["models"]] == [
            ("echo", spent)
        ]
        (budget,) = mine["key"]["budgets"]
        assert (budget["name"], budget["used_nanos"]) == ("key:ci", spent)
        assert budget["remaining_nanos"] == 5_000_000_000 - spent
        assert mine["requests_per_minute"]["remaining"] == 7
        assert mine["tokens_per_minute"]["remaining"] < 5000
        assert mine["tokens_per_minute"]["resets_in_s"] > 0
        assert [(each["requested_model"], each["outcome"]) for each in mine["requests"]] == [
            ("secret-project", "failed"),
            ("default", "ok"),
        ]
        assert mine["requests"][1]["cost_nanos"] == spent
        # Nothing of others: not in any form.
        assert (theirs["key"]["budgets"], theirs["requests_per_minute"]) == ([], None)
        assert {each["name"] for each in theirs["models"]} == {"echo", "echo-2"}
        assert [each["requested_model"] for each in theirs["requests"]] == ["assistant", "default"]
        assert {each["request_id"] for each in mine["requests"]}.isdisjoint(
            each["request_id"] for each in theirs["requests"]
        )


async def test_without_a_ledger_nothing_is_listed_as_used() -> None:
    async with running_gateway(engine_with(FakeProvider())) as gateway:
        await gateway.chat("Hi")
        answer = await gateway.client.get("/v1/usage")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["periods"], shown["models"]) == ([], [])
    assert [each["outcome"] for each in shown["requests"]] == ["ok"]


async def test_budgets_of_others_and_of_all_are_not_shown() -> None:
    async with administered(**KEYS) as admin:
        await admin.send("PUT", "budgets/total", {"limit_usd": 77})
        await admin.send("PUT", "budgets/theirs", {"limit_usd": 88, "key": "cd"})
        await admin.send("PUT", "budgets/mine", {"limit_usd": 3, "key": "ci", "provider": "fake"})
        found = {each["name"] for each in (await own(admin))["key"]["budgets"]}
        assert found == {"key:ci", "mine"}


async def test_a_key_whose_name_another_key_had_sees_nothing_of_that() -> None:
    async with administered() as admin:
        for number in (1, 2):
            made = await admin.send("POST", "keys", {"name": "k"}, status=201)
            admin.texts["k"] = made["key"]
            for _ in range(number):
                assert (await admin.chat("k")).status_code == 200
            mine = await own(admin, "k")
            assert mine["periods"][-1]["usage"]["requests"] == number
            assert len(mine["requests"]) == number
            await admin.send("DELETE", "keys/k")
        rows = (await admin.get("usage", by="key"))["rows"]
        assert {each["name"]: each["requests"] for each in rows} == {"k": 1, "k~2": 2}


async def test_the_time_and_the_number_of_requests_can_be_chosen() -> None:
    async with administered(**KEYS) as admin:
        for _ in range(3):
            await admin.chat("ci")
        mine = await own(admin, limit=2, since=0, until=1)
        assert (len(mine["requests"]), mine["models"]) == (2, [])


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 101}, "limit"),
        ({"since": "yesterday"}, "since"),
        ({"key": "cd"}, "key"),
    ],
)
async def test_nonsense_is_refused(query: dict[str, Any], param: str) -> None:
    async with administered(**KEYS) as admin:
        answer = await admin.gateway.client.get(
            "/v1/usage", params=query, headers=bearer(admin.texts["ci"])
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_it_takes_a_key_where_there_is_one(fake: FakeProvider) -> None:
    async with administered(**KEYS) as admin:
        client = admin.gateway.client
        for path, method in (("/v1/usage", "GET"), ("/v1/estimate", "POST")):
            assert (await client.request(method, path)).status_code == 401
            refused = await client.request(method, path, headers=bearer("psk_" + "x" * 40))
            assert refused.status_code == 401
            assert (await admin.call("GET", "usage")).status_code == 200


async def test_without_any_key_it_is_about_the_gateway() -> None:
    config = engine_with(FakeProvider()).config
    async with running_gateway(Engine(config, keep_books=True)) as gateway:
        await gateway.client.post(CHAT, json=chat_body("Hi"))
        said = (await gateway.client.get("/v1/usage")).json()
        assert said["key"] is None
        assert said["periods"][0]["usage"]["requests"] == 1


# ---- estimates


async def test_an_estimate_takes_the_body_of_a_chat_completion_and_calls_nothing() -> None:
    fake = FakeProvider()
    async with administered(fake, **KEYS) as admin:
        body = chat_body("Hi there", model="default", max_tokens=10)
        answer = await admin.gateway.client.post(
            "/v1/estimate", json=body, headers=bearer(admin.texts["ci"])
        )
        assert answer.status_code == 200, answer.text
        said = answer.json()
        (target,) = said["targets"]
        assert (said["model"], said["fits"], target["target"]) == ("default", True, "fake/echo")
        assert target["worst_nanos"] >= target["expected_nanos"] > 0
        (budget,) = target["budgets"]
        assert (budget["budget"], budget["fits"], budget["reason"]) == ("key:ci", True, "")
        assert budget["asked_nanos"] == target["worst_nanos"]
        assert fake.requests == []
        body["max_tokens"] = 10_000
        answer = await admin.gateway.client.post(
            "/v1/estimate", json=body, headers=bearer(admin.texts["ci"])
        )
        said = answer.json()
        assert not said["fits"]
        assert "which is more than its whole limit" in said["targets"][0]["budgets"][0]["reason"]
        entries = (await admin.get("ledger"))["entries"]
        assert entries == []


async def estimated(admin: Admin, key: str, max_tokens: int = 10) -> dict[str, dict[str, Any]]:
    """The verdicts of the one target, by the names of the budgets."""
    body = chat_body("Hi there", model="default", max_tokens=max_tokens)
    answer = await admin.gateway.client.post(
        "/v1/estimate", json=body, headers=bearer(admin.texts[key])
    )
    assert answer.status_code == 200, answer.text
    (target,) = answer.json()["targets"]
    return {each["budget"]: each for each in target["budgets"]}


async def test_an_estimate_shows_a_limited_key_no_amounts_of_other_budgets() -> None:
    async with administered(**KEYS) as admin:
        await admin.send("PUT", "budgets/total", {"limit_usd": 77})
        await admin.send("PUT", "budgets/tiny", {"limit_usd": 0.000123, "tags": {"team": "blue"}})
        await admin.send("PUT", "budgets/mine", {"limit_usd": 3, "key": "ci", "provider": "fake"})
        limited = await estimated(admin, "ci")
        assert limited.keys() == {"total", "tiny", "mine", "key:ci"}
        for name in ("total", "tiny"):
            assert limited[name]["limit_nanos"] is limited[name]["remaining_nanos"] is None
        assert limited["total"]["fits"]
        assert limited["total"]["asked_nanos"] == limited["mine"]["asked_nanos"] > 0
        assert not limited["tiny"]["fits"]
        assert limited["tiny"]["reason"] == "budget 'tiny' has no room for this call"
        assert (limited["mine"]["limit_nanos"], limited["mine"]["fits"]) == (3 * 10**9, True)
        assert limited["key:ci"]["limit_nanos"] == 5 * 10**9
        # A key of an operator, which is limited to no models, and the administrator see all.
        assert (await estimated(admin, "cd"))["total"]["limit_nanos"] == 77 * 10**9
        order = {"prompt": "Hi there", "max_tokens": 10, "model": "default", "key": "ci"}
        (target,) = (await admin.send("POST", "estimate", order))["targets"]
        amounts = {each["budget"]: each["limit_nanos"] for each in target["budgets"]}
        assert amounts["total"] == 77 * 10**9


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"model": "assistant"}, 404, "there is no model 'assistant' for this key"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "Hi"}, 400, "messages"),
    ],
)
async def test_an_estimate_refuses_what_a_chat_completion_refuses(
    fields: dict[str, Any], status: int, said: str
) -> None:
    async with administered(**KEYS) as admin:
        body = {**chat_body("Hi", model="default"), **fields}
        for path in ("/v1/estimate", CHAT):
            answer = await admin.gateway.client.post(
                path, json=body, headers=bearer(admin.texts["ci"])
            )
            assert answer.status_code == status, answer.text
            assert said in str(answer.json()["error"])


async def test_an_administrator_estimates_for_a_key() -> None:
    async with administered(**KEYS) as admin:
        order = {"prompt": "Hi", "max_tokens": 10, "key": "ci", "model": "default"}
        said = await admin.send("POST", "estimate", order)
        assert [each["budget"] for each in said["targets"][0]["budgets"]] == ["key:ci"]
        assert (await admin.send("POST", "estimate", {**order, "key": "cd"}))["targets"][0][
            "budgets"
        ] == []
        whole = {"request": chat_body("Hi", model="default", max_tokens=10), "key": "ci"}
        as_a_whole = await admin.send("POST", "estimate", whole)
        for field in ("target", "input_tokens", "expected_nanos", "fits"):
            assert as_a_whole["targets"][0][field] == said["targets"][0][field]
        error = await admin.error("POST", "estimate", 404, json={**order, "model": "assistant"})
        assert "assistant" in error["message"]
        error = await admin.error("POST", "estimate", 404, json={**order, "key": "nobody"})
        assert error["message"].startswith("there is no key 'nobody'")
        error = await admin.error("POST", "estimate", 400, json={**whole, "prompt": "Hi"})
        assert error["param"] == "prompt"
        error = await admin.error("POST", "estimate", 400, json={})
        assert "give a text, or `request`" in error["message"]


async def test_a_route_says_what_budgets_would_decide() -> None:
    async with administered(**KEYS) as admin:
        await admin.send("PUT", "budgets/total", {"limit_usd": 0})
        said = await admin.send("POST", "route", {"model": "default", "key": "ci"})
        found = {each["budget"]: each["fits"] for each in said["ranked"][0]["budgets"]}
        assert found == {"key:ci": True, "total": False}


# ---- calls made elsewhere


async def test_an_administrator_records_a_call_for_a_key() -> None:
    async with administered(**KEYS) as admin:
        order = {
            "target": "fake/echo",
            "usage": {"input_tokens": 1000, "output_tokens": 5000},
            "key": "ci",
            "latency_s": 1.5,
            "quality": 0.5,
        }
        recorded = await admin.send("POST", "usage", order, status=201)
        assert recorded["cost_nanos"] == 6_000_000_000
        assert recorded["overdrawn"] == ["key:ci"]
        (entry,) = (await admin.get("ledger", kind="record"))["entries"]
        assert (entry["key"], entry["tags"]) == ("ci", {"team": "blue"})
        assert (await own(admin))["key"]["budgets"][0]["used_nanos"] == 6_000_000_000
        refused = await admin.chat("ci")
        assert refused.json()["error"]["code"] == "insufficient_quota"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"target": "echo"}, 400, "target"),
        ({"target": "nobody/echo"}, 404, None),
        ({"usage": {}}, 400, "usage"),
        ({"usage": {"input_tokens": -5}}, 400, "usage.input_tokens"),
        (
            {"usage": {"input_tokens": 5, "cached_input_tokens": 9}},
            400,
            "usage.cached_input_tokens",
        ),
        ({"usage": {"tokens": 5}}, 400, "usage"),
        ({"key": "nobody"}, 404, "key"),
        ({"quality": 2}, 400, "quality"),
        ({"latency_s": -1}, 400, "latency_s"),
        ({"tags": {"a": ""}}, 400, "tags"),
        ({"cost": 5}, 400, "cost"),
    ],
)
async def test_a_recorded_call_that_is_nonsense_is_refused(
    fields: dict[str, Any], status: int, param: str | None
) -> None:
    async with administered(**KEYS) as admin:
        order = {"target": "fake/echo", "usage": {"input_tokens": 5}, **fields}
        error = await admin.error("POST", "usage", status, json=order)
        if param is not None:
            assert (error["param"] or "").startswith(param)
        assert (await admin.get("ledger"))["entries"] == []
