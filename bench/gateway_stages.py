"""Where the time of one request goes in the gateway, stage by stage, with 32 connections.

Run: python bench/gateway_stages.py [--quick] [--json]

The gateway of `gateway.py`, with everything turned on, runs under Python's profiler. Shown is how
the time of its own thread is shared out, without the wait for sockets; the thread of the ledger is
not in it. The profiler makes many small calls look dearer than few large ones, so the shares are
good for comparison with one another; `gateway.py` measures times.
"""

from __future__ import annotations

import pstats
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _gateway_servers import PENSTOCK, Place, Start, running
from _support import hand_over, parse_arguments, print_table
from gateway import measure, upstream

CONNECTIONS = 32
PLACES: Mapping[str, tuple[str, str]] = {
    "app": ("server/dispatch.py", "__call__"),
    "call": ("engine/sampling.py", "create_message"),
    "run": ("pipeline/pipeline.py", "run"),
    "reserve": ("pipeline/hold.py", "__aenter__"),
    "settle": ("pipeline/hold.py", "__aexit__"),
    "gather": ("sqlite/writer.py", "_wait_for_company"),
    "deliver": ("sqlite/writer.py", "_wake"),
    "tell": ("pipeline/scope.py", "result"),
    "pool": ("pool/failover.py", "generate"),
    "wire": ("providers/http_provider.py", "generate"),
    "client": ("providers/http/transport.py", "request"),
    "received": ("providers/http/connection.py", "data_received"),
}
"""Functions whose time is known with all that they call."""


def profiled(folder: Path, requests: int) -> pstats.Stats:
    file = folder / "profile"

    def start(place: Place) -> Start:
        begun = PENSTOCK.start(place)
        python, *words = begun.command
        return begun._replace(command=[python, "-m", "cProfile", "-o", str(file), *words])

    with upstream() as port, running(PENSTOCK._replace(start=start), folder, port) as server:
        measure(server, server.job(CONNECTIONS, 120.0, requests))
    return pstats.Stats(str(file))


def shares(stats: pstats.Stats) -> dict[str, float]:
    rows: Mapping[tuple[str, int, str], tuple[Any, ...]] = vars(stats)["stats"]
    spent = dict.fromkeys(PLACES, 0.0)
    serving = 0.0
    for (file, _, name), row in rows.items():
        for place, (ending, function) in PLACES.items():
            if file.endswith(ending) and name == function:
                spent[place] += row[3]
        if file.endswith("httptools_impl.py") and name in ("data_received", "run_asgi"):
            serving += row[3]
    of = spent
    total = serving + of["gather"] + of["deliver"] + of["received"]
    ledger = of["reserve"] + of["settle"] + of["gather"] + of["deliver"]
    stages = {
        "HTTP server (uvicorn, httptools)": serving - of["app"],
        "key, decode, encode, answer": of["app"] - of["call"],
        "request id, registration": of["call"] - of["run"],
        "validate, route, meter": of["run"]
        - (of["reserve"] + of["settle"] + of["tell"] + of["pool"]),
        "worst case, hold and settlement": ledger,
        "records, counters, request log": of["tell"],
        "tickets, breaker, places": of["pool"] - of["wire"],
        "encode and decode for the provider": of["wire"] - of["client"],
        "HTTP client and time-outs": of["client"] + of["received"],
    }
    return {name: each / total for name, each in stages.items()}


def main() -> None:
    arguments = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        found = shares(profiled(Path(folder), 300 if arguments.quick else 6000))
    if arguments.json:
        hand_over(found)
        return
    print_table(["stage", "share"], [[name, f"{share:.0%}"] for name, share in found.items()])


if __name__ == "__main__":
    sys.exit(main())
