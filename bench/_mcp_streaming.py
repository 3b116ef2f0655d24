"""What `mcp.py` measures: the servers, the ways to read a tool, and the waves of calls."""

from __future__ import annotations

import asyncio
import json
import logging
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from _soak_memory import Slope, memory
from _support import Claim, end_by, make_parser, print_table
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import Context, MCPServer

from penstock.mcp import StreamingTools, stream_tool, streamed

HOST = "127.0.0.1"
ENTRY = Path(__file__).with_name("mcp.py")
WAYS = (("memory", "auto"), ("memory", "legacy"), ("http", "auto"), ("http", "legacy"))
WORDS = (" the", " water", " flows", " through", " a", " naïve", " pen", "stock", ",", " größer")
CLIENTS = 10
LOOKS = 5
START_S = 30.0


class Sizes(NamedTuple):
    """How much is done."""

    chunks: int
    rounds: int
    firsts: int
    calls: int
    waves: int
    each: int
    kept: float
    """Blocks that a thousand calls may leave behind; a short run sees only large leaks."""


FULL = Sizes(chunks=2000, rounds=5, firsts=100, calls=1000, waves=4, each=5, kept=100.0)
QUICK = Sizes(chunks=100, rounds=1, firsts=5, calls=50, waves=4, each=5, kept=10_000.0)


class Gate:
    """Opens when so many have come."""

    def __init__(self) -> None:
        self._come = 0
        self._open = asyncio.Event()

    async def pass_with(self, others: int) -> None:
        gate = self._open
        self._come += 1
        if self._come == others:
            gate.set()
            self._come, self._open = 0, asyncio.Event()
        await gate.wait()


def make_server() -> MCPServer:
    server = MCPServer("bench", extensions=[StreamingTools()], log_level="WARNING")
    gate = Gate()

    @server.tool()
    @streamed
    async def chunks(count: int) -> AsyncIterator[str]:
        for at in range(count):
            yield WORDS[at % len(WORDS)]

    @server.tool()
    async def progress(count: int, ctx: Context) -> str:
        whole: list[str] = []
        for at in range(count):
            whole.append(WORDS[at % len(WORDS)])
            await ctx.report_progress(at + 1, None, whole[-1])
        return "".join(whole)

    @server.tool()
    @streamed
    async def together(number: int, others: int, count: int) -> AsyncIterator[str]:
        await gate.pass_with(others)
        for at in range(count):
            yield f"{number}:{at}"
            await asyncio.sleep(0)

    @server.tool()
    async def blocks() -> int:
        return memory().blocks

    return server


def wanted(count: int) -> list[str]:
    return [WORDS[at % len(WORDS)] for at in range(count)]


async def by_chunks(client: Client, count: int) -> float:
    """Read a stream to its end; the seconds to its first chunk."""
    started, first = time.perf_counter(), 0.0
    stream = stream_tool(client, "chunks", {"count": count}, buffer=count)
    found: list[str] = []
    async for chunk in stream:
        first = first or time.perf_counter() - started
        found.append(chunk.text)
    if found != wanted(count) or stream.result.structured_content != {"result": "".join(found)}:
        sys.exit("the chunks are not what the tool gave")
    return first


async def by_progress(client: Client, count: int) -> float:
    """The same with what the SDK has; its callback does no more than keep the text."""
    started, first = time.perf_counter(), 0.0
    found: list[str] = []
    whole = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        nonlocal first
        first = first or time.perf_counter() - started
        found.append(message or "")
        if len(found) == count:
            whole.set()

    await client.call_tool("progress", {"count": count}, progress_callback=note)
    await whole.wait()
    check_progress(found)
    return first


async def by_queue(client: Client, count: int) -> float:
    """The same as a loop over what the callback hears."""
    started, first = time.perf_counter(), 0.0
    heard = asyncio.Queue[str](count)

    async def note(progress: float, total: float | None, message: str | None) -> None:
        await heard.put(message or "")

    call = asyncio.create_task(
        client.call_tool("progress", {"count": count}, progress_callback=note)
    )
    found: list[str] = []
    while len(found) < count:
        found.append(await heard.get())
        first = first or time.perf_counter() - started
    await call
    check_progress(found)
    return first


def check_progress(found: list[str]) -> None:
    if sorted(found) != sorted(wanted(len(found))):
        sys.exit("the progress is not what the tool reported")


CANDIDATES = {"penstock": by_chunks, "SDK callback": by_progress, "SDK queue": by_queue}


