"""What breaks in `gateway_load.py`: a provider, and a worker of the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _gateway_load_client import CUT, IN_BAND, RESET, RIGHT, TORN, Crowd
from _gateway_load_gateway import Gateway, Plan, gateway, key_of, of_load, upstreams
from _support import Claim

from penstock.budget.ledger import Ledger

WORKERS = 4
PATIENCE_S = 60.0
"""For what must come; how long it takes is not judged."""
_LATER_S = 3600.0
"""When every lease is over."""
_UNSETTLED_S = 0.2
"""Ten times as long as a settlement may wait for company."""
_LIMITED = 200
_ESTABLISHED = "01"


# -- a provider dies and comes back


async def outage(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """The first of two providers dies under load; whoever asks shall not notice."""
    found: dict[str, Any] = {}
    claims: list[Claim] = []
    for policy in ("continue",) if quick else ("continue", "error"):
        place = folder / policy
        place.mkdir()
        some, more = await _outage(place, policy, 1 if quick else 5)
        found |= {f"{key}, {policy}": value for key, value in some.items()}
        claims += [each._replace(said=f"{each.said} (mid_stream = {policy})") for each in more]
    return found, claims


async def _outage(folder: Path, policy: str, times: int) -> tuple[dict[str, Any], list[Claim]]:
    pool = f'breaker_cooldown_s = 1.0\nmid_stream = "{policy}"'
    opened = returned = 0
    kills: list[float] = []
    with upstreams(2) as (first, second):
        plan = Plan((first.port, second.port), pool=pool)
        with gateway(folder, plan) as server:
            crowd = Crowd(server.port)
            crowd.add(12, of_load(pause_ms=20), keeps=True)
            crowd.add(8, of_load(pieces=5, pause_ms=20, stream=True))
            crowd.add(8, of_load(pieces=30, pause_ms=50, stream=True))
            for _ in range(times):
                await asyncio.sleep(1.0)
                kills.append(time.perf_counter())
                first.kill()
                opened += await _becomes(server, "up0/load", "open")
                first.start()
                returned += await _becomes(server, "up0/load", "closed")
            await asyncio.sleep(0.5)
            came_back = len(await first.asked_for())
            await crowd.stop()
            code, complaints = server.stop(), server.complaints()
    outcomes = crowd.outcomes
    # They had begun when the provider died.
    allowed = [
        each
        for each in outcomes
        if each.what == IN_BAND and any(each.began <= kill <= each.ended for kill in kills)
    ]
    failed = [each for each in outcomes if each.what != RIGHT]
    lost = [each for each in failed if each not in allowed]
    found = {
        "requests": len(outcomes),
        "outages": times,
        "outcomes": dict(crowd.counted()),
        "streams running at an outage": sum(
            each.first <= kill <= each.ended for each in outcomes for kill in kills
        ),
        "errors in running streams": len(allowed),
        "lost": len(lost),
        "answered by the first again": came_back,
        "exit_code": code,
        "shown": [f"{each.what}: {each.shown}" for each in lost[:5]] + complaints[:5],
    }
    return found, [
        Claim("requests that failed or were torn", len(lost), 0),
        Claim("outages without an open breaker", times - opened, 0),
        Claim("recoveries after which the provider was not asked again", times - returned, 0),
        Claim("providers that came back for nothing", int(came_back == 0), 0),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]


async def _becomes(server: Gateway, target: str, state: str) -> bool:
    until = time.monotonic() + PATIENCE_S
    while await server.state(target) != state:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True


# -- a worker dies


async def kill(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """One of four workers gets SIGKILL under load: only what it was doing may fail."""
    times = 1 if quick else 5
    keys = (("load", 10**8), ("limited", _LIMITED))
    doomed: set[int] = set()
    kills: list[float] = []
    replaced = 0
    with upstreams(1) as (upstream,):
        plan = Plan((upstream.port,), keys=keys)
        with gateway(folder, plan, WORKERS) as server:
            crowd, limited = Crowd(server.port), Crowd(server.port)
            crowd.add(8, of_load(pause_ms=20), keeps=True)
            crowd.add(8, of_load(pause_ms=20))
            crowd.add(8, of_load(pieces=10, pause_ms=50, stream=True))
            # Slowly, so that there is room left when the first worker dies.
            limited.add(4, of_load(key=key_of("limited"), pause_ms=60))
            await asyncio.sleep(1.0)
            for _ in range(times):
                kills.append(time.perf_counter())
                doomed |= _kill_one(server)
                replaced += await _replaced(server)
            await asyncio.sleep(0.5)
            await _spent(limited)
            await asyncio.gather(crowd.stop(), limited.stop())
            seen = set(await upstream.asked_for())
            code, complaints = server.stop(), server.complaints()
            verified = server.command("budget", "verify")
    books = await _books(folder / "ledger.db")
    failed = [each for each in crowd.outcomes if each.what != RIGHT]
    failed += [each for each in limited.outcomes if each.what not in (RIGHT, "429")]
    own = [each for each in failed if each.port in doomed and each.what in (RESET, TORN, CUT)]
    lost = [each for each in failed if each not in own]
    # What was answered in the moment before a kill may not be settled yet, and expires as well.
    just_before = sum(
        any(abs(each.began + each.whole_s - kill) < _UNSETTLED_S for kill in kills)
        for each in [*crowd.outcomes, *limited.outcomes]
        if each.what == RIGHT
    )
    taken = sum(each.name in seen for each in limited.outcomes)
    unknown = sum(each in own and each.name not in seen for each in limited.outcomes)
    found = {
        "requests": len(crowd.outcomes) + len(limited.outcomes),
        "killed": times,
        "failed with their worker": len(own),
        "outcomes": dict(Counter(each.what for each in [*crowd.outcomes, *limited.outcomes])),
        "lost on other workers": len(lost),
        "taken of a limit of 200": taken,
        "calls that the provider saw": len(seen),
        **books,
        "exit_code": code,
        "shown": [f"{each.what}: {each.shown}" for each in lost[:5]] + complaints[:5],
    }
    return found, [
        Claim("requests that failed on workers that lived", len(lost), 0),
        Claim("workers that were not replaced", times - replaced, 0),
        Claim("requests above a key's limit", taken, _LIMITED),
        Claim("requests missing from a key's limit", max(0, _LIMITED - taken - unknown), 0),
        Claim("the ledger does not add up", verified.returncode, 0),
        Claim("differences in the ledger when the leases are over", books["differences"], 0),
        Claim("nano-dollars held when the leases are over", books["held_nanos"], 0),
        Claim(
            "holds of nobody who failed, or was answered just before",
            max(0, books["expired"] - len(own) - just_before),
            0,
        ),
        Claim("calls that are not in the ledger", max(0, len(seen) - books["charged"]), 0),
        Claim("charges for no call", max(0, books["charged"] - len(seen) - len(own)), 0),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]


async def _spent(crowd: Crowd) -> None:
    """Until the key of these has nothing left."""
    until = time.monotonic() + PATIENCE_S
    while not crowd.counted()["429"]:
        if time.monotonic() > until:
            return
        await asyncio.sleep(0.05)


def _kill_one(server: Gateway) -> set[int]:
    """The ports of the callers whose connections died with it."""
    # The one with most to lose. It stands still while we look, so that nothing is missed.
    stopped = server.workers
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    ports = {pid: _callers_of(pid, server.port) for pid in stopped}
    victim = max(stopped, key=lambda pid: len(ports[pid]))
    os.kill(victim, signal.SIGKILL)
    for pid in stopped:
        if pid != victim:
            os.kill(pid, signal.SIGCONT)
    return ports[victim]


async def _replaced(server: Gateway) -> bool:
    """Whether there are as many workers as before, and all of them have callers."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            workers = server.workers
            if len(workers) == WORKERS and all(_callers_of(pid, server.port) for pid in workers):
                return True
        await asyncio.sleep(0.02)
    return False


def _callers_of(pid: int, port: int) -> set[int]:
    """The ports on the other side of the connections that this process has on this port."""
    inodes: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(link.readlink()))
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {
        int(row[2].split(":")[1], 16)
        for row in rows
        if int(row[1].split(":")[1], 16) == port
        and row[3] == _ESTABLISHED
        and f"socket:[{row[9]}]" in inodes
    }


async def _books(path: Path) -> dict[str, int]:
    """What is in the ledger when every lease is over."""
    ledger = await Ledger.open(path, clock=lambda: time.time() + _LATER_S)
    async with contextlib.aclosing(ledger):
        swept = await ledger.sweep()
        kinds = Counter([entry.kind async for entry in ledger.entries()])
        held = sum(each.held_nanos for each in await ledger.balances())
        return {
            "expired": len(swept.expired),
            "charged": kinds["settle"] + kinds["expire"],
            "held_nanos": held,
            "differences": len(await ledger.verify()),
        }
