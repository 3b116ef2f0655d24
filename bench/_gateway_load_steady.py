"""What `gateway_load.py` holds for long: thousands of open streams, and mixed traffic."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _gateway_load import quantile
from _gateway_load_client import RIGHT, Ask, Caller, Outcome
from _gateway_load_gateway import Plan, gateway, key_of, of_load, upstreams
from _support import Claim
from asgi_servers import cpu_seconds
from gateway import resident_mb

FEW = 10
LARGEST_STREAM_KB = 150.0
LARGEST_MB = 120.0
LARGEST_GROWTH_KB = 100.0
"""Of a thousand requests."""
_OPENING = 100
"""Streams that are opened at a time; the next come when all of these have begun."""
_LOOKS = 6
"""At the memory, after the warm-up."""
KEYS = ("load", "blue", "green")


async def streams(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """Thousands of open streams, each with a piece now and then."""
    number, pieces, pause_s, probes = (200, 8, 1.0, 2) if quick else (5000, 18, 5.0, 30)
    with upstreams(1) as (upstream,), gateway(folder, Plan((upstream.port,))) as server:
        await _first_bytes(server.port, 2)
        alone = await _first_bytes(server.port, probes)
        before_mb, before_cpu = resident_mb(server.pid), cpu_seconds(server.pid)
        began = time.perf_counter()
        crowd = await _opened(server.port, number, pieces, pause_s)
        opened = time.perf_counter()
        amid = await _first_bytes(server.port, probes)
        peak_mb = resident_mb(server.pid)
        many = await crowd
        elapsed = time.perf_counter() - began
        spent = cpu_seconds(server.pid) - before_cpu
        code, complaints = server.stop(), server.complaints()
    ended = min(each.began + each.whole_s for each in many)
    wrong = [each for each in [*many, *alone, *amid] if each.what != RIGHT]
    before, during = (quantile([each.first_s for each in some], 0.99) for some in (alone, amid))
    found: dict[str, Any] = {
        "streams": number,
        "opened_in_s": opened - began,
        "held_s": ended - opened,
        "lost": len(wrong),
        "pieces": pieces * number,
        "kb_per_stream": (peak_mb - before_mb) * 1024 / number,
        "cpu_share": spent / elapsed,
        "cpu_us_per_piece": spent / (pieces * number) * 1e6,
        "first_p99_ms_beside_none": before,
        "first_p99_ms_beside_all": during,
        "first_p99_ratio": during / before,
        "exit_code": code,
        "shown": [f"{each.what}: {each.shown}" for each in wrong[:5]] + complaints[:5],
    }
    claims = [
        Claim("streams that were lost, cut or wrong", found["lost"], 0),
        # Where opening takes longer than they last, there never were so many.
        Claim("seconds that all were open at once, below none", -found["held_s"], 0),
        Claim("kB of memory for each open stream", found["kb_per_stream"], LARGEST_STREAM_KB),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]
    return found, claims


async def _first_bytes(port: int, times: int) -> list[Outcome]:
    """Ten streams at once, so many times."""
    rounds = [await (await _opened(port, FEW, 2, 0.02)) for _ in range(times)]
    return [each for some in rounds for each in some]


async def _opened(
    port: int, number: int, pieces: int, pause_s: float
) -> asyncio.Future[list[Outcome]]:
    """So many streams at once, each on a connection of its own, when all have begun."""
    ask = of_load(pieces=pieces, pause_ms=int(pause_s * 1e3), stream=True)
    tasks: list[asyncio.Task[Outcome]] = []
    for at in range(0, number, _OPENING):
        callers = [Caller(port) for _ in range(min(_OPENING, number - at))]
        asking = [asyncio.create_task(_ask_once(caller, ask)) for caller in callers]
        await asyncio.gather(*(caller.begun.wait() for caller in callers))
        tasks += asking
    return asyncio.gather(*tasks)


async def _ask_once(caller: Caller, ask: Ask) -> Outcome:
    with contextlib.closing(caller):
        return await caller.ask(ask)


async def soak(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """Everything that callers do, for long, and the memory of it."""
    warm, requests = (100, 600) if quick else (20_000, 60_000)
    plan = Plan((0,), models=("load", "other"), keys=tuple((name, 10**8) for name in KEYS))
    with upstreams(1) as (upstream,):
        plan = plan._replace(providers=(upstream.port,))
        with gateway(folder, plan) as server:
            traffic = _Traffic(server.port)
            await traffic.run(warm)
            seen_mb = [resident_mb(server.pid)]
            for _ in range(_LOOKS):
                await traffic.run(requests // _LOOKS)
                seen_mb.append(resident_mb(server.pid))
            busy = sum(each.get("in_flight", 0) for each in (await server.ready())["targets"])
            code, complaints = server.stop(), server.complaints()
        verified = server.command("budget", "verify")
    end_mb = seen_mb[-1]
    growth_kb = (end_mb - seen_mb[0]) * 1024 / (requests / 1000)
    found: dict[str, Any] = {
        "requests": warm + requests,
        "outcomes": dict(traffic.outcomes),
        "resident_mb": [round(each, 1) for each in seen_mb],
        "growth_kb_per_1000": growth_kb,
        "in_flight": busy,
        "exit_code": code,
        "shown": traffic.shown[:5] + complaints[:5],
    }
    wrong = sum(number for what, number in traffic.outcomes.items() if RIGHT not in what)
    claims = [
        Claim("answers that are not what was asked for", wrong, 0),
        Claim("requests in progress when nobody asks", busy, 0),
        Claim("MB resident at the end", end_mb, LARGEST_MB),
        Claim("the ledger does not add up", verified.returncode, 0),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]
    if not quick:
        grown = "kB that are kept of 1,000 requests"
        claims.append(Claim(grown, growth_kb, LARGEST_GROWTH_KB))
    return found, claims


class _Traffic:
    """Callers that do one thing after the other, by chance."""

    def __init__(self, port: int, callers: int = 24) -> None:
        self.outcomes: Counter[str] = Counter()
        self.shown: list[str] = []
        self._port = port
        self._callers = callers
        self._left = 0
        self._chance = random.Random(1)

    async def run(self, requests: int) -> None:
        self._left = requests
        await asyncio.gather(*(self._go_on() for _ in range(self._callers)))

    async def _go_on(self) -> None:
        caller = Caller(self._port)
        with contextlib.closing(caller):
            while self._left > 0:
                self._left -= 1
                kind, what, shown = await self._one(caller)
                self.outcomes[f"{kind}: {what}"] += 1
                if what != RIGHT:
                    self.shown.append(f"{kind}: {shown}")

    async def _one(self, caller: Caller) -> tuple[str, str, str]:
        chance = self._chance
        key = key_of(chance.choice(KEYS))
        kind = chance.choice(("chat", "chat", "stream", "stream", "embed", "error", "leave", "key"))
        ask = of_load(key=key, model=chance.choice(("load", "other")), pieces=chance.randint(1, 40))
        if kind == "embed":
            body = {"model": "load", "input": ["a text"] * chance.randint(1, 4)}
            status, said = await caller.get("/v1/embeddings", key, body)
            return kind, RIGHT if status == 200 else str(status), said[:300].decode()
        if kind == "key":
            status, said = await caller.get("/v1/models", "psk_of-nobody")
            return kind, RIGHT if status == 401 else str(status), said[:300].decode()
        if kind == "stream":
            ask = ask._replace(stream=True, pause_ms=chance.randint(0, 2))
        elif kind == "error":
            ask = ask._replace(status=400, stream=chance.random() < 0.5)
        elif kind == "leave":
            ask = ask._replace(stream=True, pause_ms=5, leave_after=chance.randint(0, 5))
        outcome = await caller.ask(ask)
        return kind, outcome.what, outcome.shown
