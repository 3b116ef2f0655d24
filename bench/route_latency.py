"""What a routing decision costs, by how much has been learnt, and what recording an outcome does.

Run: python bench/route_latency.py [--quick] [--json]

Ten targets; microseconds of CPU time, so that other programs do not count: of one decision from the
features on (median and 99th percentile), of taking in one outcome; and what all memory takes. The
floor, in the same run, is a single product of the memory's matrix with the prompt's vector: no
exact search does less. Features are made from texts of 500 characters, and timed by themselves,
with the bundled table and without.
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
from _routing_data import WordVectorsEmbedder, made_up
from _support import Claim, end_by, make_parser, print_table
from numpy.typing import NDArray

from penstock.contract.ports import Target
from penstock.routing.features import SIZE, FeatureMaker
from penstock.routing.learned import LearnedRouter, RoutingSettings
from penstock.routing.neighbours import CAPACITY
from penstock.routing.outcomes import Outcome, Quality

MEASURED = ("decide", "floor", "learn")
TARGETS = [Target("bench", f"model-{number}") for number in range(10)]


def vectors(number: int, dice: np.random.Generator) -> NDArray[np.float32]:
    """Prompts about some hundred subjects: near each other as those of real traffic are."""
    subjects = dice.standard_normal((300, SIZE))
    chosen = subjects[dice.integers(0, len(subjects), number)]
    return (chosen + dice.standard_normal((number, SIZE))).astype(np.float32)


def outcome(features: NDArray[np.float32], number: int) -> Outcome:
    return Outcome(
        target=TARGETS[number % len(TARGETS)],
        features=features,
        prompt_tokens=100 + number % 400,
        quality=Quality(float(number % 3 > 0)),
        cost_usd=0.001,
        latency_ms=800.0,
        output_tokens=200,
    )


def percentiles(run: Callable[[int], object], times: int) -> tuple[float, float]:
    """Microseconds: the median, and what 99 of 100 stay below."""
    clock, taken = time.thread_time, list[float]()
    for number in range(times):
        start = clock()
        run(number)
        taken.append(clock() - start)
    middle, high = np.percentile(np.asarray(taken) * 1e6, [50, 99]).tolist()
    return middle, high


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
    for size in sizes:
        while recorded < size:
            batch = vectors(min(1_000, size - recorded), dice)
            for vector in batch:
                router.learn(outcome(vector, recorded))
                recorded += 1
        matrix = vectors(max(1, min(size, CAPACITY)), dice)
        rounds = [
            percentiles(lambda n: router.decide(asked[n % 512], 100, TARGETS), times),
            percentiles(lambda n, m=matrix: m @ asked[n % 512], times),
            percentiles(lambda n: router.learn(outcome(asked[n % 512], n)), times // 3),
        ]
        row = {"outcomes": float(size)}
        for name, (middle, high) in zip(MEASURED, rounds, strict=True):
            row |= {f"{name}_p50_us": middle, f"{name}_p99_us": high}
        rows.append(row)
        recorded += times // 3
    texts = [text[:500].ljust(500, "x") for text in made_up(200).prompts]
    random.Random(1).shuffle(texts)
    made: dict[str, tuple[float, float]] = {}
    for name, maker in {
        "with the table": FeatureMaker(WordVectorsEmbedder()),
        "letters only": FeatureMaker(),
    }.items():
        maker.vector("load")
        made[name] = percentiles(lambda n, m=maker: m.vector(texts[n % 200]), times)
    result = {
        "python": platform.python_version(),
        "rows": rows,
        "features_us": made,
        "memory_bytes": memory,
    }
    if arguments.json:
        json.dump(result, sys.stdout)
    else:
        print("microseconds, 10 targets")
        print_table(
            ["outcomes", "decide p50", "p99", "floor p50", "p99", "learn p50", "p99"],
            [
                [
                    int(row["outcomes"]),
                    *(round(row[f"{n}_{p}_us"]) for n in MEASURED for p in ("p50", "p99")),
                ]
                for row in rows
            ],
        )
        print(f"\na full memory of {CAPACITY} prompts takes {memory / 1e6:.1f} MB")
        print("\nfeatures of a prompt of 500 characters, microseconds")
        print_table(["", "p50", "p99"], [[n, round(a), round(b)] for n, (a, b) in made.items()])
    # The memory is bounded: beyond it, more outcomes make a decision no dearer, but for noise.
    end_by(
        [
            Claim(
                "growth of a decision with a full memory",
                rows[-1]["decide_p50_us"] / max(rows[-2]["decide_p50_us"], 1.0),
                3,
            )
        ]
    )


if __name__ == "__main__":
    main()
