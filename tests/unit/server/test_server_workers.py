"""Several processes behind one port: one set of limits, one ledger, and nobody is missed."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.config.settings import Config
from penstock.contract.errors import RequestCancelled
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.server.admin.responses import RequestList, TargetList
from penstock.server.admin.views import merged_requests, merged_targets, target_list
from penstock.server.app import application
from penstock.server.process.peers import Question, Siblings
from penstock.server.process.workers import share
from penstock.telemetry.merge import Samples
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.keyed import bearer
from tests.unit.cli.harness import environment, run_penstock, started_penstock
from tests.unit.server.gateway_support import CHAT, chat_body, until

BASE = """
[providers.fake]
[models.default]
targets = ["fake/echo"]
prices."fake/echo" = {{ input = 1000.0, output = 1000.0 }}
[storage]
url = "sqlite:///{home}/ledger.db"
"""


class Fleet:
    """A running `penstock serve --workers`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdout is not None
        screen = ""
        while "Ctrl-C stops" not in screen:
            screen += (line := process.stdout.readline().decode())
            assert line, f"{screen}{process.stderr and process.stderr.read()}"
        found = re.search(r"http://127\.0\.0\.1:\d+", screen)
        assert found is not None
        self.url = found[0]
        self.screen = screen

    def workers(self) -> list[int]:
        """Their process ids."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def ask(self, **options: Any) -> httpx.Response:
        """A request on a connection of its own, which any worker may take."""
        body = chat_body("Hi", max_tokens=10, **options.pop("fields", {}))
        return httpx.post(self.url + CHAT, json=body, timeout=30, **options)

    def stop(self) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(50)


@contextmanager
def fleet(folder: Path, more: str = "", workers: int = 2) -> Generator[Fleet]:
    (folder / "penstock.toml").write_text(BASE.format(home=folder) + more)
    command = ("serve", "--port", "0", "--workers", str(workers))
    with started_penstock(*command, cwd=folder) as process:
        yield Fleet(process)


def test_one_port_one_ledger_one_set_of_limits(tmp_path: Path) -> None:
    text = new_text()
    keys = f"""[keys.ci]
hash = "{hash_of(text)}"
requests_per_minute = 25
[keys.other]
hash = "{hash_of(new_text())}"
"""
    with fleet(tmp_path, keys) as gateway, ThreadPoolExecutor(8) as threads:
        assert re.search(r"workers +2", gateway.screen)
        assert len(gateway.workers()) == 2
        asked = [threads.submit(gateway.ask, headers=bearer(text)) for _ in range(60)]
        answers = [each.result() for each in asked]
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (25, 35)
        metrics = httpx.get(f"{gateway.url}/metrics", headers=bearer(text), timeout=30).text
        counted = re.findall(r'\npenstock_requests_total{.*outcome="ok".*} (\S+)', metrics)
        assert [float(each) for each in counted] == [25.0]
        assert gateway.stop() == 0


def test_a_budget_holds_for_all_of_them(tmp_path: Path) -> None:
    # A request may take some hundred tokens, at 1,000 USD a million, and takes some ten.
    budget = "[budgets.total]\nlimit_usd = 0.3\n"
    with fleet(tmp_path, budget) as gateway, ThreadPoolExecutor(8) as threads:
        answers = [each.result() for each in [threads.submit(gateway.ask) for _ in range(60)]]
        assert {answer.status_code for answer in answers} == {200, 429}
        spent = sum(
            float(answer.headers["x-penstock-cost-usd"])
            for answer in answers
            if answer.status_code == 200
        )
        assert 0 < spent <= 0.3


def test_a_worker_that_is_killed_is_replaced_and_nobody_is_refused(tmp_path: Path) -> None:
    with fleet(tmp_path, workers=3) as gateway:
        victim = gateway.workers()[0]
        os.kill(victim, signal.SIGKILL)
        for _ in range(30):
            assert gateway.ask().status_code == 200
        while victim in gateway.workers() or len(gateway.workers()) < 3:
            time.sleep(0.02)
        assert gateway.ask().status_code == 200
        assert gateway.stop() == 0
        assert gateway.process.stderr is not None
        assert b"worker 0 has ended (signal 9): another takes its place" in (
            gateway.process.stderr.read()
        )


WIRE = """
[providers.up]
kind = "openai-chat"
url = "http://127.0.0.1:{port}/v1"
auth_token = "x"
[models.slow]
targets = ["up/m"]
prices."up/m" = {{ input = 1.0, output = 1.0 }}
"""
ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"late"},"finish_reason":"stop"}]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    ANSWER
)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What arrives up to these bytes."""
    data = b""
    while end not in data:
        more = connection.recv(65_536)
        assert more, data
        data += more
    return data


def refuses(address: tuple[str, int]) -> bool:
    """Whether nobody can connect any more."""
    try:
        socket.create_connection(address, 50).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it was in the queue when the last of them closed it
    return False


