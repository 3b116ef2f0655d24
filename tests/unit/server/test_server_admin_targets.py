"""`/admin/v1/providers`, `/targets`, `/models`, `/route` and `/config`."""

import json
import time

import pytest

from penstock.config.load import parse
from penstock.server.admin.redacted import MASK, masked, without_credentials
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import administered


async def test_providers_are_listed_and_asked_on_demand() -> None:
    async with administered() as admin:
        (listed,) = (await admin.get("providers"))["providers"]
        assert listed == {"name": "fake", "kind": "fake", "url": None, "health": None}
        (checked,) = (await admin.get("providers", check="true"))["providers"]
        assert checked["health"]["status"] == "up"
        assert checked["health"]["models"]
        assert (await admin.get("providers/fake"))["health"]["status"] == "up"
        error = await admin.error("GET", "providers/fak", 404)
        assert "fake" in error["message"]


async def test_a_target_is_marked_down_and_up() -> None:
    async with administered() as admin:
        assert (await admin.get("targets"))["targets"] == []
        order = {"target": "fake/echo", "reason": "maintenance"}
        answer = await admin.send("POST", "targets/down", order)
        assert answer["matched"] == ["fake/echo"]
        (down,) = answer["targets"]
        assert abs(down.pop("checked_at") - time.time()) < 600
        assert down == {
            "target": "fake/echo",
            "state": "open",
            "reason": "marked down: maintenance",
            "retry_in_s": None,
            "in_flight": 0,
            "waiting": 0,
            "limit": None,
            "status": "down",
            "evidence": "mark",
        }
        assert (await admin.chat()).status_code == 502
        answer = await admin.send("POST", "targets/up", {"target": "fake/echo"})
        assert answer["matched"] == ["fake/echo"]
        (up,) = answer["targets"]
        assert (up["state"], up["reason"], up["retry_in_s"]) == ("closed", "", 0)
        assert (await admin.chat()).status_code == 200
        background = (await admin.get("targets"))["background"]
        assert {each["name"] for each in background} == {"health checks", "ledger"}


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("nobody/x", 404),
        ("nobody", 404),
        ("fake/none-*", 404),
        ("fake/typo", 404),
        ("fake/", 400),
        ("fake/x\n", 400),
        ("", 400),
    ],
)
async def test_only_what_could_be_asked_is_marked(target: str, status: int) -> None:
    async with administered() as admin:
        for path in ("targets/down", "targets/up"):
            error = await admin.error("POST", path, status, json={"target": target})
            assert error["param"] == "target"
        assert (await admin.get("targets"))["targets"] == []


async def test_a_whole_provider_and_a_pattern_are_marked_down() -> None:
    async with administered() as admin:
        for pattern in ("fake", "f*", "fake/*", "*"):
            order = {"target": pattern, "reason": "maintenance"}
            answer = await admin.send("POST", "targets/down", order)
            assert answer["matched"] == ["fake/echo", "fake/echo-2", "fake/hidden"]
            assert {each["status"] for each in answer["targets"]} == {"down"}
            (provider,) = (await admin.get("providers"))["providers"]
            health = provider["health"]
            assert (health["status"], health["evidence"]) == ("down", "mark")
            assert health["error"] == "marked down: maintenance"
            assert (await admin.chat()).status_code == 502
            assert (await admin.send("POST", "targets/up", {"target": pattern}))["matched"]
            assert (await admin.chat()).status_code == 200


async def test_a_pattern_that_matches_nothing_names_what_exists() -> None:
    async with administered() as admin:
        error = await admin.error("POST", "targets/down", 404, json={"target": "fake/ecoh"})
        assert error["message"].startswith("'fake/ecoh' matches no target; ")
        assert error["message"].endswith("; did you mean 'fake/echo'?")
        assert error["code"] == "not_found"
        error = await admin.error("POST", "targets/up", 404, json={"target": "fale"})
        assert "did you mean 'fake'?" in error["message"]


async def test_health_is_shown_with_its_evidence() -> None:
    async with administered() as admin:
        assert (await admin.chat()).status_code == 200
        (target,) = (await admin.get("targets"))["targets"]
        assert (target["status"], target["evidence"]) == ("up", "requests")
        assert abs(target["checked_at"] - time.time()) < 600
        (provider,) = (await admin.get("providers"))["providers"]
        assert (provider["health"]["status"], provider["health"]["evidence"]) == ("up", "requests")
        await admin.send("POST", "targets/down", {"target": "fake"})
        metrics = (await admin.gateway.client.get("/metrics", headers=bearer(ADMIN))).text
        lines = {line for line in metrics.splitlines() if line.startswith("penstock_")}
        for status, value in (("up", 0.0), ("degraded", 0.0), ("down", 1.0)):
            place = f'provider="fake",status="{status}"'
            assert f"penstock_provider_health{{{place}}} {value}" in lines
            place += ',upstream_model="echo"'
            assert f"penstock_target_health{{{place}}} {value}" in lines