@contextmanager
def served(way: str) -> Generator[Any]:
    """What a client connects to: a server in this process, or the address of another."""
    if way == "memory":
        yield make_server()
        return
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    process = subprocess.Popen([sys.executable, ENTRY, "--serve", str(port)])
    try:
        deadline = time.monotonic() + START_S
        while not connects(port):
            if time.monotonic() > deadline:
                sys.exit("the server did not start")
            time.sleep(0.05)
        yield f"http://{HOST}:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def connects(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def connected(target: Any, era: str, calls: int = 10) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        if isinstance(target, str):
            # None is kept: the server closes idle ones, and just then a call may take one up. It is
            # told so, for else its timer holds the memory of each, closed or not, for some seconds.
            limits = httpx2.Limits(max_connections=calls + 10, max_keepalive_connections=0)
            http = await stack.enter_async_context(
                httpx2.AsyncClient(limits=limits, timeout=60, headers={"Connection": "close"})
            )
            target = streamable_http_client(target, http_client=http)
        yield await stack.enter_async_context(Client(target, mode=era))


async def measure_speed(target: Any, era: str, sizes: Sizes) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    firsts: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    async with connected(target, era) as client:
        for turn in range(-1, sizes.rounds):
            for name in list(CANDIDATES)[:: 1 if turn % 2 else -1]:
                started = time.perf_counter()
                await CANDIDATES[name](client, sizes.chunks)
                if turn >= 0:
                    seconds[name].append(time.perf_counter() - started)
        for _ in range(sizes.firsts):
            for name, run in CANDIDATES.items():
                firsts[name].append(await run(client, 2))
    return {
        name: {
            "chunks_per_s": sizes.chunks / statistics.median(seconds[name]),
            "first_ms": 1000 * statistics.median(firsts[name]),
        }
        for name in CANDIDATES
    }


async def one_of_many(client: Client, number: int, sizes: Sizes) -> None:
    arguments = {"number": number, "others": sizes.calls, "count": sizes.each}
    found = [chunk.text async for chunk in stream_tool(client, "together", arguments)]
    if found != [f"{number}:{at}" for at in range(sizes.each)]:
        sys.exit(f"call {number} read what is not its own, or not in order: {found}")


async def blocks_of(client: Client) -> int:
    """The least of a few: connections that have just ended are still being closed at the first."""
    found = [(await client.call_tool("blocks")).structured_content for _ in range(LOOKS)]
    return min(each["result"] for each in found if each is not None)


async def measure_many(target: Any, era: str, sizes: Sizes) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        share = sizes.calls // CLIENTS
        clients = [
            await stack.enter_async_context(connected(target, era, share)) for _ in range(CLIENTS)
        ]
        blocks: list[tuple[float, float]] = []
        seconds: list[float] = []
        # The first two fill what is kept for good: pools, caches, buffers.
        for wave in range(sizes.waves + 2):
            started = time.perf_counter()
            await asyncio.gather(
                *(one_of_many(clients[at % CLIENTS], at, sizes) for at in range(sizes.calls))
            )
            if wave >= 2:
                seconds.append(time.perf_counter() - started)
                blocks.append((wave * sizes.calls, await blocks_of(clients[0])))
    slope = Slope.of(blocks)
    return {
        "calls": sizes.calls,
        "chunks_per_s": sizes.calls * sizes.each / statistics.median(seconds),
        "blocks": blocks[0][1],
        "kept_per_1000": slope.growth,
        "surely_kept_per_1000": slope.surely,
    }


async def measure(sizes: Sizes) -> tuple[dict[str, Any], list[Claim]]:
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "mcp": version("mcp"),
        "speed": {},
        "many": {},
    }
    claims: list[Claim] = []
    for way, era in WAYS:
        name = f"{way} {'modern' if era == 'auto' else era}"
        with served(way) as target:
            result["speed"][name] = await measure_speed(target, era, sizes)
        with served(way) as target:
            many = result["many"][name] = await measure_many(target, era, sizes)
        said = f"blocks of Python that the server keeps of a thousand calls ({name})"
        claims.append(Claim(said, many["surely_kept_per_1000"], sizes.kept))
    return result, claims


def show(result: dict[str, Any]) -> None:
    rows: list[Sequence[object]] = [
        (way, name, round(found["chunks_per_s"]), found["first_ms"])
        for way, candidates in result["speed"].items()
        for name, found in candidates.items()
    ]
    print_table(("way", "by", "chunks/s", "ms to the first"), rows)
    print()
    print_table(
        ("way", "calls at once", "chunks/s", "blocks", "kept of 1,000", "surely"),
        [
            (
                way,
                found["calls"],
                round(found["chunks_per_s"]),
                found["blocks"],
                round(found["kept_per_1000"]),
                round(found["surely_kept_per_1000"]),
            )
            for way, found in result["many"].items()
        ],
    )


def main(about: str | None) -> None:
    parser = make_parser(about)
    parser.add_argument("--serve", type=int, default=0, help="run as the server, on this port")
    arguments = parser.parse_args()
    if arguments.serve:
        make_server().run("streamable-http", port=arguments.serve)
        return
    logging.disable(logging.ERROR)
    result, claims = asyncio.run(measure(QUICK if arguments.quick else FULL))
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)
    end_by(claims)