def test_who_comes_while_running_requests_finish_is_refused_at_once(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as upstream,
        fleet(tmp_path, WIRE.format(port=upstream.getsockname()[1])) as gateway,
        ThreadPoolExecutor() as pool,
    ):
        running = pool.submit(gateway.ask, fields={"model": "slow"})
        asked, _ = upstream.accept()
        gateway.process.send_signal(signal.SIGTERM)
        address = ("127.0.0.1", int(gateway.url.rpartition(":")[2]))
        while not refuses(address):
            pass
        # The one that was let in before is still being answered.
        asked.sendall(HEAD + ANSWER)
        answer = running.result(50)
        assert (answer.status_code, "late" in answer.text) == (200, True)
        assert gateway.process.wait(50) == 0
        asked.close()


def test_workers_share_the_answers_of_repeated_requests(tmp_path: Path) -> None:
    headers = {"idempotency-key": "k1"}
    with fleet(tmp_path) as gateway, ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(gateway.ask, headers=headers) for _ in range(20)]
        answers = [each.result() for each in asked]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.headers["x-request-id"] for answer in answers}) == 1
        replayed = [answer.headers["idempotency-replayed"] for answer in answers]
        assert replayed.count("false") == 1
        assert gateway.stop() == 0


def test_a_repeated_request_after_a_kill_makes_one_new_call(tmp_path: Path) -> None:
    headers = {"idempotency-key": "k1"}
    fields = {"model": "slow"}
    with socket.create_server(("127.0.0.1", 0)) as upstream, ThreadPoolExecutor() as threads:
        wire = WIRE.format(port=upstream.getsockname()[1])
        with fleet(tmp_path, wire) as gateway:
            workers = gateway.workers()
            first = threads.submit(gateway.ask, headers=headers, fields=fields)
            asked, _ = upstream.accept()
            for each in (gateway.process.pid, *workers):
                os.kill(each, signal.SIGKILL)
            assert first.exception(30) is not None
            asked.close()
        # In the place of waiting for it: the lease of the process that was killed is over.
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger-answers.db")) as file:
            assert file.execute("SELECT state FROM answers").fetchall() == [("running",)]
            file.execute("UPDATE answers SET lease_until = 0")
            file.commit()
        with fleet(tmp_path, wire) as gateway:
            again = threads.submit(gateway.ask, headers=headers, fields=fields)
            asked, _ = upstream.accept()
            # An answer that comes before its request is an error.
            read_until(asked, b'"messages"')
            asked.sendall(HEAD + ANSWER)
            answer = again.result(30)
            assert (answer.status_code, answer.headers["idempotency-replayed"]) == (200, "false")
            third = gateway.ask(headers=headers, fields=fields)
            assert third.headers["idempotency-replayed"] == "true"
            assert third.content == answer.content
            assert gateway.stop() == 0
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as file:
            # The hold of the first try is still there, and expires as an estimate.
            holds = file.execute("SELECT count(*) FROM ledger_holds WHERE expired IS NULL")
            assert holds.fetchone() == (1,)
        asked.close()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    with fleet(tmp_path) as gateway:
        workers = gateway.workers()
        gateway.process.kill()
        gateway.process.wait()
        while any(_runs(each) for each in workers):
            time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_reload_reaches_all_of_them(tmp_path: Path) -> None:
    with fleet(tmp_path) as gateway:
        more = '[models.other]\ntargets = ["fake/echo"]\n'
        (tmp_path / "penstock.toml").write_text(BASE.format(home=tmp_path) + more)
        gateway.process.send_signal(signal.SIGHUP)
        in_a_row = 0
        while in_a_row < 12:
            found = gateway.ask(fields={"model": "other"}).status_code == 200
            in_a_row = in_a_row + 1 if found else 0
        (tmp_path / "penstock.toml").write_text("[models.other\n")
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.process.stderr is not None
        while b"not reloaded" not in (line := gateway.process.stderr.readline()):
            assert line
        assert gateway.ask(fields={"model": "other"}).status_code == 200


def test_what_is_wrong_with_the_ledger_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo"]\n'
        '[storage]\nurl = "sqlite:////proc/none/x.db"\n'
    )
    finished = run_penstock("serve", "--port", "0", "--workers", "3", cwd=tmp_path)
    assert finished.code == 2
    assert "storage.url" in finished.error_line


def test_a_worker_that_cannot_start_stops_the_gateway(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os, sys\nif 'PENSTOCK_WORKER' in os.environ: sys.exit('no worker today')\n"
    )
    (tmp_path / "penstock.toml").write_text(BASE.format(home=tmp_path))
    env = {"PYTHONPATH": f"{hook}{os.pathsep}{environment()['PYTHONPATH']}"}
    finished = run_penstock("serve", "--port", "0", "--workers", "2", cwd=tmp_path, env=env)
    assert finished.code == 1
    assert "no worker today" in finished.err
    assert "Ctrl-C stops" not in finished.out


# -- in one process


