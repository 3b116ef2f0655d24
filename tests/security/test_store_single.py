"""Single faults of a gateway's store, each with what exactly is promised."""

import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from penstock.cli.app import run
from tests.security import stores
from tests.security.stores import Refused, World, wait_for
from tests.support.keyed import ADMIN, bearer

SHAPES = {
    "/v1/chat/completions": ("error", "code"),
    "/v1/responses": ("error", "code"),
    "/v1/embeddings": ("error", "code"),
    "/v1/messages": ("error", "type"),
    "/v1/sampling/createMessage": ("error", "data"),
    "/mcp": ("error", "data"),
}
BODIES: dict[str, object] = {
    "/v1/chat/completions": stores.BODY,
    "/v1/responses": {"input": "Hi", "max_output_tokens": 100},
    "/v1/embeddings": {"model": "up/m", "input": "Hi"},
    "/v1/messages": {"model": "default", **stores.BODY},
    "/v1/sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 100,
    },
    "/mcp": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "generate", "arguments": {"prompt": "Hi", "max_tokens": 100}},
    },
}
WORDS = ("storage_unavailable", "overloaded_error")


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[World]:
    made = World(tmp_path, **getattr(request, "param", {"workers": 1}))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A gateway with a key; each test leaves its store where it was."""
    made = World(tmp_path_factory.mktemp("world"), 1)
    try:
        made.make_key()
        made.start()
        yield made
    finally:
        made.close()


def test_the_loss_of_a_store_may_be_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(world.home))
    world.make_key()
    world.start()
    assert world.ask(None).status_code == 401
    world.stop()
    world.store.unlink()
    with pytest.raises(Refused) as caught:
        world.start()
    assert caught.value.code == 2
    assert "is missing" in caught.value.log
    assert "penstock storage accept" in caught.value.log
    config = ("--config", str(world.config))
    for command in (("keys", "list"), ("usage",), ("keys", "create", "other")):
        assert run([*command, *config]) != 0
        captured = capsys.readouterr()
        assert "is missing" in captured.err + captured.out
    assert not world.store.exists()
    assert run(["storage", "accept", "--yes", *config]) == 0
    assert "the next start makes an empty one" in capsys.readouterr().out
    world.start()
    assert world.ask(None).status_code == 200


@pytest.mark.parametrize("world", [{"workers": 2, "budget": ""}], indirect=True)
def test_a_home_that_disappears_while_workers_are_replaced_opens_nothing(world: World) -> None:
    world.make_key()
    world.start()
    away = world.folder / "gone"
    world.home.rename(away)
    world.home.mkdir()
    wait_for(lambda: world.ask(None).status_code == 503, "a refusal")
    world.kill_worker()
    world.refuses()
    assert world.files() == []
    world.home.rmdir()
    away.rename(world.home)
    world.serves()


def test_what_is_under_way_is_settled_when_the_store_is_back(running: World) -> None:
    world = running
    # Requests before this one have been counted, too.
    while world.upstream.held.acquire(blocking=False):
        pass
    world.upstream.gate.clear()
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(world.ask(world.key).status_code))
    asking.start()
    assert world.upstream.held.acquire(timeout=30)
    with stores.missing(world):
        world.upstream.gate.set()
        asking.join()
        assert answers == [200]
        world.refuses()
    world.serves()

    def settled() -> bool:
        connection = sqlite3.connect(world.store)
        query = "SELECT kind, count(*) FROM ledger_entries GROUP BY kind"
        kinds = dict(connection.execute(query).fetchall())
        connection.close()
        return bool(kinds["hold"] == kinds.get("settle") and "expire" not in kinds)

    wait_for(settled, "the settlements")


def test_each_endpoint_says_so_in_its_own_words(running: World) -> None:
    world = running
    with stores.missing(world):
        wait_for(lambda: world.ask(None).status_code == 503, "the watch")
        for path, (outer, inner) in SHAPES.items():
            answer = world.ask(world.key, path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), path
            said = answer.json()[outer][inner]
            assert (said["reason"] if isinstance(said, dict) else said) in WORDS
            assert str(world.home) not in answer.text
        details = world.client.get(f"{world.url}/ready", headers=bearer(ADMIN))
        assert details.status_code == 503
        assert any("is missing" in each for each in details.json()["problems"])
        assert world.client.get(f"{world.url}/health").status_code == 200
        for path in ("/admin/v1/budgets", "/admin/v1/keys"):
            answer = world.client.get(world.url + path, headers=bearer(ADMIN))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    world.serves()


def test_a_locked_ledger_is_told_by_ready_and_holds_nothing_else_up(running: World) -> None:
    world = running
    with stores.locked(world):
        world.until_all_say(503)
        listed = world.client.get(f"{world.url}/v1/models", headers=bearer(world.key))
        assert listed.status_code == 200
    world.serves()


def test_a_request_under_a_long_lock_is_refused_with_a_pause(running: World) -> None:
    """The gateway waits 30 s for the lock, and then no longer; every endpoint says so."""
    world = running
    answers: dict[str, httpx.Response] = {}

    def ask(path: str) -> None:
        answers[path] = world.ask(world.key, path, BODIES[path])

    asking = [threading.Thread(target=ask, args=(path,)) for path in BODIES]
    with stores.locked(world):
        world.until_all_say(503)
        asked = world.upstream.asked
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        again = world.ask(world.key)
        assert world.upstream.asked == asked
    # A tool says so in its result.
    result = answers.pop("/mcp")
    assert result.status_code == 200
    assert '"isError":true' in result.text
    assert "the reason is in its log" in result.text
    assert str(world.home) not in result.text
    for path, answer in {**answers, "again": again}.items():
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), answer.text
        outer, inner = SHAPES.get(path, SHAPES[stores.CHAT])
        said = answer.json()[outer][inner]
        assert (said["reason"] if isinstance(said, dict) else said) in WORDS
        assert str(world.home) not in answer.text
    assert again.elapsed.total_seconds() < 10
    assert f"{world.store} is locked" in world.log.read_text()
    world.serves()


@pytest.mark.parametrize("world", [{"workers": 1, "budget": "", "admin": False}], indirect=True)
def test_nothing_was_configured_and_nothing_is_refused(world: World) -> None:
    world.start()
    assert world.ask(None).status_code == 200
    with stores.missing(world):
        world.until_all_say(503)
        assert world.ask(None).status_code == 200
    assert not (world.home / "stores").exists()
