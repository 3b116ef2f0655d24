"""The gateway under load, and what is lost when something goes wrong meanwhile.

Run: python bench/gateway_load.py [--quick] [--json] [--only NAME,NAME]

streams: 5,000 open streams on one worker for a minute, with a piece each now and then.
outage:  the first of two providers dies under load, and comes back.
kill:    one of four workers dies under load.
reload:  another configuration again and again, under load.
stop:    the gateway is told to stop, under load.
soak:    mixed traffic for some minutes, and the memory of it.

Real processes on loopback: `penstock serve` with its ledger, a hard budget, keys and its log, and
a provider that says what each request asks for, so that every answer is judged piece by piece. The
command fails when anything is lost, cut, wrong or left behind; it judges no time. With `--quick`
there is less of everything.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop
from _gateway_load_changes import reload, stop
from _gateway_load_faults import kill, outage
from _gateway_load_steady import soak, streams
from _support import Claim, end_by, make_parser, print_table

from penstock.server.http.listening import allow_open_files

Scenario = Callable[..., Awaitable[tuple[dict[str, Any], list[Claim]]]]
SCENARIOS: Mapping[str, Scenario] = {
    "streams": streams,
    "outage": outage,
    "kill": kill,
    "reload": reload,
    "stop": stop,
    "soak": soak,
}


async def run(name: str, *, quick: bool) -> tuple[dict[str, Any], list[Claim]]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found, claims = await SCENARIOS[name](Path(folder), quick=quick)
    found["seconds"] = time.perf_counter() - began
    return found, [claim._replace(said=f"{name}: {claim.said}") for claim in claims]


def show(result: Mapping[str, Mapping[str, Any]], claims: list[Claim]) -> None:
    for name, found in result.items():
        print(f"\n{name}")
        print_table(["", "found"], [[key, _cell(value)] for key, value in found.items()])
    print()
    print_table(["claim", "found", "allowed"], [[*claim] for claim in claims])


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--only", help=f"run only these: {', '.join(SCENARIOS)}")
    arguments = parser.parse_args()
    wanted = str(arguments.only).split(",") if arguments.only else list(SCENARIOS)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: choose from {', '.join(SCENARIOS)}")
    allow_open_files()
    # That requests of a killed worker were never settled is no news here.
    logging.getLogger("penstock").setLevel(logging.ERROR)
    result: dict[str, dict[str, Any]] = {}
    claims: list[Claim] = []
    for name in wanted:
        print(f"{name} ...", file=sys.stderr)
        result[name], found = uvloop.run(run(name, quick=arguments.quick))
        claims += found
    if arguments.json:
        print(json.dumps(result | {"load_average": os.getloadavg()[0]}))
    else:
        show(result, claims)
    end_by(claims)


if __name__ == "__main__":
    main()