async def test_models_and_the_route_of_a_request() -> None:
    async with administered() as admin:
        models = (await admin.get("models"))["models"]
        assert models[0] == {
            "name": "default",
            "default": True,
            "routing": "ordered",
            "targets": ["fake/echo"],
        }
        await admin.send("POST", "targets/down", {"target": "fake/echo", "reason": "broken"})
        routed = await admin.send("POST", "route", {"hints": ["hidden", "echo"]})
        assert routed["model"] is None
        assert [(each["target"], each["available"]) for each in routed["ranked"]] == [
            ("fake/hidden", True),
            ("fake/echo-2", True),
            ("fake/echo", False),
        ]
        assert routed["ranked"][0]["reasons"][0] == "matches hint 1, 'hidden'"
        assert routed["ranked"][2]["reasons"][0] == "not available: marked down: broken"
        assert (routed["ranked"][0]["hint"], routed["ranked"][1]["hint"]) == ("hidden", "echo")
        assert (routed["strategy"], routed["explored"]) == ("ordered", False)
        assert routed["reason"].startswith("fake/hidden is first of 3 targets (ordered): it match")
        assert (await admin.send("POST", "route"))["ranked"][0]["target"] == "fake/echo"
        one = await admin.send("POST", "route", {"model": "assistant", "prompt": "Why?"})
        assert [each["target"] for each in one["ranked"]] == ["fake/echo-2"]
        error = await admin.error("POST", "route", 404, json={"model": "assistent"})
        assert "did you mean 'assistant'?" in error["message"]


SECRETS = {
    "TOKEN": "sk-token-of-the-test-1",
    "ADMIN": "admin-of-the-test-0123456789",
    "HEADER": "header-of-the-test-2",
    "PASSWORD": "password-of-the-test-3",
    "PROFILE": "profile-of-the-test-4",
}
CONFIG = """
[server]
admin_key = "${ADMIN}"
[providers.one]
kind = "openai-chat"
url = "https://user:${PASSWORD}@one.test/v1?sig=${HEADER}&x"
auth_token = "${TOKEN:-sk-default-of-the-test-5}"
headers = { "x-secret" = "${HEADER}", "x-plain" = "plain-of-the-test-6" }
[providers.two]
kind = "openai-chat"
url = "https://literal-user:literal-of-the-test-7@two.test/v1"
auth_token = "sk-literal-of-the-test-8"
[providers.bedrock]
profile = "${PROFILE}"
region = "${REGION:-us-east-1}"
[models.default]
targets = ["${NAME:-one}/x", "two/y"]
[keys.ci]
hash = "sha256:HASH"
tags = { team = "search" }
""".replace("HASH", "ab" * 32)


def test_nothing_secret_is_left_in_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    config = parse(CONFIG)
    shown = masked(config)
    text = json.dumps(shown)
    assert "of-the-test" not in text
    assert "ab" * 32 not in text
    assert shown["server"]["admin_key"] == MASK
    one = shown["providers"]["one"]
    assert one["url"] == f"https://{MASK}@one.test/v1?sig={MASK}&{MASK}"
    assert one["auth_token"] == MASK
    assert one["headers"] == {"x-secret": MASK, "x-plain": MASK}
    assert shown["providers"]["two"]["url"] == f"https://{MASK}@two.test/v1"
    # What came from the environment is shown as it was written.
    assert shown["providers"]["bedrock"]["profile"] == "${PROFILE}"
    assert shown["providers"]["bedrock"]["region"] == "${REGION:-us-east-1}"
    assert shown["models"]["default"]["targets"] == ["${NAME:-one}/x", "two/y"]
    assert shown["keys"]["ci"] == {
        "hash": MASK,
        "scope": "calls",
        "models": [],
        "tags": {"team": "search"},
    }
    # The rest is as it is in force, defaults included.
    assert shown["pool"]["retries"] == 2
    # The engine itself still has the values.
    assert config.providers["bedrock"].profile == SECRETS["PROFILE"]
    assert config.models["default"].targets == ("one/x", "two/y")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/v1", "https://host/v1"),
        ("https://key@host/v1", f"https://{MASK}@host/v1"),
        ("https://a:b@c@host/", f"https://{MASK}@host/"),
        ("postgresql://a:b/c@host/db", f"postgresql://{MASK}@host/db"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://host?key=1&b", f"https://host?key={MASK}&{MASK}"),
        ("https://host/?a=x@y", f"https://host/?a={MASK}"),
    ],
)
def test_addresses_are_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


async def test_the_configuration_of_a_gateway() -> None:
    async with administered() as admin:
        shown = (await admin.get("config"))["config"]
        assert shown["server"]["admin_key"] == MASK
        assert shown["models"]["assistant"]["targets"] == ["fake/echo-2"]
