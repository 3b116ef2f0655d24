"""What a start costs that learns again from the outcomes in the file, by how many there are.

Run: python bench/route_start.py [--quick] [--json]

Seconds of CPU time from a file of outcomes of one model with ten targets to a router that knows all
it knew, as an engine does it in a thread beside its requests. One outcome in ten has a label. Of a
model's events, outcomes and labels, the newest 100,000 are learnt again: a larger file takes no
longer. It uses one thread.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from _route_path import MODEL, TARGETS, learning_with, prompts
from _support import Claim, end_by, make_parser, print_table

from penstock.providers.embedded.embeddings import TableEmbedder
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.router import LearnedRouter
from penstock.routing.outcomes.outcome import Quality
from penstock.routing.outcomes.ports import REPLAYED, Label, Served
from penstock.routing.outcomes.rows import write_label, write_served
from penstock.routing.outcomes.schema import open_to_write

LABELLED = 10
"""One outcome in so many has a label."""
_PROMPTS = 10_000
"""Different ones, which come again."""


def write(path: Path, number: int, maker: FeatureMaker) -> None:
    """Write so many outcomes."""
    features = [maker.vector(text) for text in itertools.islice(prompts(1), min(number, _PROMPTS))]
    connection = open_to_write(path)
    connection.execute("BEGIN IMMEDIATE")
    for each in range(number):
        request_id = f"request-{each}"
        served = Served(
            request_id=request_id,
            model=MODEL,
            target=TARGETS[each % len(TARGETS)],
            at=float(each),
            prompt_tokens=100 + each % 400,
            features=features[each % len(features)],
            made_by=maker.name,
            output_tokens=200,
            cost_nanos=1_000_000,
            latency_ms=800.0,
        )
        write_served(connection, served, "bench")
        if each % LABELLED == 0:
            label = Label(
                request_id=request_id, quality=Quality(float(each % 3 > 0)), at=float(each)
            )
            write_label(connection, label, "bench", isolated=False)
    connection.execute("COMMIT")
    connection.close()


async def seconds(folder: Path, maker: FeatureMaker) -> float:
    """CPU time of this process until all is learnt again."""
    learning = learning_with(LearnedRouter(maker), maker, folder)
    start = time.process_time()
    await learning.catch_up()
    taken = time.process_time() - start
    await learning.aclose()
    return taken


def main() -> None:
    arguments = make_parser(__doc__).parse_args()
    sizes = [1_000, 10_000] if arguments.quick else [10_000, REPLAYED, 2 * REPLAYED]
    maker = FeatureMaker(TableEmbedder())
    found: dict[int, float] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "outcomes.db", size, maker)
            found[size] = asyncio.run(seconds(Path(folder), maker))
    if arguments.json:
        json.dump({str(size): taken for size, taken in found.items()}, sys.stdout)
    else:
        print_table(["outcomes", "seconds"], [[n, f"{taken:.1f}"] for n, taken in found.items()])
    if not arguments.quick:
        growth = found[sizes[-1]] / found[sizes[-2]]
        end_by([Claim("growth of a start beyond the events that are learnt again", growth, 1.5)])


if __name__ == "__main__":
    main()