async def test_a_request_of_another_worker_is_stopped(tmp_path: Path) -> None:
    engines = [engine_with(FakeProvider([FakeReply(text="a b", delay_s=60)])) for _ in range(2)]
    both = [Siblings(tmp_path, index, 2) for index in range(2)]
    apps = [
        application(lambda engine=engine: engine, engine.config, siblings=siblings)
        for engine, siblings in zip(engines, both, strict=True)
    ]
    async with both[0], both[1], Living(apps[0]), Living(apps[1]):
        call = asyncio.create_task(
            engines[0].create_message("Hi", max_tokens=9, request_id="req_1")
        )
        await until(lambda: engines[0].target_health())
        assert await both[1].ask("cancel", ["req_1", "somebody"]) == [False]
        assert await both[1].ask("cancel", ["req_2", None]) == [False]
        assert await both[1].ask("cancel", ["req_1", None]) == [True]
        with pytest.raises(RequestCancelled):
            await call


async def test_the_admin_api_tells_and_changes_what_all_workers_have(tmp_path: Path) -> None:
    engines = [engine_with(FakeProvider([FakeReply(text="ok")])) for _ in range(2)]
    both = [Siblings(tmp_path, index, 2) for index in range(2)]
    apps = [
        application(lambda engine=engine: engine, engine.config, siblings=siblings)
        for engine, siblings in zip(engines, both, strict=True)
    ]
    async with both[0], both[1], Living(apps[0]), Living(apps[1]):
        for number, engine in enumerate(engines):
            await engine.create_message("Hi", max_tokens=9, request_id=f"req_{number}")
        lists = [
            msgspec.convert(each, RequestList)
            for index in range(2)
            for each in await both[index].ask(Question.REQUESTS, {})
        ]
        merged = merged_requests(lists, 10)
        assert [each.request_id for each in merged.requests] == ["req_1", "req_0"]
        assert len(merged_requests(lists, 1).requests) == 1
        assert (await both[1].ask(Question.REQUEST, ["req_0", None]))[0]["request_id"] == "req_0"
        assert await both[1].ask(Question.REQUEST, ["req_1", None]) == []
        (down,) = await both[0].ask(Question.DOWN, ["fake/echo", "maintenance"])
        views = [msgspec.convert(down, TargetList), target_list(engines[0])]
        for view in (merged_targets(views), merged_targets(views[::-1])):
            assert [(each.target, each.state) for each in view.targets] == [("fake/echo", "open")]
        assert engines[1].target_health()[0].state == "open"
        await both[0].ask(Question.UP, ["fake/echo"])
        assert engines[1].target_health()[0].state == "closed"


class Living:
    """An application between the start and the end of its server."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def __aenter__(self) -> None:
        await self._events.put({"type": "lifespan.startup"})
        self._task = asyncio.create_task(
            self._app({"type": "lifespan"}, self._events.get, self._told.put)
        )
        assert (await self._told.get())["type"] == "lifespan.startup.complete"

    async def __aexit__(self, *_: object) -> None:
        await self._events.put({"type": "lifespan.shutdown"})
        await self._task


async def test_workers_that_are_gone_or_speak_nonsense_say_nothing(tmp_path: Path) -> None:
    async with Siblings(tmp_path, 0, 3) as first, Siblings(tmp_path, 1, 3) as second:

        async def twice(number: Any) -> Any:
            return number * 2

        async def broken(_: Any) -> Any:
            raise RuntimeError("a bug")

        second.answer("twice", twice)
        second.answer("broken", broken)
        assert await first.ask("twice", 21) == [42]
        assert await first.ask("broken") == []
        assert await first.ask("unknown") == []
        assert await first.ask("twice", 1) == [2]
        reader, writer = await asyncio.open_unix_connection(tmp_path / "worker-1")
        writer.write(b"no json\n")
        assert await reader.read() == b""
        writer.close()
        assert await second.ask("twice", 1) == []
    assert await Siblings().ask("twice", 1) == []


@pytest.mark.parametrize(
    ("whole", "parts"), [(10, [4, 3, 3]), (3, [1, 1, 1]), (1, [1, 1, 1]), (None, [None] * 3)]
)
def test_places_at_a_provider_are_shared_out(whole: int | None, parts: list[int | None]) -> None:
    config = Config.model_validate({"providers": {"fake": {"max_concurrent": whole}}})
    shares = [share(config, index, 3).providers["fake"].max_concurrent for index in range(3)]
    assert shares == parts
    assert share(config, 0, 1) == config


async def test_the_counters_of_all_are_added() -> None:
    from penstock.telemetry.exporters.prometheus import PrometheusMetrics

    metrics = PrometheusMetrics(models=["default"])
    async with engine_with(FakeProvider()) as engine:
        engine.hooks.subscribe(metrics)
        await engine.create_message("Hi", max_tokens=9)
    other = Samples(json.loads(json.dumps(metrics.samples())))
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        alone = _values(metrics.exposition(accept)[0])
        merged = _values(metrics.exposition(accept, [other])[0])
        assert merged.keys() == alone.keys()
        for name, value in alone.items():
            assert merged[name] == (value if "_created" in name else 2 * value), name


def _values(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_an_engine_of_a_worker_has_its_share_of_places() -> None:
    config = Config.model_validate(
        {
            "providers": {"fake": {"max_concurrent": 4}},
            "models": {"default": {"targets": ["fake/echo"]}},
        }
    )
    assert Engine(share(config, 1, 4)).config.providers["fake"].max_concurrent == 1
