"""Pauses and marks hold for all workers of a gateway, for those that start later, and on reload."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.contract.errors import RateLimited
from penstock.server.app import application, take_over
from penstock.server.process.peers import Question, Siblings
from penstock.testing import FakeProvider, engine_with
from tests.support.keyed import bearer
from tests.unit.server.gateway_support import until
from tests.unit.server.test_server_workers import BASE, Fleet, Living, fleet

ADMIN = "admin-of-this-test-0123456789"
MORE = """
[server]
admin_key = "{admin}"
[providers.limited]
kind = "openai-chat"
url = "http://127.0.0.1:{port}/v1"
auth_token = "x"
[models.spared]
targets = ["limited/m", "fake/echo"]
"""


@contextmanager
def limited_upstream() -> Generator[tuple[int, list[str]]]:
    """A provider that answers every request with a pause of two minutes; its port, and who came."""
    asked: list[str] = []

    class Limited(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(self.path)
            body = b'{"error": {"message": "slow down"}}'
            self.send_response(429)
            self.send_header("retry-after", "120")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            body = b'{"data": []}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Keep the log of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Limited)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def targets(gateway: Fleet, path: str = "", **order: str) -> Any:
    url = f"{gateway.url}/admin/v1/targets{path}"
    headers = bearer(ADMIN)
    answer = (
        httpx.post(url, json=order, headers=headers, timeout=30)
        if order
        else httpx.get(url, headers=headers, timeout=30)
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def answered_by(gateway: Fleet) -> str:
    answer = gateway.ask(fields={"model": "spared"}, headers=bearer(ADMIN))
    assert answer.status_code == 200, answer.text
    return answer.headers["x-penstock-provider"]


def replace_a_worker(gateway: Fleet) -> None:
    before = gateway.workers()
    os.kill(before[0], signal.SIGKILL)
    while before[0] in gateway.workers() or len(gateway.workers()) < len(before):
        time.sleep(0.02)


def test_a_pause_holds_for_all_workers_and_for_those_that_start_later(tmp_path: Path) -> None:
    with limited_upstream() as (port, asked):
        more = MORE.format(port=port, admin=ADMIN)
        with fleet(tmp_path, more) as gateway:
            assert [answered_by(gateway) for _ in range(3)] == ["fake"] * 3
            # Two workers may have asked at the same moment.
            assert 1 <= len(asked) <= 2
            known = len(asked)
            replace_a_worker(gateway)
            assert {answered_by(gateway) for _ in range(20)} == {"fake"}
            text = BASE.format(home=tmp_path) + more + "[pool]\nfirst_token_timeout_s = 29.0\n"
            (tmp_path / "penstock.toml").write_text(text)
            gateway.process.send_signal(signal.SIGHUP)
            text += '[models.reloaded]\ntargets = ["fake/echo"]\n'
            (tmp_path / "penstock.toml").write_text(text)
            gateway.process.send_signal(signal.SIGHUP)
            in_a_row = 0
            while in_a_row < 12:
                found = gateway.ask(fields={"model": "reloaded"}, headers=bearer(ADMIN))
                in_a_row = in_a_row + 1 if found.status_code == 200 else 0
            assert {answered_by(gateway) for _ in range(20)} == {"fake"}
            assert len(asked) == known
            shown = targets(gateway)["targets"]
            (paused,) = (each for each in shown if each["target"] == "limited/m")
            assert paused["status"] == "degraded"
            assert 0 < paused["retry_in_s"] <= 120
            assert gateway.stop() == 0


def test_a_mark_holds_for_all_workers_and_for_those_that_start_later(tmp_path: Path) -> None:
    with (
        limited_upstream() as (port, asked),
        fleet(tmp_path, MORE.format(port=port, admin=ADMIN)) as gateway,
    ):
        answer = targets(gateway, "/down", target="limited", reason="maintenance")
        assert answer["matched"] == ["limited/m"]
        assert {answered_by(gateway) for _ in range(10)} == {"fake"}
        replace_a_worker(gateway)
        assert {answered_by(gateway) for _ in range(20)} == {"fake"}
        assert asked == []
        targets(gateway, "/up", target="limit*")
        while not asked:
            assert answered_by(gateway) == "fake"
        assert gateway.stop() == 0


# -- in one process


async def test_a_pause_is_told_to_the_other_workers_and_to_a_new_one(tmp_path: Path) -> None:
    engines = [
        engine_with(FakeProvider([RateLimited("slow down", retry_after=120)])) for _ in range(3)
    ]
    workers = [Siblings(tmp_path, index, 3) for index in range(3)]
    apps = [
        application(lambda engine=engine: engine, engine.config, siblings=siblings)
        for engine, siblings in zip(engines, workers, strict=True)
    ]
    async with workers[0], workers[1], Living(apps[0]), Living(apps[1]):
        with pytest.raises(RateLimited):
            await engines[0].create_message("Hi", max_tokens=9)
        await until(lambda: engines[1].target_health())
        (paused,) = engines[1].target_health()
        assert (paused.target, paused.status) == ("fake/echo", "degraded")
        assert paused.reason.endswith("RateLimited: slow down")
        assert 0 < paused.retry_in_s <= 120
        engines[1].mark_down("fake", "maintenance")
        async with workers[2]:
            await take_over(workers[2], engines[2])
            (late,) = engines[2].target_health()
            assert (late.status, late.evidence) == ("down", "mark")
            assert engines[2].held_back().pauses[0].seconds > 0
            # What it was told it does not tell again.
            assert await workers[2].ask(Question.HELD) != []


async def test_a_worker_that_starts_alone_takes_nothing_over(tmp_path: Path) -> None:
    engine = engine_with(FakeProvider())
    siblings = Siblings(tmp_path, 0, 2)
    async with siblings, asyncio.timeout(30):
        await take_over(siblings, engine)
    assert engine.target_health() == []
