"""What operators do in `gateway_load.py` while callers ask: a new configuration, and an end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from _gateway_load_client import REFUSED, RESET, RIGHT, Caller, Crowd, Outcome
from _gateway_load_faults import PATIENCE_S
from _gateway_load_gateway import Gateway, Plan, gateway, key_of, of_load, upstreams
from _support import Claim

_NO_KEY, _NO_MODEL, _NO_MONEY = "401", "404", "429"
_SPARE = 10**8
_RELOADED = '"message":"reloaded '
_CYCLE = 3
"""Every so many configurations, one has no money for its key, and one cannot be read at all."""


async def reload(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """Another configuration again and again: models, budgets and keys come and go."""
    times = 6 if quick else 60
    found: dict[str, Any] = {}
    claims: list[Claim] = []
    for workers in (1,) if quick else (1, 2):
        place = folder / str(workers)
        place.mkdir()
        some, more = await _reload(place, times, workers)
        found |= {f"{key}, workers {workers}": value for key, value in some.items()}
        claims += [each._replace(said=f"{each.said} (workers = {workers})") for each in more]
    return found, claims


async def _reload(folder: Path, times: int, workers: int) -> tuple[dict[str, Any], list[Claim]]:
    with upstreams(1) as (upstream,), gateway(folder, Plan((upstream.port,)), workers) as server:
        crowd = Crowd(server.port)
        crowd.add(8, of_load(pause_ms=20), keeps=True)
        crowd.add(4, of_load(pause_ms=20))
        crowd.add(8, of_load(pieces=40, pause_ms=50, stream=True))
        unheld: list[str] = []
        # The parent of several workers reads the file too.
        before, read, processes = 0, 0, workers + 1 if workers > 1 else 1
        for number in range(1, times + 1):
            if number % _CYCLE == 0:
                (folder / "penstock.toml").write_text("[models.load]\ntargets = 7\n")
                unheld += await _refused(server, number)
                unheld += await _holds(server, before, _NO_MONEY)
                continue
            rich = number % _CYCLE == 1
            server.configure(_plan(upstream.port, number, rich=rich))
            said = RIGHT if rich else _NO_MONEY
            read += processes
            unheld += await _takes_hold(server, number, said, read)
            unheld += await _holds(server, number, said, before)
            before = number
        # A file that can be read, for the command that comes after.
        server.configure(_plan(upstream.port, 0, rich=True))
        unheld += await _takes_hold(server, 0, RIGHT, read + processes)
        await crowd.stop()
        code = server.stop()
        complaints = [line for line in server.complaints() if "not reloaded" not in line]
        verified = server.command("budget", "verify")
    lost = [each for each in crowd.outcomes if each.what != RIGHT]
    found = {
        "configurations": times,
        "requests": len(crowd.outcomes),
        "outcomes": dict(crowd.counted()),
        "lost": len(lost),
        "configurations that did not hold": len(unheld),
        "exit_code": code,
        "shown": [f"{each.what}: {each.shown}" for each in lost[:5]] + unheld[:5] + complaints[:5],
    }
    return found, [
        Claim("requests that failed and streams that were cut", len(lost), 0),
        Claim("configurations that did not hold", len(unheld), 0),
        Claim("the ledger does not add up", verified.returncode, 0),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]


def _plan(port: int, number: int, *, rich: bool) -> Plan:
    """A model and a key of this number, beside those that all have."""
    return Plan(
        (port,),
        models=("load", f"m{number}"),
        keys=(("load", _SPARE), (f"k{number}", _SPARE)),
        budgets=(("total", 1e6), (f"b{number}", 1e6 + number)),
        more="" if rich else f'[budgets.none]\nlimit_usd = 0.0\nkey = "k{number}"\n',
    )


async def _ask(server: Gateway, model: str, key: str) -> Outcome:
    """On a connection of its own, which any worker may get."""
    caller = Caller(server.port)
    with contextlib.closing(caller):
        return await caller.ask(of_load(model=model, key=key_of(key)))


async def _takes_hold(server: Gateway, number: int, what: str, lines: int) -> list[str]:
    """Whether all processes have read it, and what is said to its key about its model."""
    until = time.monotonic() + PATIENCE_S
    while server.said().count(_RELOADED) < lines:
        if time.monotonic() > until:
            return [f"{number} is not read"]
        await asyncio.sleep(0.02)
    return await _holds(server, number, what)


async def _holds(server: Gateway, number: int, said: str, gone: int | None = None) -> list[str]:
    """What is not as this configuration says: what is there, and what is there no more."""
    asked = [("load", "load", RIGHT), (f"m{number}", f"k{number}", said)]
    if gone:
        asked += [(f"m{gone}", "load", _NO_MODEL), ("load", f"k{gone}", _NO_KEY)]
    found = [(await _ask(server, model, key), model, key, what) for model, key, what in asked]
    return [
        f"{model} with {key} is {outcome.what}, not {what}: {outcome.shown}"
        for outcome, model, key, what in found
        if outcome.what != what
    ]


async def _refused(server: Gateway, number: int) -> list[str]:
    """Whether a file that cannot be used is refused in so many words."""
    said = server.said().count("not reloaded")
    server.tell()
    until = time.monotonic() + PATIENCE_S
    while server.said().count("not reloaded") == said:
        if time.monotonic() > until:
            return [f"the file of {number} is not refused"]
        await asyncio.sleep(0.02)
    return []


async def stop(folder: Path, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    """SIGTERM under load: who was let in is answered, and then it ends well."""
    found: dict[str, Any] = {}
    claims: list[Claim] = []
    for workers in (1,) if quick else (1, 4):
        for turn in range(1 if quick else 10):
            place = folder / f"{workers}-{turn}"
            place.mkdir()
            some, more = await _stop(place, workers)
            for key, value in some.items():
                name = f"{key}, workers {workers}"
                found[name] = found[name] + value if name in found else value
            claims += [each._replace(said=f"{each.said} (workers = {workers})") for each in more]
    return found, claims


async def _stop(folder: Path, workers: int) -> tuple[dict[str, Any], list[Claim]]:
    with upstreams(1) as (upstream,), gateway(folder, Plan((upstream.port,)), workers) as server:
        crowd = Crowd(server.port)
        crowd.add(8, of_load(pause_ms=150), keeps=True, gives_up=True)
        crowd.add(8, of_load(pause_ms=150), gives_up=True)
        crowd.add(8, of_load(), keeps=True, gives_up=True)
        crowd.add(8, of_load(), gives_up=True)
        crowd.add(32, of_load(pieces=30, pause_ms=50, stream=True), gives_up=True)
        await asyncio.sleep(1.0)
        told = time.perf_counter()
        code = await asyncio.to_thread(server.stop)
        await crowd.stop()
        seen = set(await upstream.asked_for())
        complaints = server.complaints()
        verified = server.command("budget", "verify")
    failed = [each for each in crowd.outcomes if each.what != RIGHT]
    # Too late to be let in: nothing was done for them, so they may ask elsewhere.
    late = [
        each
        for each in failed
        if each.what in (REFUSED, RESET) and each.name not in seen and each.ended >= told
    ]
    lost = [each for each in failed if each not in late]
    running = sum(each.began < told < each.ended for each in crowd.outcomes if each.what == RIGHT)
    found = {
        "requests": len(crowd.outcomes),
        "answered though told to stop": running,
        "turned away": len(late),
        "of these before they could know": sum(each.began < told for each in late),
        "lost": len(lost),
        "shown": [f"{each.what}: {each.shown}" for each in lost[:5]] + complaints[:5],
    }
    return found, [
        Claim("requests that were let in and not answered", len(lost), 0),
        Claim("ends at which nobody was being answered", int(running == 0), 0),
        Claim("the ledger does not add up", verified.returncode, 0),
        Claim("errors in the log", len(complaints), 0),
        Claim("exit code", code, 0),
    ]
