"""`/admin/v1/keys`: made, listed, replaced, revoked; and each text shown once."""

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.keys.records import PREFIX, hash_of
from penstock.keys.store import KeyStore
from tests.support.keyed import bearer
from tests.unit.cli.harness import run_penstock
from tests.unit.server.admin_support import Admin, administered


async def works(admin: Admin, text: str) -> bool:
    answer = await admin.gateway.client.get("/v1/models", headers=bearer(text))
    return answer.status_code == 200


async def test_a_key_from_its_making_to_its_end() -> None:
    async with administered() as admin:
        order = {
            "name": "trial",
            "models": ["default", "fake/*"],
            "requests_per_minute": 600,
            "tokens_per_minute": 1000,
            "expires_in_s": 3600,
            "tags": {"team": "ads"},
            "budget": {"limit_usd": 5, "period": "day"},
        }
        made = await admin.send("POST", "keys", order, status=201)
        text, info = made["key"], made["info"]
        assert text.startswith(PREFIX)
        # It works at once, in the process that has made it.
        assert await works(admin, text)
        listed = (await admin.get("keys"))["keys"]
        assert [(each["name"], each["source"]) for each in listed] == [
            ("ci", "penstock.toml"),
            ("trial", "created"),
        ]
        assert listed[1] == info
        assert (info["state"], info["models"]) == ("active", ["default", "fake/*"])
        assert info["budget"] == {"limit_usd": 5.0, "period": "day"}
        assert info["tags"] == {"team": "ads"}
        assert 0 < info["expires"] - time.time() <= 3600
        assert (await admin.get("budgets/key:trial"))["limit_usd"] == 5

        rotated = await admin.send("POST", "keys/trial/rotate", {"grace_s": 600})
        assert rotated["key"] != text
        assert rotated["info"]["old_key_until"] > time.time()
        assert await works(admin, text)
        assert await works(admin, rotated["key"])
        again = await admin.send("POST", "keys/trial/rotate")
        assert [await works(admin, each) for each in (text, rotated["key"], again["key"])] == [
            False,
            False,
            True,
        ]
        revoked = await admin.send("DELETE", "keys/trial")
        assert revoked["state"] == "revoked"
        assert not await works(admin, again["key"])
        # Once more changes nothing, and its name can be used again, for another key.
        assert await admin.send("DELETE", "keys/trial") == revoked
        error = await admin.error("POST", "keys/trial/rotate", 409)
        assert "was revoked" in error["message"]
        second = await admin.send("POST", "keys", {"name": "trial"}, status=201)
        assert (second["info"]["id"], second["info"]["budget"]) == ("trial~2", None)
        assert [await works(admin, each["key"]) for each in (again, second)] == [False, True]
        error = await admin.error("POST", "keys", 409, json={"name": "trial"})
        assert error["code"] == "key_conflict"


async def test_a_key_is_changed_and_works_so_at_once() -> None:
    async with administered() as admin:
        order = {"name": "trial", "models": ["assistant"], "budget": {"limit_usd": 5}}
        made = await admin.send("POST", "keys", order, status=201)
        admin.texts["trial"] = made["key"]
        assert (await admin.chat("trial")).status_code == 404
        patch = {
            "models": ["default"],
            "requests_per_minute": 2,
            "budget": {"limit_usd": 0, "period": "day"},
            "tags": {"team": "ads"},
        }
        info = await admin.send("PATCH", "keys/trial", patch)
        assert (info["models"], info["requests_per_minute"]) == (["default"], 2)
        assert info["budget"] == {"limit_usd": 0.0, "period": "day"}
        assert info in (await admin.get("keys"))["keys"]
        refused = await admin.chat("trial")
        assert refused.json()["error"]["code"] == "insufficient_quota"
        info = await admin.send("PATCH", "keys/trial", {"budget": None})
        assert (info["budget"], info["budgets"]) == (None, [])
        assert (await admin.chat("trial")).status_code == 200
        # It counts on: the limit was changed, not the window.
        assert (await admin.chat("trial")).json()["error"]["code"] == "rate_limit_exceeded"
        await admin.send("PATCH", "keys/trial", {"requests_per_minute": None, "models": []})
        assert (await admin.chat("trial", model="assistant")).status_code == 200


