"""What a routing decision costs, by how much has been learnt, and what recording an outcome does.

Run: python bench/route_latency.py [--quick] [--json]

Ten targets; microseconds of CPU time, so that other programs do not count: of one decision from the
features on (median and 99th percentile), of taking in one labelled outcome of a new prompt; and
what all memory takes. One outcome in ten has a label, as few have where people give them. The
floor, in the same run and by turns with what it is the floor of, is a single product of a full
memory's matrix with the prompt's vector: no exact search does less. Other programs on the same core
empty its caches, which shows in the floor as well: the ratios hold where the times do not. It
uses one thread.
Features are made from texts of 500 characters, and timed by themselves, with the bundled table and
without.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sys
import time
import tracemalloc
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from _routing_data import made_up
from _support import Claim, end_by, make_parser, print_table
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from penstock.contract.ports import Target
from penstock.providers.embedded.embeddings import TableEmbedder
from penstock.routing.features import SIZE, FeatureMaker
from penstock.routing.learned import LearnedRouter, RoutingSettings
from penstock.routing.neighbours import CAPACITY
from penstock.routing.outcomes import Outcome, Quality

MEASURED = ("floor", "decide", "learn")
LABELLED = 10
"""One outcome in so many has a label."""
TARGETS = [Target("bench", f"model-{number}") for number in range(10)]


def vectors(number: int, dice: np.random.Generator) -> NDArray[np.float32]:
    """Prompts about some hundred subjects: near each other as those of real traffic are."""
    subjects = dice.standard_normal((300, SIZE))
    chosen = subjects[dice.integers(0, len(subjects), number)]
    return (chosen + dice.standard_normal((number, SIZE))).astype(np.float32)


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


def percentiles(
    run: dict[str, Callable[[int], object]], times: int
) -> dict[str, tuple[float, float]]:
    """Microseconds of each, by turns: the median, and what 99 of 100 stay below."""
    clock = time.thread_time
    taken: dict[str, list[float]] = {name: [] for name in run}
    for number in range(times):
        for name, each in run.items():
            start = clock()
            each(number)
            taken[name].append(clock() - start)
    found: dict[str, tuple[float, float]] = {}
    for name, values in taken.items():
        middle, high = np.percentile(np.asarray(values) * 1e6, [50, 99]).tolist()
        found[name] = (middle, high)
    return found


def record(router: LearnedRouter, number: int, size: int, dice: np.random.Generator) -> None:
    """Let the router take in outcomes until there are so many."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{size:,} outcomes", total=size, completed=number)
        while number < size:
            batch = min(10_000, size - number)
            labelled = vectors(-(-batch // LABELLED), dice)
            for offset in range(batch):
                vector = labelled[offset // LABELLED]
                router.learn(outcome(vector, number, labelled=offset % LABELLED == 0))
                number += 1
            progress.update(task, completed=number)


def memory_of_a_full_router() -> int:
    """Bytes; outcomes beyond its capacity take no more."""
    router = LearnedRouter(FeatureMaker(), RoutingSettings(in_force=True, seed=1))
    dice = np.random.default_rng(4)
    given = vectors(CAPACITY, dice)
    tracemalloc.start()
    for number, vector in enumerate(given):
        router.learn(outcome(vector, number))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken


def main() -> None:
    arguments = make_parser(__doc__).parse_args()
    sizes = [0, 1_000, 5_000] if arguments.quick else [0, 1_000, 100_000, 1_000_000]
    times = 300 if arguments.quick else 3_000
    dice = np.random.default_rng(3)
    router = LearnedRouter(FeatureMaker(), RoutingSettings(in_force=True, seed=1))
    asked = vectors(512, dice)
    rows: list[dict[str, float]] = []
    recorded = 0
    memory = memory_of_a_full_router()
    matrix = vectors(CAPACITY, dice)
    for size in sizes:
        record(router, recorded, size, dice)
        fresh = vectors(times, dice)
        found = percentiles(
            {
                "floor": lambda n: matrix @ asked[n % 512],
                "decide": lambda n: router.decide(asked[n % 512], 100, TARGETS),
            },
            times,
        ) | percentiles({"learn": lambda n, f=fresh: router.learn(outcome(f[n], n))}, times // 3)
        row = {"outcomes": float(size)}
        for name, (middle, high) in found.items():
            row |= {f"{name}_p50_us": middle, f"{name}_p99_us": high}
        row["decide_floors"] = row["decide_p50_us"] / row["floor_p50_us"]
        row["learn_floors"] = row["learn_p50_us"] / row["floor_p50_us"]
        rows.append(row)
        recorded = size + times // 3
    texts = [text[:500].ljust(500, "x") for text in made_up(200).prompts]
    random.Random(1).shuffle(texts)
    makers = {"with the table": FeatureMaker(TableEmbedder()), "letters only": FeatureMaker()}
    for maker in makers.values():
        maker.vector("load")
    made = percentiles(
        {name: lambda n, m=maker: m.vector(texts[n % 200]) for name, maker in makers.items()}, times
    )
    result = {
        "python": platform.python_version(),
        "rows": rows,
        "features_us": made,
        "memory_bytes": memory,
        "memory_bytes_an_outcome": memory / CAPACITY,
    }
    if arguments.json:
        json.dump(result, sys.stdout)
    else:
        print("microseconds, 10 targets")
        print_table(
            [
                "outcomes",
                *("floor p50", "p99", "decide p50", "p99", "learn p50", "p99"),
                *("decide / floor", "learn / floor"),
            ],
            [
                [
                    int(row["outcomes"]),
                    *(round(row[f"{n}_{p}_us"]) for n in MEASURED for p in ("p50", "p99")),
                    *(f"{row[f'{n}_floors']:.1f}" for n in ("decide", "learn")),
                ]
                for row in rows
            ],
        )
        each = memory / CAPACITY / 1e3
        print(
            f"\na full memory of {CAPACITY} prompts takes {memory / 1e6:.1f} MB, {each:.1f} kB each"
        )
        print("\nfeatures of a prompt of 500 characters, microseconds")
        print_table(["", "p50", "p99"], [[n, round(a), round(b)] for n, (a, b) in made.items()])
    # The memory is bounded: beyond it, more outcomes make a decision no dearer, but for noise.
    end_by(
        [
            Claim(
                "growth of a decision with a full memory",
                rows[-1]["decide_floors"] / rows[-2]["decide_floors"],
                3,
            )
        ]
    )


if __name__ == "__main__":
    main()
