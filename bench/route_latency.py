"""What a routing decision costs, by how much has been learnt, and what recording an outcome does.

Run: python bench/route_latency.py [--quick] [--json]

Ten targets; microseconds of CPU time, so that other programs do not count: of one decision from the
features on; of the whole way from a request to its ranked targets with their explanation, as an
engine goes it (`rank`: features of the prompt, forecasts, decision, reasons); and of taking in one
labelled outcome of a new prompt. One outcome in ten has a label, as few have where people give
them. Prompts have the sizes of those in public sets, and none comes twice, so no cache helps.

The floor, in the same run and by turns with what it is the floor of, is a single product of a full
memory's matrix with the prompt's vector: no search that compares everything in full does less.
Other programs empty the caches of a core and share its memory, which shows in the floor as well:
the ratios hold where the times do not, and by how much the floor's 99th percentile is above its
median is the noise of the machine. It uses one thread.

A long prompt, of 400 kB for targets that take 128,000 tokens, is ranked beside one count of its
tokens: they are counted for whether it fits, and for what it costs, and not for each target.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import platform
import sys
import tempfile
import time
import tracemalloc
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from _route_path import TARGETS, learning_with, prompts, request, table_with
from _support import Claim, end_by, make_parser, print_table
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from penstock.contract.ports import RouteDecision
from penstock.providers.embedded.embeddings import TableEmbedder
from penstock.routing.learning.features import SIZE, FeatureMaker
from penstock.routing.learning.neighbours import CAPACITY
from penstock.routing.learning.router import LearnedRouter, RoutingSettings
from penstock.routing.outcomes.outcome import Outcome, Quality
from penstock.routing.router import TargetTable
from penstock.tokens import estimate_request

MEASURED = ("floor", "decide", "rank", "learn")
LONG, WINDOW = 400_000, 128_000
"""Characters of a long prompt, and the tokens that a target takes."""
LABELLED = 10
"""One outcome in so many has a label."""
Vectors = Iterator[NDArray[np.float32]]
Row = dict[str, float]


class Result(TypedDict):
    """What is printed as JSON."""

    python: str
    rows: list[Row]
    features_us: dict[str, tuple[float, float]]
    memory_bytes: int
    memory_bytes_an_outcome: float
    long_rank_counts: float
    """How many times as long as one count of its tokens it takes to rank a long prompt."""


def outcome(features: NDArray[np.float32], number: int, *, labelled: bool = True) -> Outcome:
    return Outcome(
        target=TARGETS[number % len(TARGETS)],
        features=features,
        prompt_tokens=100 + number % 400,
        quality=Quality(float(number % 3 > 0)) if labelled else None,
        cost_usd=0.001,
        latency_ms=800.0,
        output_tokens=200,
    )


class Taken(NamedTuple):
    """Microseconds: the median, and what 99 of 100 stay below."""

    middle: float
    high: float


async def percentiles(
    run: dict[str, Callable[[int], Awaitable[object] | object]], times: int
) -> dict[str, Taken]:
    """What each takes, by turns, called with the number of its input."""
    clock = time.thread_time
    taken: dict[str, list[float]] = {name: [] for name in run}
    for number in range(times):
        for name, each in run.items():
            start = clock()
            made = each(number)
            if inspect.isawaitable(made):
                await made
            taken[name].append(1e6 * (clock() - start))
        await asyncio.sleep(0)
    return {name: Taken(*np.percentile(each, [50, 99]).tolist()) for name, each in taken.items()}


def record(router: LearnedRouter, number: int, size: int, fresh: Vectors) -> None:
    """Let the router take in outcomes until there are so many."""
    nothing = np.zeros(0, np.float32)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{size:,} outcomes", total=size, completed=number)
        for each in range(number, size):
            labelled = each % LABELLED == 0
            router.learn(outcome(next(fresh) if labelled else nothing, each, labelled=labelled))
            if each % 1_000 == 0:
                progress.update(task, completed=each)


def memory_of_a_full_router(fresh: Vectors) -> int:
    """Bytes; outcomes beyond its capacity take no more."""
    router = LearnedRouter(FeatureMaker(), RoutingSettings(in_force=True, seed=1))
    given = [next(fresh) for _ in range(CAPACITY)]
    tracemalloc.start()
    for number, vector in enumerate(given):
        router.learn(outcome(vector, number))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken


async def counts_of_a_long_prompt(table: TargetTable, times: int) -> float:
    """How many times as long as one count of its tokens the ranking takes."""
    text = " ".join(text for text, _ in zip(prompts(7), range(LONG // 300), strict=False))[:LONG]
    long = request(text)
    found = await percentiles(
        {
            "count": lambda number: estimate_request(long, TARGETS[0].model),
            "rank": lambda number: table.rank(long, request_id=f"long-{number}"),
        },
        times,
    )
    return found["rank"].middle / found["count"].middle


async def measured(sizes: list[int], times: int, folder: Path) -> Result:
    maker = FeatureMaker(TableEmbedder())
    fresh = (maker.vector(text) for text in prompts(1))
    router = LearnedRouter(maker, RoutingSettings(in_force=True, seed=1))
    learning = learning_with(router, maker, folder)
    table, kept = table_with(learning), deque[RouteDecision](maxlen=1_000)
    tending = asyncio.create_task(learning.tend())
    memory = memory_of_a_full_router(fresh)
    matrix = np.random.default_rng(3).standard_normal((CAPACITY, SIZE), np.float32)
    rows: list[Row] = []
    recorded = 0
    for size in sizes:
        record(router, recorded, size, fresh)
        asked = [next(fresh) for _ in range(times)]
        requests = [request(text) for text, _ in zip(prompts(size + 2), asked, strict=False)]
        new = [outcome(next(fresh), number) for number in range(times // 3)]
        found = await percentiles(
            {
                "floor": lambda number, asked=asked: matrix @ asked[number],
                "decide": lambda number, asked=asked: router.decide(asked[number], 100, TARGETS),
                "rank": lambda number, requests=requests: table.rank(
                    requests[number], request_id=f"request-{number}", told=kept.append
                ),
            },
            times,
        )
        found |= await percentiles(
            {"learn": lambda number, new=new: router.learn(new[number])}, len(new)
        )
        row: Row = {"outcomes": float(size)}
        for name, (middle, high) in found.items():
            row |= {f"{name}_p50_us": middle, f"{name}_p99_us": high}
        row |= {f"{n}_floors": row[f"{n}_p50_us"] / row["floor_p50_us"] for n in MEASURED[1:]}
        row["floor_noise"] = row["floor_p99_us"] / row["floor_p50_us"]
        rows.append(row)
        recorded = size + times // 3
    counts = await counts_of_a_long_prompt(table_with(learning, WINDOW), times // 30)
    tending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tending
    makers = {"with the table": maker, "letters only": FeatureMaker()}
    texts = {name: prompts(5) for name in makers}
    made = await percentiles(
        {
            name: lambda _, each=each, some=texts[name]: each.vector(next(some))
            for name, each in makers.items()
        },
        times,
    )
    return {
        "python": platform.python_version(),
        "rows": rows,
        "features_us": dict(made),
        "memory_bytes": memory,
        "memory_bytes_an_outcome": memory / CAPACITY,
        "long_rank_counts": counts,
    }


def show(result: Result) -> None:
    print("microseconds, 10 targets")
    print_table(
        ["outcomes", *(word for n in MEASURED for word in (f"{n} p50", "p99")), "decide / floor"],
        [
            [
                int(row["outcomes"]),
                *(round(row[f"{n}_{p}_us"]) for n in MEASURED for p in ("p50", "p99")),
                f"{row['decide_floors']:.1f}",
            ]
            for row in result["rows"]
        ],
    )
    noise = max(row["floor_noise"] for row in result["rows"])
    print(f"\nnoise: the floor's p99 is up to {noise:.1f} times its median")
    memory = result["memory_bytes"]
    each = memory / CAPACITY / 1e3
    print(f"a full memory of {CAPACITY} prompts takes {memory / 1e6:.1f} MB, {each:.1f} kB each")
    print("\nfeatures of a prompt (they are a part of rank), microseconds")
    features = result["features_us"].items()
    print_table(["", "p50", "p99"], [[n, round(a), round(b)] for n, (a, b) in features])
    counts = result["long_rank_counts"]
    print(f"\nranking {LONG / 1e3:.0f} kB takes {counts:.1f} times one count of the tokens")


def main() -> None:
    arguments = make_parser(__doc__).parse_args()
    sizes = [0, 1_000, 5_000] if arguments.quick else [0, 1_000, 100_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measured(sizes, 300 if arguments.quick else 3_000, Path(folder)))
    if arguments.json:
        json.dump(result, sys.stdout)
    else:
        show(result)
    rows = result["rows"]
    # The memory is bounded: beyond it, more outcomes make a decision no dearer, but for noise.
    growth = rows[-1]["decide_floors"] / rows[-2]["decide_floors"]
    end_by(
        [
            Claim("growth of a decision with a full memory", growth, 3),
            Claim("ranking a long prompt, in counts of its tokens", result["long_rank_counts"], 6),
        ]
    )


if __name__ == "__main__":
    main()