@pytest.mark.parametrize(
    ("patch", "status", "param"),
    [
        ({"models": ["nothing"]}, 404, "models[0]"),
        ({"models": ["fake/a*b"]}, 400, "body"),
        ({"models": None}, 400, "models"),
        ({"requests_per_minute": 0}, 400, "requests_per_minute"),
        ({"tokens_per_minute": "5"}, 400, "tokens_per_minute"),
        ({"expires_in_s": -1}, 400, "expires_in_s"),
        ({"budget": {"limit_usd": 1, "timezone": "Mars"}}, 400, "body"),
        ({"budget": 5}, 400, "budget"),
        ({"name": "other"}, 400, "name"),
    ],
)
async def test_a_change_that_is_nonsense_changes_nothing(
    patch: dict[str, Any], status: int, param: str
) -> None:
    async with administered() as admin:
        order = {"name": "trial", "models": ["default"], "budget": {"limit_usd": 5}}
        info = (await admin.send("POST", "keys", order, status=201))["info"]
        error = await admin.error("PATCH", "keys/trial", status, json=patch)
        assert error["param"] == param
        assert (await admin.get("keys"))["keys"][1] == info


async def test_what_is_kept_is_what_the_command_line_shows(tmp_path: Path) -> None:
    async with administered() as admin:
        made = await admin.send("POST", "keys", {"name": "shared"}, status=201)
        _, keys = KeyStore(admin.engine.config.storage.path).keys()
        assert [key.hashes[0].hash for key in keys] == [hash_of(made["key"])]
        listed = run_penstock("keys", "list", cwd=tmp_path)
        assert "shared" in listed.out


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "keys/{}/rotate", None),
        ("DELETE", "keys/{}", None),
        ("PATCH", "keys/{}", {"tokens_per_minute": 5}),
    ],
)
async def test_keys_of_the_file_and_of_nobody(
    method: str, path: str, body: dict[str, Any] | None
) -> None:
    async with administered() as admin:
        options = {} if body is None else {"json": body}
        error = await admin.error(method, path.format("ci"), 409, **options)
        assert "stands in penstock.toml" in error["message"]
        error = await admin.error(method, path.format("nobody"), 404, **options)
        assert error["message"].startswith("there is no key 'nobody'")
        error = await admin.error("POST", "keys", 409, json={"name": "ci"})
        assert "penstock.toml has a key 'ci'" in error["message"]


@pytest.mark.parametrize(
    ("order", "status", "param"),
    [
        ({}, 400, "body"),
        ({"name": "a b"}, 400, "name"),
        ({"name": "x" * 65}, 400, "name"),
        ({"name": 5}, 400, "name"),
        ({"name": "a", "models": ["nothing"]}, 404, "models[0]"),
        ({"name": "a", "models": ["default", "who/x"]}, 404, "models[1]"),
        ({"name": "a", "models": ["fake/a*b"]}, 400, "body"),
        ({"name": "a", "models": "default"}, 400, "models"),
        ({"name": "a", "requests_per_minute": 0}, 400, "requests_per_minute"),
        ({"name": "a", "tokens_per_minute": 1.5}, 400, "tokens_per_minute"),
        ({"name": "a", "expires_in_s": 0}, 400, "expires_in_s"),
        ({"name": "a", "budget": {"limit_usd": 1, "timezone": "Mars"}}, 400, "body"),
        ({"name": "a", "budget": {"limit": 1}}, 400, "budget"),
        ({"name": "a", "hash": "sha256:" + "0" * 64}, 400, "hash"),
    ],
)
async def test_a_key_that_is_nonsense_is_not_made(
    order: dict[str, Any], status: int, param: str
) -> None:
    async with administered() as admin:
        error = await admin.error("POST", "keys", status, json=order)
        assert error["param"] == param
        assert [each["name"] for each in (await admin.get("keys"))["keys"]] == ["ci"]
        assert (await admin.get("budgets"))["budgets"] == []
