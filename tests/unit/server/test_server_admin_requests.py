"""`/admin/v1/requests`: what runs, what has ended, and how to stop it."""

import asyncio
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import ProviderUnavailable
from penstock.contract.exchange import Usage
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import Admin, administered
from tests.unit.server.gateway_support import running_gateway, until


async def test_a_request_is_kept_with_its_route_attempts_timings_and_cost() -> None:
    reply = FakeReply(text="Yes.", usage=Usage(input_tokens=20, output_tokens=10))
    async with administered(FakeProvider([reply])) as admin:
        answered = await admin.chat()
        (info,) = (await admin.get("requests"))["requests"]
        assert info["request_id"] == answered.headers["x-request-id"]
        assert info == await admin.get(f"requests/{info['request_id']}")
    (attempt,) = info["attempts"]
    assert {**info, "started": 0, "duration_s": 0, "attempts": 0} == {
        "request_id": info["request_id"],
        "state": "ended",
        "outcome": "ok",
        "operation": "chat",
        "stream": False,
        "started": 0,
        "duration_s": 0,
        "first_token_s": None,
        "requested_model": "default",
        "provider": "fake",
        "model": "echo",
        "key": "ci",
        "tags": {"team": "search"},
        "route": {"ranked": ["fake/echo"], "left_out": [], "decision": None},
        "attempts": 0,
        "usage": {"input_tokens": 20, "output_tokens": 10},
        # 30 tokens at 1,000 dollars a million.
        "cost_nanos": 30_000_000,
        "continued_by": None,
        "stop_reason": "endTurn",
        "response_id": info["response_id"],
        "error": None,
        "error_text": None,
    }
    assert {**attempt, "started": 0, "duration_s": 0} == {
        "number": 1,
        "provider": "fake",
        "model": "echo",
        "started": 0,
        "outcome": "ok",
        "duration_s": 0,
        "first_token_s": None,
        "error": None,
        "error_text": None,
        "status": None,
        "retryable": False,
        "usage": {"input_tokens": 20, "output_tokens": 10},
        "dropped_options": [],
        "adapted": [],
    }
    assert info["started"] <= attempt["started"]
    assert 0 <= attempt["duration_s"] <= info["duration_s"]


async def test_they_are_listed_newest_first_and_filtered() -> None:
    failing = ProviderUnavailable("down", provider="fake", model="echo", status=503)
    fake = FakeProvider([FakeReply(text="a"), failing])
    async with administered(fake, ci={}, other={}) as admin:
        first = (await admin.chat("ci")).headers["x-request-id"]
        second = (await admin.chat("ci")).headers["x-request-id"]
        third = (await admin.chat("other", model="assistant", stream=True)).headers["x-request-id"]
        await admin.chat("ci", model="nothing-of-the-kind")

        async def ids(**query: Any) -> list[str]:
            return [
                each["request_id"] for each in (await admin.get("requests", **query))["requests"]
            ]

        assert (await ids())[1:] == [third, second, first]
        assert await ids(outcome="ok") == [third, first]
        assert (await ids(outcome="failed"))[1:] == [second]
        assert await ids(outcome="cancelled") == []
        assert await ids(key="other") == [third]
        assert await ids(model="assistant") == [third]
        assert await ids(model="echo") == [second, first]
        assert await ids(provider="fake", outcome="failed") == [second]
        assert await ids(provider="nobody") == []
        assert await ids(outcome="ok", limit=1) == [third]
        assert await ids(state="running") == []
        failed = await admin.get(f"requests/{second}")
        assert (failed["error"], failed["cost_nanos"]) == ("ProviderUnavailable", 0)
        assert [each["error"] for each in failed["attempts"]] == ["ProviderUnavailable"]
        assert failed["attempts"][0]["status"] == 503
        unknown = (await admin.get("requests", limit=1))["requests"][0]
        assert (unknown["error"], unknown["route"], unknown["attempts"]) == (
            "ModelNotFound",
            None,
            [],
        )
        assert (await admin.get(f"requests/{third}"))["first_token_s"] is not None


