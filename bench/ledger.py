"""What a reservation and a settlement cost, in one process and in four, beside a bare INSERT.

Run: python bench/ledger.py [--quick] [--json]

A request is a hold against two budgets and its settlement: two entries, two commits to wait for.
One process runs 64 requests at a time; four processes share one file and run 16 each. The floor is
one thread that inserts the same two rows into a table of the same form, 64 requests in two
transactions, without an event loop, a balance or a judgement. All are measured by turns on files
with so many past entries, in WAL mode with `synchronous = normal`; `full` is measured on the file
with the shortest past. Shown are the medians of the rounds. The last lines compare the longest past
with the shortest, by CPU time, which other work on the machine disturbs least, and by the clock; a
growth above 20 % is pointed out. The files take some 5 GB of disk while it runs.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from _support import ROOT, Arguments, parse_arguments, print_table

sys.path.insert(0, str(ROOT / "src"))

from penstock.budget.entries import Charge
from penstock.budget.ledger import Ledger
from penstock.budget.rules import Budget
from penstock.budget.stores.sqlite.transaction import COLUMNS
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.storage.sqlite.connect import Synchronous, connect, patiently

TARGET = Target("provider", "model-large")
CHARGE = Charge(TARGET, Usage(1200, 300, 100, 0, 50), 4_500_000, "genai-prices")
HELD = 9_000_000
AT_ONCE = 64
PROCESSES = 4
GROWTH = 1.2
TWIN = "bench_entries"
"""The floor's table: of the same form and length as the entries."""
POSTINGS = "[[1,0,0,9000000],[2,1790000000,0,9000000]]"
USED = (1200, 300, 100, 0, 50, "genai-prices")
_COMMON = "kind, at, request_id, key, provider, model, amount_nanos, estimated, postings"
_SETTLED = (
    f"{_COMMON}, hold, held_at, input_tokens, output_tokens, cached_tokens, cache_write_tokens, "
    "reasoning_tokens, price_source"
)
INSERTS = {
    kind: f"INSERT INTO {TWIN} ({columns}) VALUES ({', '.join('?' * (columns.count(',') + 1))})"
    for kind, columns in (("hold", _COMMON), ("settle", _SETTLED))
}


def make_file(path: Path, past: int) -> None:
    """A ledger with so many entries of past requests, which add up."""

    async def budgets() -> None:
        async with await Ledger.open(path) as ledger:
            await ledger.set_budget(Budget(name="total", limit_nanos=10**18, period="forever"))
            provider = TARGET.provider
            await ledger.set_budget(Budget(name="one", limit_nanos=10**18, provider=provider))

    asyncio.run(budgets())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        execute = connection.execute
        execute("PRAGMA synchronous = off")
        (schema,) = execute(
            "SELECT sql FROM sqlite_master WHERE name = 'ledger_entries'"
        ).fetchone()
        execute(schema.replace("ledger_entries", TWIN))
        execute("BEGIN")
        execute(
            f"""
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
            INSERT INTO ledger_entries ({COLUMNS})
            SELECT i, iif(i % 2, 'hold', 'settle'), ?2 - (?1 - i) * 0.5,
                'request-' || hex(i * 7919), 'key-' || (i / 2 % 50), 'provider', 'model-large',
                iif(i % 2, NULL, 1200), iif(i % 2, NULL, 300), iif(i % 2, NULL, 100),
                iif(i % 2, NULL, 0), iif(i % 2, NULL, 50), NULL,
                iif(i % 2, NULL, 'genai-prices'), iif(i % 2, 9000000, 4500000), i % 2,
                iif(i % 2, NULL, i - 1), NULL, NULL, NULL, NULL,
                iif(i % 2, '[[1,0,0,9000000]]', '[[1,0,4500000,-9000000]]')
            FROM n
            """,
            (past, time.time()),
        )
        execute(
            "INSERT INTO ledger_hours SELECT min(id), CAST(at / 3600 AS INTEGER) AS hour "
            "FROM ledger_entries GROUP BY hour ORDER BY 1"
        )
        execute(f"INSERT INTO {TWIN} SELECT * FROM ledger_entries")
        execute("INSERT INTO ledger_balances VALUES (1, 0, ?, 0, -1)", (past // 2 * 4_500_000,))
        execute("COMMIT")
        execute("PRAGMA wal_checkpoint(TRUNCATE)")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def run_ledger(
    path: Path, requests: int, at_once: int, synchronous: Synchronous = "normal"
) -> dict[str, Any]:
    """So many requests, so many at a time; each one is a reserve and a settle."""
    waits: list[float] = []
    left = iter(range(requests))

    async def caller(ledger: Ledger) -> None:
        for number in left:
            began = time.perf_counter()
            hold = await ledger.reserve(f"request-{number}", [(TARGET, HELD)], key="key-1")
            held = time.perf_counter()
            await ledger.settle(hold, [CHARGE])
            waits.extend((held - began, time.perf_counter() - held))

    async with await Ledger.open(path, synchronous=synchronous) as ledger:
        wait_for_the_others()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller(ledger) for _ in range(at_once)))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu / requests, "waits": waits}


