"""Kills a process that works with a ledger, again and again, and looks at what is left.

The provider lives in this process and on loopback. It writes down each request, in memory, before
it answers: what is written there was answered, or was about to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget

ROOT = Path(__file__).parents[2]
LEASE_S = 120.0
HELD = 1000
"""What the worker asks for; each call costs less."""


class Round(msgspec.Struct, frozen=True):
    """What one killing has left."""

    answered: int
    settled: int
    expired: int
    problems: tuple[str, ...]


class Provider:
    """Answers each line with what the call has cost, and strikes after so many."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self.costs: dict[str, int] = {}
        self.left = 0
        self.now = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                cost = self._luck.randrange(HELD + 1)
                self.costs[line.decode().strip()] = cost
                self.left -= 1
                if self.left <= 0:
                    self.now.set()
                # Answers take different times, so that requests are in every phase when the end
                # comes.
                await asyncio.sleep(self._luck.uniform(0, 0.003))
                writer.write(f"{cost}\n".encode())
        writer.close()


@contextlib.asynccontextmanager
async def provider(luck: random.Random) -> AsyncGenerator[tuple[Provider, int]]:
    """A provider and its port."""
    one = Provider(luck)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    async with server:
        yield one, server.sockets[0].getsockname()[1]


async def kill_and_look(path: Path, seed: int, most_calls: int = 400) -> Round:
    """Let a process work on this file until a random moment, kill it, and check the ledger."""
    luck = random.Random(seed)
    before = await _last_entry(path)
    async with provider(luck) as (calls, port):
        calls.left = luck.randrange(1, most_calls)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.budget.worker",
            "call_for_ever",
            str(path),
            str(port),
            str(seed),
            cwd=ROOT,
        )
        striking = asyncio.create_task(calls.now.wait())
        ending = asyncio.create_task(process.wait())
        await asyncio.wait({striking, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not striking.done():
            striking.cancel()
            return Round(0, 0, 0, (f"the worker ended by itself with {process.returncode}",))
        await asyncio.sleep(luck.uniform(0, 0.005))
        process.kill()
        await ending
    return await _look(path, before, calls.costs)


async def _last_entry(path: Path) -> int:
    ledger = await Ledger.open(path)
    try:
        await ledger.set_budget(Budget(name="total", limit_nanos=10**15, period="forever"))
        await ledger.set_budget(Budget(name="a", limit_nanos=10**15, provider="a"))
        (entry,) = (await ledger.history(limit=1)).entries or (None,)
        return entry.id if entry else 0
    finally:
        await ledger.aclose()


async def _look(path: Path, before: int, costs: dict[str, int]) -> Round:
    """Open the ledger when all leases are over, as the next process would."""
    problems: list[str] = []
    ledger = await Ledger.open(path, clock=lambda: time.time() + LEASE_S + 1)
    try:
        problems += [f"as it was left: {each}" for each in await ledger.verify()]
        await ledger.sweep()
        problems += [f"after the sweep: {each}" for each in await ledger.verify()]
        closed: dict[str, str] = {}
        cursor: int | None = before
        while cursor is not None:
            page = await ledger.history(cursor=cursor, limit=1000, oldest_first=True)
            cursor = page.next
            for entry in page.entries:
                request_id = str(entry.request_id)
                if entry.kind not in ("settle", "expire", "release"):
                    continue
                if request_id in closed:
                    problems.append(f"{request_id} is closed twice")
                closed[request_id] = entry.kind
                amount = costs.get(request_id) if entry.kind == "settle" else HELD
                if entry.kind == "release" or entry.amount_nanos != amount:
                    problems.append(f"{request_id}: {entry.kind} of {entry.amount_nanos}")
        problems += [f"{each} was answered and is missing" for each in costs.keys() - closed.keys()]
        with contextlib.closing(sqlite3.connect(path)) as connection:
            query = "SELECT count(*) FROM ledger_holds WHERE expired IS NULL"
            (left,) = connection.execute(query).fetchone()
        if left:
            problems.append(f"{left} holds are open after their lease")
    finally:
        await ledger.aclose()
    kinds = list(closed.values())
    return Round(len(costs), kinds.count("settle"), kinds.count("expire"), tuple(problems))