async def test_what_a_budget_left_out_of_a_route_is_told() -> None:
    async with administered(ci={}) as admin:
        await admin.send("PUT", "budgets/tiny", {"limit_usd": 0, "model": "echo"})
        assert (await admin.chat()).status_code == 429
        (info,) = (await admin.get("requests"))["requests"]
        assert info["error"] == "BudgetExceeded"
        assert info["route"] == {
            "ranked": ["fake/echo"],
            "left_out": ["fake/echo"],
            "decision": None,
        }


@pytest.mark.parametrize("stream", [False, True])
async def test_a_running_request_is_shown_and_stopped(stream: bool) -> None:
    fake = FakeProvider([FakeReply(text="a b c d", delay_s=50)])
    async with administered(fake) as admin:
        asking = asyncio.create_task(admin.chat(stream=stream))
        await until(lambda: fake.requests)
        (info,) = (await admin.get("requests", state="running"))["requests"]
        assert (info["state"], info["outcome"], info["key"]) == ("running", None, "ci")
        assert [each["outcome"] for each in info["attempts"]] == ["running"]
        assert (info["provider"], info["model"], info["stream"]) == ("fake", "echo", stream)
        assert info["duration_s"] >= 0
        one = await admin.get(f"requests/{info['request_id']}")
        assert one["request_id"] == info["request_id"]
        assert (await admin.get("requests", state="ended"))["requests"] == []
        await admin.send("DELETE", f"requests/{info['request_id']}", status=204)
        assert (await asking).json()["error"]["code"] == "request_cancelled"
        ended = await admin.get(f"requests/{info['request_id']}")
        assert (ended["state"], ended["outcome"]) == ("ended", "cancelled")
        error = await admin.error("DELETE", f"requests/{info['request_id']}", 404)
        assert error["code"] == "request_not_found"


async def test_a_request_that_is_not_known() -> None:
    async with administered() as admin:
        error = await admin.error("GET", "requests/req_0", 404)
        assert "'req_0'" in error["message"]
        assert error["code"] == "request_not_found"


@pytest.mark.parametrize("path", ["requests/..%2Fconfig", "requests/a%2Fb", "requests/%2e%2e"])
async def test_a_name_in_a_path_is_a_name_and_no_path(path: str) -> None:
    async with administered() as admin:
        url = f"{admin.gateway.url}/admin/v1/{path}"
        answer = await admin.gateway.client.request("GET", url, headers=bearer(ADMIN))
        assert answer.status_code == 404
        assert "no request" in answer.json()["error"]["message"]


async def test_many_requests_at_once_are_all_kept() -> None:
    async with administered() as admin:
        answers = await asyncio.gather(*(admin.chat() for _ in range(30)))
        known = {each["request_id"] for each in (await admin.get("requests"))["requests"]}
        assert known == {answer.headers["x-request-id"] for answer in answers}


async def test_the_decision_of_a_strategy_is_kept_with_its_request() -> None:
    targets = ["fake/gpt-6-astra", "fake/gpt-6-luna"]
    config = Config.model_validate(
        {
            "server": {"admin_key": ADMIN},
            "providers": {"fake": {}},
            "models": {"default": {"targets": targets, "routing": "fastest"}},
        }
    )
    async with running_gateway(Engine(config, keep_books=True)) as gateway:
        admin = Admin(gateway, {})
        assert (await gateway.chat("Hi", max_tokens=10)).status_code == 200
        (info,) = (await admin.get("requests"))["requests"]
    assert info["route"]["ranked"] == targets[::-1]
    decision = info["route"]["decision"]
    assert [each["target"] for each in decision["ranked"]] == targets[::-1]
    assert (decision["strategy"], decision["explored"]) == ("fastest", False)
    assert 0 < decision["ranked"][0]["latency_ms"] < decision["ranked"][1]["latency_ms"]
    assert decision["reason"].startswith("fake/gpt-6-luna is first of 2 targets (fastest): it is")
