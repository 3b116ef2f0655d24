"""`/admin/v1/usage`, `/ledger` and `/budgets`."""

import time
from typing import Any

import pytest

from penstock.contract.exchange import Usage
from penstock.testing import FakeProvider, FakeReply
from tests.unit.server.admin_support import Admin, administered

REPLY = FakeReply(text="ok", usage=Usage(input_tokens=20, output_tokens=10))
COST = 30_000_000
"""Of one reply: 30 tokens at 1,000 dollars a million."""


def priced(replies: int) -> FakeProvider:
    return FakeProvider([REPLY] * replies)


async def test_usage_adds_up_by_provider_model_key_and_tag() -> None:
    async with administered(
        priced(3), ci={"tags": {"team": "search"}}, other={"tags": {"team": "ads", "x": "y"}}
    ) as admin:
        for key in ("ci", "ci", "other"):
            assert (await admin.chat(key)).status_code == 200
        whole = await admin.get("usage")
        assert (whole["by"], whole["rows"]) == (None, [])
        assert whole["total"]["requests"] == 3
        assert whole["total"]["amount_nanos"] == 3 * COST
        assert whole["total"]["input_tokens"] == 60

        async def rows(by: str, **query: Any) -> dict[str | None, int]:
            found = await admin.get("usage", by=by, **query)
            return {row["name"]: row["amount_nanos"] for row in found["rows"]}

        assert await rows("provider") == {"fake": 3 * COST}
        assert await rows("model") == {"echo": 3 * COST}
        assert await rows("key") == {"ci": 2 * COST, "other": COST}
        assert await rows("tag:team") == {"search": 2 * COST, "ads": COST}
        assert await rows("tag:x") == {None: 2 * COST, "y": COST}
        assert await rows("key", since=time.time() + 100) == {}
        assert await rows("key", until=1.0) == {}
        assert await rows("key", since=1.0, until=time.time() + 100) == {
            "ci": 2 * COST,
            "other": COST,
        }


async def test_without_any_request_usage_is_nothing() -> None:
    async with administered() as admin:
        total = (await admin.get("usage"))["total"]
        assert (total["requests"], total["amount_nanos"]) == (0, 0)


@pytest.mark.parametrize("by", ["provider ", "tag:", "tags", "tag:a\nb", "key\n", ""])
async def test_usage_by_nonsense_is_refused(by: str) -> None:
    async with administered() as admin:
        error = await admin.error("GET", "usage", 400, params={"by": by})
        assert error["param"] == "by"
        assert "tag:" in error["message"]


async def test_the_ledger_is_read_page_by_page() -> None:
    async with administered(priced(3)) as admin:
        for _ in range(3):
            await admin.chat()
        whole = await admin.get("ledger")
        assert whole["next"] is None
        assert [each["kind"] for each in whole["entries"]] == ["settle", "hold"] * 3
        ids: list[int] = []
        cursor: dict[str, int] = {}
        for expected in (4, 2):
            page = await admin.get("ledger", limit=4, **cursor)
            assert len(page["entries"]) == expected
            ids += [each["id"] for each in page["entries"]]
            cursor = {"cursor": page["next"]}
        assert ids == [each["id"] for each in whole["entries"]]
        oldest = await admin.get("ledger", oldest_first="true", kind="settle", limit=1)
        assert oldest["entries"][0]["id"] == min(
            each["id"] for each in whole["entries"] if each["kind"] == "settle"
        )
        request_id = whole["entries"][0]["request_id"]
        mine = await admin.get("ledger", request_id=request_id)
        assert {each["request_id"] for each in mine["entries"]} == {request_id}
        assert (await admin.get("ledger", key="nobody"))["entries"] == []
        chosen = await admin.get("ledger", key="ci", model="echo", kind="settle")
        assert len(chosen["entries"]) == 3


