"""What the gateway costs, beside other gateways and beside proxies that only pass bytes on.

Run: python bench/gateway.py [--quick] [--json] [--only NAME,NAME]

Every server has one worker, pinned to one core; the load and the upstream, which has its answers
ready, share the other. The gateway has its ledger, a hard budget, keys, breaker, counters and its
log of requests, in a file, turned on; the others have nothing of the kind. The rounds go by turns,
and the median of each figure is shown. Every answer is checked before it counts.

CPU milliseconds are those of the server's processes, read from /proc; they are what other work on
the machine disturbs least. "Added" is the time above that of the upstream asked directly in the
same round. Streams have 100 chunks, which the upstream writes at once.

The peers are fetched by the bench: LiteLLM's proxy, TensorZero's gateway and granian from a package
index, Portkey's gateway from npm, nginx from Debian. With `--quick` only what needs no fetching
runs, once and briefly: its figures say nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _gateway_load import Job
from _gateway_own import ledger_candidates, sized_candidates
from _gateway_servers import CANDIDATES, FLOORS, Candidate, Missing, Running, direct, running
from _gateway_tables import show
from _support import make_parser
from asgi_servers import cpu_seconds, on_core

LOAD = Path(__file__).with_name("_gateway_load.py")
WIDTHS = (1, 32, 256)
CHUNKS = 100
LEDGER_ROUNDS = 40


class Plan(NamedTuple):
    """How long things take."""

    rounds: int
    seconds: float
    requests: int
    """Before memory is looked at, and once more before it is looked at again."""
    patience_s: float
    """A server that is too slow for so many requests gets as many as it can answer in this time."""


FULL = Plan(rounds=3, seconds=3.0, requests=20_000, patience_s=40.0)
QUICK = Plan(rounds=1, seconds=0.3, requests=100, patience_s=5.0)


@contextlib.contextmanager
def upstream() -> Generator[int, None, None]:
    """The port of what all of them call."""
    command = on_core(1, sys.executable, str(FLOORS), "upstream")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def measure(server: Running, job: Job) -> dict[str, float]:
    """One run of the load, with the CPU time that it took of the server."""
    before = cpu_seconds(server.pid) if server.pid else 0.0
    words = (sys.executable, str(LOAD), json.dumps(job))
    done = subprocess.run(on_core(1, *words), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{server.candidate.name} failed")
    found = json.loads(done.stdout)
    spent = (cpu_seconds(server.pid) if server.pid else 0.0) - before
    return {
        **found,
        "per_s": found["answers"] / found["seconds"],
        "cpu_ms": spent / found["answers"] * 1e3,
    }


def resident_mb(pid: int) -> float:
    """The memory of the process and its children."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(resident_mb(int(child)) for child in children)


def one_round(candidate: Candidate, port: int, plan: Plan, *, memory: bool) -> dict[str, float]:
    """All figures of one server, which is started for it."""
    with tempfile.TemporaryDirectory() as name, running(candidate, Path(name), port) as server:
        figures = {"cold_start_s": server.cold_start_s, "idle_mb": resident_mb(server.pid)}
        above = direct(port, Path(name))
        measure(server, server.job(8, plan.seconds / 3))
        for width in WIDTHS:
            found = measure(server, server.job(width, plan.seconds))
            figures |= {f"per_s_{width}": found["per_s"], f"cpu_ms_{width}": found["cpu_ms"]}
            if width == 1:
                base = measure(above, above.job(1, plan.seconds / 3))
                for share in ("p50", "p99"):
                    figures[f"added_{share}_ms"] = found[f"{share}_ms"] - base[f"{share}_ms"]
        found = measure(server, server.job(1, plan.seconds, stream=True))
        base = measure(above, above.job(1, plan.seconds / 3, stream=True))
        figures["first_byte_added_ms"] = found["first_p50_ms"] - base["first_p50_ms"]
        found = measure(server, server.job(32, plan.seconds, stream=True))
        figures |= {
            "streams_per_s": found["per_s"],
            "chunks_per_s": found["per_s"] * CHUNKS,
            "cpu_ms_stream": found["cpu_ms"],
        }
        if memory:
            figures |= memory_of(server, plan)
    return figures


