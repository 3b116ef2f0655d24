"""A real gateway with its store, and everything that may happen to a store while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from penstock.budget.stores.sqlite.schema import LEDGER_META, MIGRATIONS
from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from penstock.storage.sqlite.connect import connect, prepare
from penstock.storage.sqlite.identity import read_mark
from penstock.storage.sqlite.record import read_record
from tests.support.keyed import ADMIN, bearer
from tests.unit.cli.harness import COMMAND, LIMIT_S, environment

CHAT = "/v1/chat/completions"
ADMITTED = 12
"""How many requests the budget of a world has room for."""
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100}
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 100, "total_tokens": 101},
}
CONFIG = """
[server]
log = "console"
admin_key = "{admin}"
[providers.up]
kind = "openai-chat"
url = "http://127.0.0.1:{port}/v1"
auth_token = "x"
[models.default]
targets = ["up/m"]
prices."up/m" = {{ input = 0.0, output = 10_000.0 }}
{budget}
"""
BUDGET = f"""
[budgets.total]
# 100 tokens at 10,000 USD a million are 1 USD.
limit_usd = {ADMITTED}.5
period = "forever"
"""


class Upstream:
    """A provider that counts what it is asked, each for 1 USD."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Semaphore(0)
        lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Health checks ask for models."""
                self._answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                with lock:
                    upstream.asked += 1
                upstream.held.release()
                upstream.gate.wait(LIMIT_S)
                self._answer(ANSWER)

            def _answer(self, document: object) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                # A gateway that was killed reads nothing any more.
                with contextlib.suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


class World:
    """A folder with a store, and the gateway that is served from it."""

    def __init__(
        self, folder: Path, workers: int, *, budget: str = BUDGET, admin: bool = True
    ) -> None:
        self.folder = folder
        self.workers = workers
        self.home = folder / "home"
        self.home.mkdir()
        self.store = self.home / "penstock.db"
        self.upstream = Upstream()
        self.config = folder / "penstock.toml"
        self.config.write_text(
            CONFIG.format(admin=ADMIN if admin else "", port=self.upstream.port, budget=budget)
        )
        # A connection for each request, so that any worker may take it.
        self.client = httpx.Client(
            limits=httpx.Limits(max_keepalive_connections=0), timeout=LIMIT_S, trust_env=False
        )
        self.key = ""
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"
        # Its path is short, because the path of a socket has a limit.
        self.temporary = Path(tempfile.mkdtemp(prefix="t"))

    # -- the gateway

    def make_key(self, name: str = "ci") -> str:
        """A key of the store."""
        text = new_text()
        KeyStore(self.store).add(Key(name=name, hashes=(KeyHash(hash_of(text)),)))
        self.key = self.key or text
        return text

    def start(self, *arguments: str) -> None:
        """Until it answers; raises when it ends instead."""
        port = self.url.rpartition(":")[2] if self.url else "0"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *COMMAND,
                    *("serve", "--config", str(self.config), "--port", port),
                    *("--workers", str(self.workers), *arguments),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=environment({"PENSTOCK_HOME": str(self.home), "TMPDIR": str(self.temporary)}),
            )
        assert self.process.stdout is not None
        screen = ""
        while "Ctrl-C stops" not in screen:
            line = self.process.stdout.readline().decode()
            if not line:
                code = self.process.wait(LIMIT_S)
                self.process.stdout.close()
                self.process = None
                raise Refused(code, self.log.read_text())
            screen += line
        found = re.search(r"http://127\.0\.0\.1:\d+", screen)
        assert found is not None
        self.url = found[0]

    def processes(self) -> list[int]:
        """Those that answer."""
        assert self.process is not None
        if self.workers == 1:
            return [self.process.pid]
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def kill_worker(self, index: int = 0) -> None:
        """Kill one, and wait until another has taken its place."""
        victim = self.processes()[index]
        os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda: victim not in self.processes() and len(self.processes()) == self.workers,
            "another worker",
        )

    def kill(self) -> None:
        """kill -9 of everything."""
        if self.process is not None:
            workers = self.processes() if self.process.poll() is None else []
            for process in {self.process.pid, *workers}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.wait(LIMIT_S)
            wait_for(lambda: not any(map(_runs, workers)), "the end of the workers")
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def stop(self) -> None:
        """As an operator stops it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_S) == 0, self.log.read_text()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def close(self) -> None:
        """End everything."""
        self.upstream.close()
        self.kill()
        self.client.close()
        shutil.rmtree(self.temporary)

    # -- callers

    def ask(self, key: str | None, path: str = CHAT, body: object = BODY) -> httpx.Response:
        """A request on a connection of its own, which any worker may take."""
        headers = {"accept": "application/json, text/event-stream"}
        headers |= {} if key is None else bearer(key)
        return self.client.post(self.url + path, json=body, headers=headers)

    def ready(self) -> int:
        """The status of `/ready`."""
        return self.client.get(f"{self.url}/ready").status_code

    def why(self) -> str:
        """What `/ready` says to an operator, and the log."""
        answer = self.client.get(f"{self.url}/ready", headers=bearer(ADMIN))
        return f"{answer.text}\n{self.log.read_text()}"

    def holds(self) -> None:
        """What is so at every moment."""
        for _ in range(2 * self.workers):
            assert self.ask(None).status_code in (401, 503)
            models = self.client.get(f"{self.url}/v1/models")
            assert models.status_code in (401, 503), models.text
        assert self.upstream.asked <= ADMITTED

    def refuses(self) -> None:
        """No worker serves anybody, and all say so; `/ready` half a second later at most."""
        asked = self.upstream.asked
        for _ in range(2 * self.workers):
            answer = self.ask(self.key)
            assert answer.status_code in (503, 429), answer.text
            code = answer.json()["error"]["code"]
            # What a budget refuses is refused without a word in the ledger.
            assert (answer.status_code, code) in (
                (503, "storage_unavailable"),
                (429, "insufficient_quota"),
            )
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) > 0
        assert self.upstream.asked == asked
        self.until_all_say(503)
        self.holds()

    def until_all_say(self, status: int) -> None:
        """Until every worker says so of itself, as far as connections reach them all."""
        in_a_row = 0
        deadline = time.monotonic() + LIMIT_S
        while in_a_row < 4 * self.workers:
            assert time.monotonic() < deadline, self.why()
            in_a_row = in_a_row + 1 if self.ready() == status else 0

    def serves(self) -> None:
        """Every worker serves again, as far as the budget goes; it may take them a moment."""
        self.until_all_say(200)
        # A worker that was not among those asked may be a moment later.
        wait_for(lambda: self.ask(self.key).status_code in (200, 429), "an answer")
        self.holds()

    @contextmanager
    def in_flight(self, count: int = 2) -> Generator[list[int | None]]:
        """Requests that wait for their provider during the block; then how they have ended.

        None stands for one whose connection was lost.
        """
        while self.upstream.held.acquire(blocking=False):
            pass
        self.upstream.gate.clear()
        ended: list[int | None] = []
        asking = [threading.Thread(target=self._ask_into, args=(ended,)) for _ in range(count)]
        for each in asking:
            each.start()
        waiting = 0
        while waiting + len(ended) < count:
            waiting += self.upstream.held.acquire(timeout=0.02)
        try:
            yield ended
        finally:
            self.upstream.gate.set()
            for each in asking:
                each.join()

    def _ask_into(self, ended: list[int | None]) -> None:
        try:
            ended.append(self.ask(self.key).status_code)
        except httpx.TransportError:
            ended.append(None)

    def waits(self, *, to_the_end: bool) -> None:
        """A locked ledger admits no request; each is answered when the lock is gone, or before.

        `to_the_end` waits until the gateway has given up waiting for the lock.
        """
        ended: list[int | None] = []
        asking = [threading.Thread(target=self._ask_into, args=(ended,)) for _ in range(3)]
        with locked(self):
            self.until_all_say(503)
            asked = self.upstream.asked
            for each in asking:
                each.start()
            self.holds()
            for each in asking if to_the_end else ():
                each.join()
            assert self.upstream.asked == asked
            assert set(ended) <= {503, 429}
        for each in asking:
            each.join()
        assert set(ended) <= {200, 503, 429}

    # -- what may happen to the store

    def copy(self, name: str) -> Path:
        """The files of the store, copied while nothing is written."""
        folder = self.folder / name
        folder.mkdir()
        for file in self.files():
            shutil.copy2(file, folder / file.name)
        return folder

    def files(self) -> list[Path]:
        """The database, and what lies beside it."""
        return [file for file in self.home.iterdir() if file.name.startswith("penstock.db")]

    def away(self) -> Path:
        """Where files are moved to."""
        folder = self.folder / f"away-{time.monotonic_ns()}"
        folder.mkdir()
        return folder

    def put(self, copy: Path) -> None:
        """Put these files in the place of those that are there; nothing is running."""
        for file in self.files():
            file.unlink()
        for file in copy.iterdir():
            shutil.copy2(file, self.home / file.name)