async def test_a_budget_from_setting_it_to_its_end() -> None:
    async with administered(priced(2)) as admin:
        assert (await admin.get("budgets"))["budgets"] == []
        order = {"limit_usd": 0.2, "period": "day", "timezone": "Europe/Berlin", "key": "ci"}
        made = await admin.send("PUT", "budgets/small", order)
        assert {name: made[name] for name in order} == order
        assert (made["limit_nanos"], made["declared"], made["hard"]) == (200_000_000, False, True)
        assert made["resets_at"] > time.time()
        await admin.chat()
        (used,) = (await admin.get("budgets"))["budgets"]
        assert used == await admin.get("budgets/small")
        assert (used["used_nanos"], used["held_nanos"]) == (COST, 0)
        assert used["remaining_nanos"] == 200_000_000 - COST
        assert (await admin.send("PUT", "budgets/small", {**order, "limit_usd": 0.12}))[
            "remaining_nanos"
        ] == 120_000_000 - COST
        assert (await admin.chat()).status_code == 429
        assert (await admin.send("POST", "budgets/small/reset"))["used_nanos"] == 0
        assert (await admin.chat()).status_code == 200
        await admin.send("DELETE", "budgets/small", status=204)
        assert (await admin.get("budgets"))["budgets"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "budgets/x"), ("DELETE", "budgets/x"), ("POST", "budgets/x/reset")],
)
async def test_a_budget_that_is_not_there(method: str, path: str) -> None:
    async with administered() as admin:
        await admin.send("PUT", "budgets/total", {"limit_usd": 1})
        error = await admin.error(method, path, 404)
        assert error["message"] == "there is no budget 'x'; there are: total"


async def test_a_declared_budget_is_taken_out_of_the_file_only() -> None:
    async with administered(ci={"budget": {"limit_usd": 5.0}}) as admin:
        assert (await admin.get("budgets/key:ci"))["declared"]
        error = await admin.error("DELETE", "budgets/key:ci", 409)
        assert "penstock.toml" in error["message"]
        set_by_hand = await admin.send("PUT", "budgets/key:ci", {"limit_usd": 7})
        assert (set_by_hand["key"], set_by_hand["declared"]) == ("ci", False)
        error = await admin.error("PUT", "budgets/key:ci", 409, json={"limit_usd": 7, "key": "no"})
        assert error["param"] == "key"
        # What it hid holds again.
        await admin.send("DELETE", "budgets/key:ci", status=204)
        assert (await admin.get("budgets/key:ci"))["limit_usd"] == 5


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "body", "missing required field `limit_usd`"),
        ({"limit_usd": -1}, "limit_usd", "-1 does not fit: expected `float` >= 0"),
        ({"limit_usd": "5"}, "limit_usd", '"5" does not fit: expected `float`'),
        ({"limit_usd": 1, "period": "year"}, "period", '"year" does not fit'),
        ({"limit_usd": 1, "timezone": "Mars/X"}, "body", "'Mars/X' is not known"),
        ({"limit_usd": 1, "limit": 2}, "limit", "there is no such field; there are: limit_usd,"),
        ({"limit_usd": 1, "tags": {"a": ""}}, "tags[...]", "expected `str` of length >= 1"),
        ({"limit_usd": 1, "warn_at": [0]}, "warn_at[0]", "0 does not fit: expected `float` > 0"),
        ([], "body", "[] is not an object; send a JSON object"),
        ("x" * 500, "body", "... is not an object"),
    ],
)
async def test_a_budget_that_is_nonsense_is_refused(body: Any, param: str, said: str) -> None:
    async with administered() as admin:
        error = await admin.error("PUT", "budgets/total", 400, json=body)
        assert (error["param"], error["type"]) == (param, "invalid_request_error")
        assert said in error["message"]
        assert await _names(admin) == []


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 65, "a/b", "key:", "a\n", "ä"])
async def test_a_name_that_no_budget_may_have(name: str) -> None:
    async with administered() as admin:
        path = "budgets/" + "".join(f"%{byte:02X}" for byte in name.encode())
        error = await admin.error("PUT", path, 400, json={"limit_usd": 1})
        assert error["param"] == "name"


async def test_dollars_are_rounded_to_what_the_ledger_counts_in() -> None:
    async with administered() as admin:
        made = await admin.send("PUT", "budgets/total", {"limit_usd": 0.12345678951})
        assert made["limit_nanos"] == 123_456_790


async def _names(admin: Admin) -> list[str]:
    return [each["name"] for each in (await admin.get("budgets"))["budgets"]]
