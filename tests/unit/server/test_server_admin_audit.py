"""The audit trail: who changed what, when, from what to what."""

import json
import logging
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.audit import store as audit
from penstock.audit.records import AuditFilter
from penstock.audit.store import AuditStore
from penstock.contract.errors import StorageUnavailable
from penstock.server.admin import api
from penstock.server.admin.audit import record_reload
from tests.support.clock import ManualClock
from tests.support.keyed import ADMIN
from tests.unit.server.admin_support import Admin, administered


async def trail(admin: Admin, **query: Any) -> list[dict[str, Any]]:
    """The entries, the oldest first."""
    return (await admin.get("audit", **query))["entries"][::-1]


async def test_changes_of_budgets_are_kept_with_their_states() -> None:
    async with administered() as admin:
        await admin.send("PUT", "budgets/team", {"limit_usd": 5})
        await admin.send("PUT", "budgets/team", {"limit_usd": 50, "period": "day"})
        await admin.send("POST", "budgets/team/reset")
        await admin.send("DELETE", "budgets/team", status=204)
        first, second, third, last = await trail(admin)
    assert [each["action"] for each in (first, second, third, last)] == [
        "set_budget",
        "set_budget",
        "reset_budget",
        "remove_budget",
    ]
    assert {each["subject"] for each in (first, second, third, last)} == {"team"}
    assert first["before"] is None
    assert first["after"]["limit_usd"] == 5.0
    assert second["details"]["limit_usd"] == 50
    assert (second["before"]["limit_usd"], second["after"]["limit_usd"]) == (5.0, 50.0)
    assert last["before"]["period"] == "day"
    assert last["after"] is None
    assert second["actor"] == "admin key"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", second["origin"])
    assert first["at"] <= second["at"] <= last["at"]


async def test_changes_of_keys_are_kept_without_their_secrets() -> None:
    async with administered() as admin:
        made = await admin.send("POST", "keys", {"name": "new", "models": ["default"]}, status=201)
        other = await admin.send("POST", "keys/new/rotate", {"grace_s": 60})
        await admin.send("DELETE", "keys/new")
        answer = await admin.call("GET", "audit")
        entries = await trail(admin)
    assert [each["action"] for each in entries] == ["create_key", "rotate_key", "revoke_key"]
    assert entries[0]["before"] is None
    assert entries[0]["after"]["models"] == ["default"]
    assert (entries[2]["before"]["state"], entries[2]["after"]["state"]) == ("active", "revoked")
    for secret in (made["key"], other["key"], ADMIN, "sha256:"):
        assert secret not in answer.text


async def test_targets_and_requests_that_were_stopped() -> None:
    async with administered() as admin:
        await admin.send("POST", "targets/down", {"target": "fake/echo", "reason": "noon"})
        await admin.send("POST", "targets/up", {"target": "fake/echo"})
        down, up = await trail(admin)
    assert (down["action"], down["subject"], down["details"]["reason"]) == (
        "mark_down",
        "fake/echo",
        "noon",
    )
    assert down["after"] == [
        {"target": "fake/echo", "state": "open", "reason": "marked down: noon"}
    ]
    assert up["after"][0]["state"] == "closed"


async def test_usage_that_was_recorded_by_hand_is_kept_without_its_prompt() -> None:
    order = {
        "target": "fake/echo",
        "usage": {"input_tokens": 900, "output_tokens": 80},
        "key": "ci",
        "prompt": "a secret question",
    }
    async with administered() as admin:
        await admin.send("POST", "usage", order, status=201)
        await admin.error("POST", "usage", 404, json={**order, "key": "nope"})
        await admin.send("POST", "estimate", {"prompt": "Hi"})
        await admin.get("usage")
        (entry,) = await trail(admin)
    assert (entry["action"], entry["subject"]) == ("record_usage", "fake/echo")
    assert entry["details"]["key"] == "ci"
    assert entry["details"]["usage"]["input_tokens"] == 900
    assert "prompt" not in entry["details"]


async def test_what_fails_and_what_only_looks_is_not_kept() -> None:
    async with administered() as admin:
        await admin.error("POST", "keys", 404, json={"name": "x", "models": ["nope"]})
        await admin.error("DELETE", "budgets/nope", 404)
        await admin.error("DELETE", "requests/nope", 404)
        await admin.send("POST", "route", {"prompt": "Hi"})
        await admin.get("budgets")
        assert await trail(admin) == []


