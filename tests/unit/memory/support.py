"""Outcomes for the tests of the memory, and a process that writes some.

    python -m tests.unit.memory.support PATH NAME NUMBER

writes so many outcomes with labels, says `ready` when they are committed, goes on without pause,
and ends with the input.
"""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Logged, Quality, Source
from penstock.routing.outcomes.ports import Event, Label, Served
from penstock.routing.outcomes.sqlite import SqliteOutcomes

A, B = Target("one", "large"), Target("two", "small")
MADE_BY = "1:test"
LOGGED = Logged(7, 0.25, A, B, (0.5, 0.6, 0.4), (0.1, 0.2, 0.3), 0.8)


def features(seed: int) -> NDArray[np.float32]:
    return halved(np.random.default_rng(seed).random(534, dtype=np.float32))


def halved(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The numbers as they are kept: in half precision."""
    return vector.astype(np.float16).astype(np.float32)


def served(request_id: str, seed: int = 0, **changes: Any) -> Served:
    known: dict[str, Any] = {
        "model": "m",
        "target": A,
        "at": 1000.0,
        "prompt_tokens": 12,
        "key": "ci",
        "features": features(seed),
        "made_by": MADE_BY,
        "output_tokens": 34,
        "cost_nanos": 5_000_000,
        "latency_ms": 120.5,
        "first_token_ms": 20.25,
        "logged": LOGGED,
    }
    return Served(request_id=request_id, **{**known, **changes})


def label(request_id: str, score: float = 1.0, **changes: Any) -> Label:
    source = changes.pop("source", Source.FEEDBACK)
    known: dict[str, Any] = {"at": 1001.0, "key": "ci"}
    return Label(request_id=request_id, quality=Quality(score, source), **{**known, **changes})


def all_events(store: SqliteOutcomes, after: int = 0, most: int = 1000) -> list[Event]:
    found: list[Event] = []
    while True:
        page = store.events(after, most, made_by=MADE_BY)
        found += page.found
        after = page.cursor
        if not page.more:
            return found


def main(path: str, name: str, number: str) -> None:
    store = SqliteOutcomes(Path(path))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    for count in itertools.count():
        store.served(served(f"{name}-{count}", count))
        store.labelled(label(f"{name}-{count}"))
        if count + 1 == int(number):
            store.flush()
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        if count + 1 >= int(number) and ended.wait(0.001):
            break
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
