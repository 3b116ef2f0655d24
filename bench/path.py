"""The path of one request through the gateway, counted: a whole answer and a stream of 100 chunks.

Run: python bench/path.py [--quick] [--json] [--list]

The gateway runs in this process with everything turned on: key, ledger, hard budget, breaker,
request log, metrics. Python's profiling hook counts what its event loop executes for one request;
the threads of the ledger and of the log are not counted. Each figure is the least of several
requests, so that background tasks do not count. `--list` prints the functions in their order.

- functions: different functions of Penstock that run
- calls: how often they are entered or resumed
- awaited frames: the longest chain of coroutines of Penstock that await one another
- context managers: `with` and `async with` blocks of Penstock that are entered
- async generators: different ones of Penstock that a request passes
- objects: instances of Penstock's classes with an `__init__` in Python

`bench/path_ceiling.json` holds the ceilings, which only fall: a figure above its ceiling is an
error, and so is one far below it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType

from _gateway_config import KEY, MODEL, write_config
from _support import make_parser, print_table
from gateway import upstream

from penstock.config.load import load_file
from penstock.config.trust import ConfigFile
from penstock.engine.engine import Engine
from penstock.server.app import application
from penstock.server.http.server import GatewayServer
from penstock.telemetry.exporters.logs import log_to

SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "penstock")
CEILING = Path(__file__).with_name("path_ceiling.json")
WARM, MEASURED = 20, 12
LOOSE = 0.97
"""A ceiling is too high when the figure is below this part of it."""
_ENTERING = {"__enter__", "__aenter__"}


class RequestPath:
    """What the event loop has executed."""

    def __init__(self) -> None:
        self.functions: dict[CodeType, None] = {}
        self.generators: set[CodeType] = set()
        self.calls = 0
        self.awaited = 0
        self.entered = 0
        self.objects = 0
        self._contexts: set[int] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """The hook of `sys.setprofile`."""
        code = frame.f_code
        # Comprehensions are frames of their own only in some versions of Python.
        if event != "call" or code.co_name[0] == "<" or not code.co_filename.startswith(SOURCE):
            return
        self.calls += 1
        self.functions[code] = None
        if code.co_flags & inspect.CO_ASYNC_GENERATOR:
            self.generators.add(code)
        if code.co_name in _ENTERING and not self._is_resumed(frame):
            self.entered += 1
        elif code.co_name == "__init__":
            self.objects += 1
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename.endswith("contextlib.py"):
            self.entered += caller.f_code.co_name in _ENTERING and not self._is_resumed(frame)
        self.awaited = max(self.awaited, _coroutines(frame))

    def _is_resumed(self, frame: FrameType) -> bool:
        # A coroutine is entered once and resumed often; its frame stays the same object.
        known = id(frame) in self._contexts
        self._contexts.add(id(frame))
        return known

    def figures(self) -> dict[str, int]:
        return {
            "functions": len(self.functions),
            "calls": self.calls,
            "awaited frames": self.awaited,
            "context managers": self.entered,
            "async generators": len(self.generators),
            "objects": self.objects,
        }


def _coroutines(frame: FrameType | None) -> int:
    number = 0
    while frame is not None:
        code = frame.f_code
        own = code.co_filename.startswith(SOURCE)
        number += bool(own and code.co_flags & inspect.CO_COROUTINE)
        frame = frame.f_back
    return number


def ask(port: int, *, stream: bool) -> None:
    """One request on a connection of its own, read to its end."""
    body = json.dumps(
        {
            "model": MODEL,
            "stream": stream,
            "max_tokens": 200,
            "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    if not answer.startswith(b"HTTP/1.1 200") or (stream and b"[DONE]" not in answer):
        sys.exit(f"the gateway answered {answer[:300]!r}")


async def measured(port: int, *, stream: bool, times: int) -> list[RequestPath]:
    """The paths of some requests, one after the other."""
    for _ in range(WARM):
        await asyncio.to_thread(ask, port, stream=stream)
    paths: list[RequestPath] = []
    for _ in range(times):
        path = RequestPath()
        asking = asyncio.create_task(asyncio.to_thread(ask, port, stream=stream))
        sys.setprofile(path)
        try:
            await asking
        finally:
            sys.setprofile(None)
        paths.append(path)
        # What follows an answer, such as its settlement, belongs to no later request.
        await asyncio.sleep(0.05)
    return paths


async def serve_and_measure(
    folder: Path, upstream_port: int, times: int
) -> dict[str, list[RequestPath]]:
    """A gateway for as long as it takes."""
    file = write_config(folder, f"http://127.0.0.1:{upstream_port}")
    config = load_file(ConfigFile(file))
    ready = asyncio.Event()
    app = application(lambda: Engine(config, model_files=False, keep_books=True), config)
    server = GatewayServer(app, on_start=ready.set)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve([listener]))
        await ready.wait()
        port = listener.getsockname()[1]
        found = {
            "whole": await measured(port, stream=False, times=times),
            "stream": await measured(port, stream=True, times=times),
        }
        server.stop()
        await serving
    return found


def least(paths: list[RequestPath]) -> dict[str, int]:
    """Each figure of the request that had the least of it."""
    figures = [path.figures() for path in paths]
    return {name: min(each[name] for each in figures) for name in figures[0]}


def check(found: dict[str, dict[str, int]]) -> list[str]:
    """What breaks the ceilings."""
    ceilings = json.loads(CEILING.read_text(encoding="utf-8"))
    problems: list[str] = []
    for kind, figures in found.items():
        for name, ceiling in ceilings[kind].items():
            figure = figures[name]
            if figure > ceiling:
                problems.append(f"{kind}: {figure} {name}, the ceiling is {ceiling}")
            elif figure < ceiling * LOOSE:
                problems.append(f"{kind}: {figure} {name}; lower the ceiling from {ceiling}")
    return problems


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--list", action="store_true", help="print the functions in their order")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, upstream() as port:
        folder = Path(name)
        os.environ["PENSTOCK_HOME"] = name
        with (folder / "log").open("w") as log:
            handler = log_to(log, "json")
            runs = asyncio.run(serve_and_measure(folder, port, 6 if arguments.quick else MEASURED))
            logging.getLogger("penstock").removeHandler(handler)
    found = {kind: least(paths) for kind, paths in runs.items()}
    if arguments.list:
        for kind, paths in runs.items():
            print(f"\n{kind}")
            for number, code in enumerate(min(paths, key=lambda each: each.calls).functions, 1):
                place = code.co_filename.removeprefix(SOURCE + os.sep)
                print(f"{number:4} {place}:{code.co_firstlineno} {code.co_qualname}")
    elif arguments.json:
        print(json.dumps(found))
    else:
        names = list(found["whole"])
        print_table(["", *names], [[kind, *each.values()] for kind, each in found.items()])
    if problems := check(found):
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
