"""Every way to set what a key may do and every way to see it: what is shown is enforced."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from penstock.config.load import load
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.server.process.reload import Reloader
from tests.support.keyed import ADMIN, bearer
from tests.unit.cli.harness import run_penstock
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway

CONFIG = f"""\
[server]
admin_key = "{ADMIN}"
[providers.fake]
[models.default]
targets = ["fake/words-60"]
prices."fake/words-60" = {{ input = 0, output = 1000 }}
[models.other]
targets = ["fake/echo"]
[keys.another]
hash = "{hash_of("x" * 40)}"
"""
REQUESTS, TOKENS, USD = 4, 400, 0.05
"""What is set: requests and tokens a minute, and US dollars a day, which are 50 tokens."""
LIMITS = {
    "models": ["default"],
    "requests_per_minute": REQUESTS,
    "tokens_per_minute": TOKENS,
    "budget": {"limit_usd": USD, "period": "day"},
}
IN_TOML = f'models = ["default"]\nrequests_per_minute = {REQUESTS}\ntokens_per_minute = {TOKENS}\n'
ALL_IN_TOML = f'{IN_TOML}budget = {{ limit_usd = {USD}, period = "day" }}\n'
LOOSE_IN_TOML = 'models = ["other"]\nrequests_per_minute = 50\nbudget = { limit_usd = 70 }\n'
ON_LINE = (
    *("--models", "default", "--requests-per-minute", str(REQUESTS)),
    *("--tokens-per-minute", str(TOKENS)),
)
OF_BUDGET = ("--budget", str(USD), "--period", "day")
LOOSE = ("--models", "other,default", "--requests-per-minute", "50", "--budget", "70")


class World:
    """A gateway with its file, the command line beside it, and the text of the key."""

    def __init__(self, folder: Path, gateway: Gateway) -> None:
        self.folder = folder
        self.gateway = gateway
        self.text = ""

    async def cli(self, *arguments: str) -> str:
        """What a command prints; it must succeed. The gateway knows of it afterwards."""
        finished = await asyncio.to_thread(
            run_penstock, *arguments, "-c", "penstock.toml", cwd=self.folder
        )
        assert finished.code == 0, finished.err
        await self.gateway.gate.keys.refresh()
        return finished.out

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of the admin API, which must be good."""
        answer = await self.gateway.client.request(
            method, f"/admin/v1/{path}", json=body, headers=bearer(ADMIN)
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """A call with the key itself."""
        return await self.gateway.client.request(method, path, json=body, headers=bearer(self.text))


# ---- setters


async def in_the_file(world: World) -> None:
    """The file has it from the start: see `started`."""


async def created_by_command(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k", *ON_LINE, *OF_BUDGET)).strip()


async def changed_by_command(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k", *LOOSE)).strip()
    await world.cli("keys", "set", "k", *ON_LINE, *OF_BUDGET)


async def changed_by_command_in_steps(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k")).strip()
    await world.cli("keys", "set", "k", *ON_LINE, "--budget", str(USD))
    await world.cli("keys", "set", "k", "--period", "day")


async def created_by_admin(world: World) -> None:
    world.text = (await world.admin("POST", "keys", {"name": "k", **LIMITS}))["key"]


async def changed_by_admin(world: World) -> None:
    loose = {"name": "k", "models": ["other"], "requests_per_minute": 50}
    world.text = (await world.admin("POST", "keys", loose))["key"]
    await world.admin("PATCH", "keys/k", LIMITS)


async def budget_by_command(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k", *ON_LINE, "--budget", "70")).strip()
    await world.cli("budget", "set", "key:k", str(USD), "--period", "day")


async def budget_by_admin(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k", *ON_LINE)).strip()
    await world.admin("PUT", "budgets/key:k", LIMITS["budget"])


async def budget_in_python(world: World) -> None:
    world.text = (await world.cli("keys", "create", "k", *ON_LINE)).strip()
    await world.gateway.engine.set_budget(USD, name="key:k", period="day")


async def a_name_used_again(world: World) -> None:
    first = (await world.cli("keys", "create", "k", "--budget", "0")).strip()
    await world.cli("keys", "revoke", "k")
    world.text = (await world.cli("keys", "create", "k", *ON_LINE, *OF_BUDGET)).strip()
    assert world.text != first


async def file_overridden_by_command(world: World) -> None:
    """The file says another budget: see `started`."""
    await world.cli("budget", "set", "key:k", str(USD), "--period", "day")


async def in_the_file_after_a_reload(world: World) -> None:
    """The file says other limits at first: see `started`."""
    file = world.folder / "penstock.toml"
    before = file.read_text()
    assert LOOSE_IN_TOML in before
    gateway = world.gateway
    reloader = Reloader(
        gateway.engine.config, (file,), lambda: load(file), gateway.app.change, None
    )
    file.write_text(before.replace(LOOSE_IN_TOML, ALL_IN_TOML))
    await reloader.reload()


async def rotated(world: World) -> None:
    await world.cli("keys", "create", "k", *ON_LINE, *OF_BUDGET)
    world.text = (await world.admin("POST", "keys/k/rotate", {"grace_s": 0}))["key"]


SETTERS: dict[Callable[[World], Awaitable[None]], str] = {
    in_the_file: ALL_IN_TOML,
    in_the_file_after_a_reload: LOOSE_IN_TOML,
    created_by_command: "",
    changed_by_command: "",
    changed_by_command_in_steps: "",
    created_by_admin: "",
    changed_by_admin: "",
    budget_by_command: "",
    budget_by_admin: "",
    budget_in_python: "",
    a_name_used_again: "",
    file_overridden_by_command: f"{IN_TOML}budget = {{ limit_usd = 70 }}\n",
    rotated: "",
}
"""Each setter with what the file says of the key."""


# ---- readers


class Shown(NamedTuple):
    """What one reader says."""

    models: list[str]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    budget: tuple[float, str] | None


def shown(info: dict[str, Any]) -> Shown:
    """A key as it is listed, in JSON of the command line or of the HTTP API."""
    own = info.get("budget")
    in_force = [(each["limit_usd"], each["period"]) for each in info.get("budgets", ())]
    assert in_force == ([] if own is None else [(own["limit_usd"], own["period"])])
    return Shown(
        info["models"],
        info.get("requests_per_minute"),
        info.get("tokens_per_minute"),
        None if own is None else (own["limit_usd"], own["period"]),
    )


def live(keys: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [each for each in keys if each["name"] == "k" and each["state"] == "active"]
    return found


async def by_list_command(world: World) -> Shown:
    return shown(live(json.loads(await world.cli("keys", "list", "--json"))["keys"]))


async def by_admin(world: World) -> Shown:
    return shown(live((await world.admin("GET", "keys"))["keys"]))


async def by_the_key_itself(world: World) -> Shown:
    said = (await world.call("GET", "/v1/usage")).json()
    limits = said["requests_per_minute"], said["tokens_per_minute"]
    found = shown(said["key"])
    assert [None if each is None else each["limit"] for each in limits] == list(found[1:3])
    return found


async def by_budgets_and_headers(world: World) -> Shown:
    """What is told beside the lists of keys."""
    answer = await world.call("GET", "/v1/models")
    limits = [
        int(text) if (text := answer.headers.get(f"x-ratelimit-limit-{what}")) else None
        for what in ("requests", "tokens")
    ]
    models = [each["id"] for each in answer.json()["data"]]
    of_admin = (await world.admin("GET", "budgets"))["budgets"]
    of_cli = json.loads(await world.cli("budget", "list", "--json"))["budgets"]
    each = [
        [(one["limit_usd"], one["period"]) for one in budgets if one["name"] == "key:k"]
        for budgets in (of_admin, of_cli)
    ]
    assert each[0] == each[1] == await _budget_in_metrics(world) == await _budget_at_mcp(world)
    return Shown(models, limits[0], limits[1], each[0][0] if each[0] else None)


async def _budget_in_metrics(world: World) -> list[tuple[float, str]]:
    page = await world.gateway.client.get("/metrics", headers=bearer(ADMIN))
    pattern = r'^penstock_budget_limit_usd\{budget="key:k",period="(\w+)"\} (\S+)$'
    found = re.findall(pattern, page.text, re.MULTILINE)
    return [(float(usd), period) for period, usd in found]


async def _budget_at_mcp(world: World) -> list[tuple[float, str]]:
    """The resource as the key itself reads it."""
    read = {"method": "resources/read", "params": {"uri": "penstock://budgets"}}
    answer = await world.gateway.client.post(
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, **read},
        headers={**bearer(world.text), "accept": "application/json, text/event-stream"},
    )
    (data,) = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    (content,) = json.loads(data)["result"]["contents"]
    return [
        (each["limit_usd"], each["period"])
        for each in json.loads(content["text"])["budgets"]
        if each["name"] == "key:k"
    ]


async def by_the_table(world: World) -> Shown:
    """The list for people, which names limits in one column."""
    (line,) = [line for line in (await world.cli("keys", "list")).splitlines() if _is_live(line)]
    models = re.search(r"active  +(\S+)", line)
    assert models
    requests, tokens = (re.search(rf"(\d+) {what}", line) for what in ("requests", "tokens"))
    budget = re.search(r"\$([\d.]+) an? (\w+)", line)
    return Shown(
        [] if models[1] == "all" else [models[1]],
        None if requests is None else int(requests[1]),
        None if tokens is None else int(tokens[1]),
        None if budget is None else (float(budget[1]), budget[2]),
    )


def _is_live(line: str) -> bool:
    """Whether the line is that of the active key; a name that is used again has a number."""
    return re.match(r"k(~\d+)? +active ", line) is not None


READERS = (by_list_command, by_admin, by_the_key_itself, by_the_table, by_budgets_and_headers)


async def enforced(world: World) -> None:
    """The limits, each found out by going to it and one step further."""

    async def ask(max_tokens: int, model: str = "default") -> tuple[int, str, str]:
        body = chat_body("Hi", model=model, max_tokens=max_tokens)
        answer = await world.call("POST", CHAT, body)
        error = answer.json().get("error", {})
        return answer.status_code, error.get("code", ""), error.get("message", "")

    assert (await ask(5, "other"))[:2] == (404, "model_not_found")
    status, code, said = await ask(TOKENS)
    assert (status, code) == (429, "rate_limit_exceeded")
    assert f"may use {TOKENS} tokens a minute" in said
    status, code, said = await ask(51)
    assert (status, code) == (429, "insufficient_quota")
    assert "budget 'key:k' has $0.05 left of $0.05 (day)" in said
    assert (await ask(50))[0] == 200
    status, code, said = await ask(5)
    assert (status, code) == (429, "rate_limit_exceeded")
    assert f"may make {REQUESTS} requests a minute" in said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setter", SETTERS, ids=lambda each: each.__name__)
async def test_what_is_shown_of_a_key_is_what_is_enforced(
    tmp_path: Path, setter: Callable[[World], Awaitable[None]]
) -> None:
    file, text = tmp_path / "penstock.toml", new_text()
    own = f'[keys.k]\nhash = "{hash_of(text)}"\n{SETTERS[setter]}' if SETTERS[setter] else ""
    file.write_text(CONFIG + own)
    engine = Engine(load(file), model_files=False, keep_books=True)
    # As `penstock serve` does before it answers.
    await engine.ledger()
    async with running_gateway(engine) as gateway:
        world = World(tmp_path, gateway)
        world.text = text
        await setter(world)
        expected = Shown(["default"], REQUESTS, TOKENS, (USD, "day"))
        for reader in READERS:
            assert await reader(world) == expected, reader.__name__
        await enforced(world)


@pytest.mark.timeout(300)
async def test_what_is_taken_away_is_neither_shown_nor_enforced(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(CONFIG)
    engine = Engine(load(file), model_files=False, keep_books=True)
    async with running_gateway(engine) as gateway:
        world = World(tmp_path, gateway)
        await created_by_command(world)
        names = ("models", "requests-per-minute", "tokens-per-minute", "budget")
        await world.cli("keys", "set", "k", "--unset", ",".join(names))
        nothing = Shown([], None, None, None)
        for reader in READERS[:4]:
            assert await reader(world) == nothing, reader.__name__
        for _ in range(REQUESTS + 1):
            body = chat_body("Hi", model="default", max_tokens=TOKENS)
            assert (await world.call("POST", CHAT, body)).status_code == 200
        body = chat_body("Hi", model="other", max_tokens=5)
        assert (await world.call("POST", CHAT, body)).status_code == 200


@pytest.mark.timeout(300)
async def test_a_budget_that_is_deleted_is_neither_shown_nor_enforced(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(CONFIG)
    engine = Engine(load(file), model_files=False, keep_books=True)
    async with running_gateway(engine) as gateway:
        world = World(tmp_path, gateway)
        await created_by_command(world)
        await world.admin("DELETE", "budgets/key:k")
        expected = Shown(["default"], REQUESTS, TOKENS, None)
        for reader in READERS:
            assert await reader(world) == expected, reader.__name__
        body = chat_body("Hi", model="default", max_tokens=60)
        assert (await world.call("POST", CHAT, body)).status_code == 200
