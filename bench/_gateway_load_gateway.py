"""The processes of `gateway_load.py`: `penstock serve` and its providers, on loopback."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from _gateway_load_client import Ask, Caller

HERE = Path(__file__).parent
ADMIN = "admin-0123456789abcdef"
_START_S = 60.0
_STOP_S = 60.0


def key_of(name: str) -> str:
    """The secret of a key of this name."""
    return f"psk_{name}-0123456789abcdefghijklmnopqrstuvwxyz"


class Plan(NamedTuple):
    """What is in a configuration."""

    providers: tuple[int, ...]
    """The ports of the targets of every model, in their order."""
    models: tuple[str, ...] = ("load",)
    keys: tuple[tuple[str, int], ...] = (("load", 100_000_000),)
    """Names, and requests a minute."""
    budgets: tuple[tuple[str, float], ...] = (("total", 1e6),)
    """Names, and dollars."""
    pool: str = ""
    """Lines of `[pool]`."""
    grace_s: float = 30.0
    more: str = ""
    """What comes at the end of the file."""

    def text(self) -> str:
        """The file."""
        return "".join(self._sections())

    def _sections(self) -> Iterator[str]:
        yield f'[server]\nlog = "json"\ngrace_s = {self.grace_s}\nadmin_key = "{ADMIN}"\n'
        yield f'[storage]\nurl = "sqlite:///ledger.db"\n[pool]\n{self.pool}\n'
        for number, port in enumerate(self.providers):
            yield f'[providers.up{number}]\nkind = "openai-chat"\nauth_token = "load"\n'
            yield f'url = "http://127.0.0.1:{port}/v1"\n'
        targets = [f"up{number}/load" for number in range(len(self.providers))]
        for model in self.models:
            yield f"[models.{model}]\ntargets = {json.dumps(targets)}\n"
            for target in targets:
                yield f'[models.{model}.prices."{target}"]\ninput = 1.0\noutput = 5.0\n'
        for name, limit in self.budgets:
            yield f"[budgets.{name}]\nlimit_usd = {limit}\n"
        for name, limit in self.keys:
            digest = hashlib.sha256(key_of(name).encode()).hexdigest()
            yield f'[keys.{name}]\nhash = "sha256:{digest}"\nrequests_per_minute = {limit}\n'
        yield self.more


class Upstream:
    """A provider in a process of its own, which may die and come back at the same port."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[str] = []
        """The names of what it was asked for, in the lives that have ended."""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        script = str(HERE / "_gateway_load_upstream.py")
        process = subprocess.Popen(
            [sys.executable, script, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def kill(self) -> None:
        """Without a word, as when a machine loses its power."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    async def asked_for(self) -> list[str]:
        """The names of all requests that came here."""
        caller = Caller(self.port)
        with contextlib.closing(caller):
            _, said = await caller.get("/seen", "")
        return json.loads(said)

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def upstreams(number: int) -> Generator[list[Upstream], None, None]:
    """So many, started."""
    found = [Upstream() for _ in range(number)]
    try:
        for each in found:
            each.start()
        yield found
    finally:
        for each in found:
            each.close()


class Gateway:
    """A running `penstock serve`."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.port = port
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def workers(self) -> list[int]:
        """The processes of its workers."""
        return [int(each) for each in _children(self.pid)]

    def configure(self, plan: Plan) -> None:
        """Write the file at once, as careful editors do, and tell the gateway."""
        _write(self.folder, plan)
        self.tell()

    def tell(self) -> None:
        """There is something to read."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        """The exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_S)

    def said(self) -> str:
        """Its log."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Lines of the log that are neither of a request nor of the start."""
        lines = self.said().splitlines()
        return [line for line in lines if '"level":"error"' in line or "Traceback" in line]

    async def ready(self) -> dict[str, Any]:
        """What it says of itself."""
        caller = Caller(self.port)
        with contextlib.closing(caller):
            return json.loads((await caller.get("/ready", ADMIN))[1])

    async def state(self, target: str) -> str:
        """Of the breaker of this target."""
        found = await self.ready()
        return next((each["state"] for each in found["targets"] if each["target"] == target), "?")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of the program, beside the gateway."""
        config = str(self.folder / "penstock.toml")
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words, "--config", config],
            env=_environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
        )


@contextlib.contextmanager
def gateway(folder: Path, plan: Plan, workers: int = 1) -> Generator[Gateway, None, None]:
    """One that has said that it is started; its port is free for whoever asks."""
    _write(folder, plan)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = ["serve", "--config", str(folder / "penstock.toml"), "--port", str(port)]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words, "--workers", str(workers)],
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        running = Gateway(folder, port, process)
        try:
            until = time.monotonic() + _START_S
            while "Ctrl-C" not in running.said():
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit(f"the gateway does not start: {running.said()[-1000:]}")
                time.sleep(0.02)
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _write(folder: Path, plan: Plan) -> None:
    new = folder / "penstock.toml.new"
    new.write_text(plan.text())
    new.replace(folder / "penstock.toml")


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_HOME": str(folder)}


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def of_load(**changes: Any) -> Ask:
    """A request with the key that every plan has."""
    return Ask(key=key_of("load"))._replace(**changes)