class Refused(Exception):
    """The gateway has not started."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(code, log)
        self.code = code
        self.log = log


def other_store(path: Path) -> None:
    """A valid store without a key, of somebody else."""
    connection = connect(path, "normal")
    prepare(connection, path, MIGRATIONS, LEDGER_META)
    connection.close()


@contextmanager
def missing(world: World) -> Generator[None]:
    """`mv penstock.db away`, and back."""
    place = world.away() / "penstock.db"
    world.store.rename(place)
    yield
    place.rename(world.store)


@contextmanager
def all_missing(world: World) -> Generator[None]:
    """`mv penstock.db* away`, and back."""
    folder, moved = world.away(), world.files()
    for file in moved:
        file.rename(folder / file.name)
    yield
    for file in moved:
        (folder / file.name).rename(file)


@contextmanager
def replaced_by_empty(world: World) -> Generator[None]:
    """An empty file in its place."""
    with missing(world):
        world.store.touch()
        yield


@contextmanager
def replaced_by_another(world: World) -> Generator[None]:
    """The store of another gateway, which has no key."""
    other = world.away() / "penstock.db"
    other_store(other)
    with missing(world):
        other.rename(world.store)
        yield


@contextmanager
def replaced_by_older(world: World) -> Generator[None]:
    """A backup from before the first request; the caller has made it."""
    with missing(world):
        shutil.copy2(world.folder / "backup.db", world.store)
        yield


@contextmanager
def truncated(world: World) -> Generator[None]:
    """`: > penstock.db`: the file is the same, and what was in it is gone."""
    yield from _in_place(world, lambda: world.store.write_bytes(b""))


@contextmanager
def overwritten(world: World) -> Generator[None]:
    """`cp backup.db penstock.db`: the file is the same, with what was in it before."""
    content = (world.folder / "backup.db").read_bytes()
    yield from _in_place(world, lambda: world.store.write_bytes(content))


@contextmanager
def emptied(world: World) -> Generator[None]:
    """All rows are deleted."""

    def delete() -> None:
        connection = sqlite3.connect(world.store, isolation_level=None, timeout=LIMIT_S)
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in connection.execute(names).fetchall():
            connection.execute(f"DELETE FROM {table}")
        connection.close()

    yield from _in_place(world, delete)


def _in_place(world: World, damage: Callable[[], object]) -> Generator[None]:
    """The files as they were come back when nothing has them open."""
    whole = world.copy(f"whole-{time.monotonic_ns()}")
    damage()
    yield
    world.kill()
    world.put(whole)


@contextmanager
def locked(world: World) -> Generator[None]:
    """Another connection has the write lock."""
    connection = sqlite3.connect(world.store, isolation_level=None, timeout=LIMIT_S)
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def disk_full(world: World) -> Generator[None]:
    """No file of the gateway may grow any more."""
    limits = {each: resource.prlimit(each, resource.RLIMIT_FSIZE) for each in world.processes()}
    for process, (_, hard) in limits.items():
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, hard))
    yield
    for process, limit in limits.items():
        if _runs(process):
            resource.prlimit(process, resource.RLIMIT_FSIZE, limit)


@contextmanager
def without_temporary_folder(world: World) -> Generator[None]:
    """The system cleans the temporary folder up."""
    for each in world.temporary.iterdir():
        shutil.rmtree(each)
    yield


def backup(world: World) -> None:
    """A copy of the store, as the documentation makes one."""
    source = sqlite3.connect(world.store)
    target = sqlite3.connect(world.folder / "backup.db")
    source.backup(target)
    source.close()
    target.close()


def until_recorded(world: World) -> None:
    """Until the gateway's own record would tell the backup from the store after `kill -9`.

    It is written every 10 seconds; SECURITY.md names this limit.
    """
    before = read_mark(world.folder / "backup.db")
    assert before is not None

    def newer() -> bool:
        files = (world.home / "stores").glob("*.json")
        return any((known := read_record(file)) and known.synced > before.synced for file in files)

    wait_for(newer, "a record of the store")


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Look again and again; the limit only ends what hangs."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no sign of {what}"
        time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