def memory_of(server: Running, plan: Plan) -> dict[str, float]:
    """After so many requests, and after as many again."""
    figures: dict[str, float] = {}
    for when in ("loaded", "later"):
        found = measure(server, server.job(32, plan.patience_s, plan.requests))
        figures |= {f"{when}_mb": resident_mb(server.pid), f"{when}_requests": found["answers"]}
    return figures


def ledger_share(port: int, rounds: int, seconds: float) -> dict[str, float]:
    """CPU milliseconds a request with and without, the ledger's share, and its standard error.

    The same program started twice differs by more than the ledger costs; so there are many rounds,
    and the mean of their differences counts.
    """
    having, lacking = _turns(ledger_candidates(), port, rounds, seconds).values()
    shares = [1 - bare / whole for whole, bare in zip(having, lacking, strict=True)]
    return {
        "with": statistics.mean(having),
        "without": statistics.mean(lacking),
        "share": statistics.mean(shares),
        "error": statistics.stdev(shares) / len(shares) ** 0.5 if rounds > 1 else 0.0,
    }


def by_turns(
    candidates: Mapping[str, Candidate], port: int, rounds: int, seconds: float
) -> dict[str, float]:
    """CPU milliseconds a request of each, with 32 connections."""
    found = _turns(candidates, port, rounds, seconds)
    return {name: statistics.median(each) for name, each in found.items()}


def _turns(
    candidates: Mapping[str, Candidate], port: int, rounds: int, seconds: float
) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name in list(candidates)[:: -1 if turn % 2 else 1]:
            with (
                tempfile.TemporaryDirectory() as folder,
                running(candidates[name], Path(folder), port) as server,
            ):
                measure(server, server.job(8, seconds / 3))
                taken[name].append(measure(server, server.job(32, seconds))["cpu_ms"])
    return taken


def compare(
    candidates: Sequence[Candidate], port: int, plan: Plan
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """The figures of each, and why there are none of some."""
    taken: dict[str, list[dict[str, float]]] = {}
    missing: dict[str, str] = {}
    for turn in range(plan.rounds):
        for candidate in candidates[:: -1 if turn % 2 else 1]:
            if candidate.name in missing:
                continue
            print(f"round {turn + 1}: {candidate.name}", file=sys.stderr)
            try:
                found = one_round(candidate, port, plan, memory=turn == 0)
            except Missing as why:
                missing[candidate.name] = str(why)
            else:
                taken.setdefault(candidate.name, []).append(found)
    figures = {each.name: _medians(taken[each.name]) for each in candidates if each.name in taken}
    return figures, missing


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {
        key: statistics.median(each[key] for each in rounds if key in each) for key in rounds[0]
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", help="run only the servers whose names contain one of these")
    arguments = parser.parse_args()
    plan = QUICK if arguments.quick else FULL
    wanted = str(arguments.only or "").lower().split(",")
    chosen = [
        each
        for each in CANDIDATES
        if any(part in each.name.lower() for part in wanted)
        and not (arguments.quick and each.installs)
    ]
    result: dict[str, Any] = {}
    with upstream() as port, tempfile.TemporaryDirectory() as folder:
        result["servers"], result["missing"] = compare(chosen, port, plan)
        if any(each.name == "Penstock" for each in chosen):
            turns = plan.rounds + 2 if not arguments.quick else 1
            rounds = 1 if arguments.quick else LEDGER_ROUNDS
            result["ledger"] = ledger_share(port, rounds, min(2.0, plan.seconds))
            sized = sized_candidates(Path(folder), quick=arguments.quick)
            result["flat"] = by_turns(sized, port, turns, plan.seconds)
    result["load_average"] = os.getloadavg()[0]
    print(json.dumps(result)) if arguments.json else show(result)


if __name__ == "__main__":
    main()
