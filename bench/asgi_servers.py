"""Which ASGI server carries the gateway: uvicorn or granian, beside a bare asyncio protocol.

Each serves the same tiny application from one worker on one core, while a load generator in another
process runs on the other core. `echo` answers at once, `wait` after 5 ms, as a gateway would that
asks a provider, and `stream` sends 100 chunks. Rounds are interleaved and the median is shown; CPU
time a response is the steadiest figure on a shared machine. Three behaviours that a streaming
gateway needs are tried as well: how soon the application hears that a client has gone, how much it
may write to a client that does not read, and whether a stream survives a SIGTERM.

Run: python bench/asgi_servers.py [--quick] [--json]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from _asgi_peers import BODY, EVENTS
from _support import parse_arguments, print_table, throwaway_python

PEERS = Path(__file__).with_name("_asgi_peers.py")
LOADS = (
    *(("/echo", 1), ("/echo", 32), ("/echo", 256)),
    *(("/wait", 32), ("/wait", 256)),
    *(("/stream", 1), ("/stream", 32)),
)
APPLICATION = f"{PEERS.stem}:application"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "uvicorn": (
        *("-m", "uvicorn", APPLICATION, "--http", "httptools", "--loop", "uvloop"),
        *("--no-access-log", "--log-level", "critical", "--port"),
    ),
    "granian": (
        *("-m", "granian", APPLICATION, "--interface", "asgi", "--loop", "uvloop"),
        *("--workers", "1", "--no-log", "--port"),
    ),
    "granian-embed": (str(PEERS), "granian-embed"),
    "floor": (str(PEERS), "floor"),
}


class Server(NamedTuple):
    """A server that takes connections."""

    python: Path
    pid: int
    port: int


@contextlib.contextmanager
def running(python: Path, name: str, events: Path) -> Generator[Server, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        on_core(0, str(python), *COMMANDS[name], str(port)),
        cwd=PEERS.parent,
        env={**os.environ, EVENTS: str(events)},
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        yield Server(python, process.pid, port)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def on_core(core: int, *words: str) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[core % len(cores)]), *words]


def cpu_seconds(pid: int) -> float:
    """The CPU time of the process and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


def measure(server: Server, path: str, width: int, seconds: float) -> dict[str, float]:
    words = (str(PEERS), "load", str(server.port), path, str(width), str(seconds))
    before = cpu_seconds(server.pid)
    output = subprocess.check_output(on_core(1, str(server.python), *words))
    answers, elapsed = json.loads(output)
    spent = cpu_seconds(server.pid) - before
    return {"per_s": answers / elapsed, "cpu_us": spent / answers * 1e6}


def behaviours(python: Path, name: str, events: Path) -> dict[str, Any]:
    if name == "floor":
        return {}
    events.write_text("")
    with running(python, name, events) as server:
        with ask(server.port, "/silent") as client:
            client.recv(65536)
            time.sleep(0.3)
            left = time.time()
        with ask(server.port, "/endless"):
            time.sleep(3)
        with ask(server.port, "/slow") as client:
            client.recv(65536)
            os.kill(server.pid, signal.SIGTERM)
            received = b"".join(iter(lambda: client.recv(65536), b""))
    noted = dict(json.loads(line) for line in events.read_text().splitlines())
    heard = noted.get("disconnect")
    return {
        "disconnect_ms": None if heard is None else round((heard - left) * 1000, 1),
        "unread_bytes": noted.get("accepted"),
        "stream_survives_sigterm": received.endswith(b"0\r\n\r\n"),
    }


@contextlib.contextmanager
def ask(port: int, path: str) -> Generator[socket.socket, None, None]:
    with socket.create_connection(("127.0.0.1", port), 15) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(BODY)}\r\n\r\n"
        client.sendall(head.encode() + BODY)
        yield client


def main(quick: bool) -> dict[str, Any]:
    packages = ("uvicorn[standard]", "granian", "uvloop", "httptools")
    python = throwaway_python(*packages, project_dependencies=False)
    rounds, seconds = (1, 0.1) if quick else (5, 3.0)
    figures: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.jsonl"
        for _ in range(rounds):
            for name, loads in figures.items():
                with running(python, name, events) as server:
                    measure(server, "/echo", 8, seconds / 10)
                    for path, width in LOADS:
                        found = measure(server, path, width, seconds)
                        loads.setdefault(f"{path[1:]} c={width}", []).append(found)
        return {
            name: {
                "loads": {load: medians(found) for load, found in loads.items()},
                **behaviours(python, name, events),
            }
            for name, loads in figures.items()
        }


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(item[key] for item in found), 1) for key in found[0]}


def show(figures: Mapping[str, Any]) -> None:
    loads = list(figures["uvicorn"]["loads"])
    for key, title in (("cpu_us", "CPU microseconds a response"), ("per_s", "responses a second")):
        print(f"\n{title}")
        rows = [
            [name, *(round(found["loads"][load][key]) for load in loads)]
            for name, found in figures.items()
        ]
        print_table(["server", *loads], rows)
    print("\nbehaviour")
    tried = {name: found for name, found in figures.items() if "unread_bytes" in found}
    names = ["disconnect_ms", "unread_bytes", "stream_survives_sigterm"]
    rows = [[name, *(found[key] for key in names)] for name, found in tried.items()]
    print_table(["server", *names], rows)


if __name__ == "__main__":
    arguments = parse_arguments(__doc__)
    result = main(arguments.quick)
    print(json.dumps(result)) if arguments.json else show(result)