async def test_the_trail_has_pages_and_filters() -> None:
    async with administered() as admin:
        for number in range(5):
            await admin.send("PUT", f"budgets/b{number}", {"limit_usd": 1})
        first = await admin.get("audit", limit=2)
        second = await admin.get("audit", limit=2, cursor=first["next"])
        third = await admin.get("audit", limit=2, cursor=second["next"])
        names = [each["subject"] for page in (first, second, third) for each in page["entries"]]
        assert names == ["b4", "b3", "b2", "b1", "b0"]
        assert third["next"] is None
        assert [each["subject"] for each in await trail(admin, subject="b2")] == ["b2"]
        assert await trail(admin, action="create_key") == []
        moment = first["entries"][0]["at"]
        assert [each["subject"] for each in await trail(admin, since=moment)] == ["b4"]
        await admin.error("GET", "audit", 400, params={"limit": 0})
        await admin.error("GET", "audit", 400, params={"who": "me"})


async def test_it_takes_the_admin_key() -> None:
    async with administered() as admin:
        for headers in ({}, {"authorization": f"Bearer {admin.texts['ci']}"}):
            answer = await admin.gateway.client.get("/admin/v1/audit", headers=headers)
            assert answer.status_code in (401, 403)


async def test_each_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")
    async with administered() as admin:
        await admin.send("PUT", "budgets/team", {"limit_usd": 5})
    (line,) = [each for each in caplog.records if each.name == "penstock.audit"]
    assert "set_budget team; after" in line.getMessage()
    assert vars(line)["penstock_fields"]["action"] == "set_budget"


async def test_a_reload_is_kept_as_what_has_changed() -> None:
    async with administered() as admin:
        config = admin.engine.config
        server = config.server.model_copy(update={"grace_s": 99.0})
        record_reload(
            admin.engine, config, config.model_copy(update={"server": server}), "penstock.toml"
        )
        (entry,) = await trail(admin)
    assert (entry["action"], entry["subject"], entry["actor"]) == (
        "reload",
        "penstock.toml",
        "configuration",
    )
    assert entry["before"].keys() == entry["after"].keys() == {"server"}
    assert (entry["before"]["server"]["grace_s"], entry["after"]["server"]["grace_s"]) == (10, 99)
    assert ADMIN not in json.dumps(entry)


def test_every_endpoint_that_changes_something_is_recorded() -> None:
    endpoints = api.endpoints(*api.unconnected())
    plain = {
        f"{each.method} {each.template}"
        for each in endpoints
        if each.method != "GET" and not hasattr(each.run, "__wrapped__")
    }
    assert plain == {"POST /admin/v1/route", "POST /admin/v1/estimate"}


# -- the store


def a_store(path: Path, days: float = 365.0, clock: ManualClock | None = None) -> AuditStore:
    return AuditStore(path / "penstock.db", days, clock=clock or ManualClock(1e9))


def change(store: AuditStore, subject: str = "x", **states: Any) -> None:
    store.record("set_budget", subject, actor="me", origin="here", **states)


def test_old_entries_and_those_above_the_limit_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_KEPT", 3)
    clock = ManualClock(1e9)
    store = a_store(tmp_path, days=1.0, clock=clock)
    for number in range(5):
        change(store, str(number))
    names = [each.subject for each in store.page(AuditFilter()).entries]
    assert names == ["4", "3", "2"]
    clock.now += 86_401
    change(store, "later")
    assert [each.subject for each in store.page(AuditFilter()).entries] == ["later"]


def test_a_state_that_is_too_long_is_cut(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    change(store, "x" * 10_000, before={"a": "y" * 100_000}, after={"a": 1})
    (entry,) = store.page(AuditFilter()).entries
    assert len(entry.subject) <= 256
    assert len(json.dumps(entry.before)) < 2_000
    assert entry.after == {"a": 1}


def test_zero_days_keep_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")
    store = a_store(tmp_path, days=0)
    change(store)
    assert store.page(AuditFilter()).entries == []
    assert not store.path.exists()
    assert "set_budget" in caplog.text


def test_a_trail_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = a_store(tmp_path)
    store.path.write_text("this is no database " * 100)
    change(store)
    assert "could not be kept in the audit trail" in caplog.text
    with pytest.raises(StorageUnavailable):
        store.page(AuditFilter())


def test_a_ledger_without_a_trail_has_an_empty_one(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "penstock.db").execute("CREATE TABLE other (x)").connection.close()
    assert a_store(tmp_path).page(AuditFilter()).entries == []