def run_floor(path: Path, requests: int, at_once: int) -> dict[str, Any]:
    """The same rows, as many to a transaction as requests run at once."""
    waits: list[float] = []
    with closing(connect(path, "normal")) as connection:
        wait_for_the_others()
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, requests, at_once):
            numbers = range(start, min(start + at_once, requests))
            for kind in ("hold", "settle"):
                asked = time.perf_counter()
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                rows = [floor_row(kind, number) for number in numbers]
                connection.executemany(INSERTS[kind], rows)
                connection.execute("COMMIT")
                waits.extend([time.perf_counter() - asked] * len(rows))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu / requests, "waits": waits}


def floor_row(kind: str, number: int) -> tuple[object, ...]:
    now = time.time()
    common = (kind, now, f"request-{number}", "key-1", "provider", "model-large", HELD, 1, POSTINGS)
    return common if kind == "hold" else (*common, number, now, *USED)


def wait_for_the_others() -> None:
    """In a process that is one of several: begin when all are ready."""
    if len(sys.argv) > 1 and sys.argv[1] == "--process":
        print("ready", flush=True)
        sys.stdin.readline()


def process_main(kind: str, path: str, requests: str) -> None:
    at_once = AT_ONCE // PROCESSES
    if kind == "floor":
        result = run_floor(Path(path), int(requests), at_once)
    else:
        result = asyncio.run(run_ledger(Path(path), int(requests), at_once))
    print(json.dumps(result))


def run_processes(kind: str, path: Path, requests: int) -> dict[str, Any]:
    """The same number of requests, shared by four processes."""
    each = str(requests // PROCESSES)
    command = [sys.executable, __file__, "--process", kind, str(path), each]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate()[0]) for process in processes]
    return {
        "seconds": max(answer["seconds"] for answer in answers),
        "cpu": statistics.mean(answer["cpu"] for answer in answers),
        "waits": [wait for answer in answers for wait in answer["waits"]],
    }


def measure(arguments: Arguments, folder: Path) -> list[dict[str, Any]]:
    pasts = (1_000, 20_000) if arguments.quick else (1_000, 1_000_000, 10_000_000)
    requests, rounds = (400, 1) if arguments.quick else (8_000, 7)
    files = {past: folder / f"{past}.db" for past in pasts}
    for past, path in files.items():
        print(f"making {past:,} entries", file=sys.stderr)
        make_file(path, past)
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for turn in range(-1, rounds):
        for past, path in list(files.items())[:: 1 if turn % 2 else -1]:
            found = {
                "one process": asyncio.run(run_ledger(path, requests, AT_ONCE)),
                "four processes": run_processes("ledger", path, requests),
                "floor, one": run_floor(path, requests, AT_ONCE),
                "floor, four": run_processes("floor", path, requests),
            }
            if past == pasts[0]:
                found["one process, full"] = asyncio.run(
                    run_ledger(path, requests, AT_ONCE, "full")
                )
            # One round before the first is not counted.
            for what, result in found.items() if turn >= 0 else ():
                runs.setdefault((what, past), []).append(result)
    check(files[pasts[0]])
    return [row(what, past, results, requests, runs) for (what, past), results in runs.items()]


def row(
    what: str,
    past: int,
    results: list[dict[str, Any]],
    requests: int,
    runs: dict[tuple[str, int], list[dict[str, Any]]],
) -> dict[str, Any]:
    floors = runs["floor, four" if "four" in what else "floor, one", past]

    def median(of: list[dict[str, Any]], name: str) -> float:
        return statistics.median(each[name] for each in of)

    return {
        "what": what,
        "past": past,
        "requests_per_second": round(requests / median(results, "seconds")),
        "cpu_us": median(results, "cpu") * 1e6,
        "p50_ms": statistics.median(percentile(each["waits"], 0.5) for each in results) * 1e3,
        "p99_ms": statistics.median(percentile(each["waits"], 0.99) for each in results) * 1e3,
        "times_the_floor": median(results, "seconds") / median(floors, "seconds"),
        "cpu_times_the_floor": median(results, "cpu") / median(floors, "cpu"),
    }


def check(path: Path) -> None:
    """After all that, the ledger adds up."""

    async def verify() -> Sequence[object]:
        async with await Ledger.open(path) as ledger:
            return await ledger.verify()

    differences = asyncio.run(verify())
    if differences:
        sys.exit(f"the ledger does not add up: {differences}")


def growths(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By how much a request grows from the shortest past to the longest."""
    found: dict[str, dict[str, float]] = {}
    for what in ("one process", "four processes", "floor, one", "floor, four"):
        own = [each for each in rows if each["what"] == what]
        first, last = own[0], own[-1]
        found[what] = {
            "cpu": last["cpu_us"] / first["cpu_us"],
            "time": first["requests_per_second"] / last["requests_per_second"],
        }
    return found


def main() -> None:
    arguments = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        rows = sorted(measure(arguments, Path(folder)), key=lambda one: (one["what"], one["past"]))
    growth = growths(rows)
    if arguments.json:
        print(json.dumps({"rows": rows, "growth": growth}))
        return
    print_table(
        ["", "past entries", "requests/s", "CPU us", "p50 ms", "p99 ms", "x floor", "x floor CPU"],
        [list(one.values()) for one in rows],
    )
    for what, factors in growth.items():
        verdict = ": above 1.2" if max(factors.values()) > GROWTH else ""
        print(
            f"{what}, longest past against shortest: {factors['cpu']:.2f} times the CPU, "
            f"{factors['time']:.2f} times the time{verdict}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--process":
        process_main(*sys.argv[2:])
    else:
        main()
