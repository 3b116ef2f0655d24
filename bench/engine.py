"""What the engine costs: validation, routing, breaker, places, failover and counting.

Run: python bench/engine.py [--quick] [--json]

Costs are CPU microseconds of this process, so that a shared machine disturbs them little, and each
stands beside a direct call of the provider in the same run: over the wire to one fast server on
loopback, and with a provider that has its answer ready in the same process, where nothing is left
but the pipeline and every chunk comes alone. Whatever grows must grow as it should, or the command
fails: no more a chunk for long streams, no more a request after many others, at most 100 kB for an
open stream. No time is judged.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeAlias

from _engine_load import (
    call,
    call_directly,
    call_for_long,
    failover_seconds,
    held_bytes,
    ready_engine,
    repeat,
    stream,
    stream_directly,
    wire_engine,
    with_history,
)
from _engine_tables import Figures, show
from _support import Claim, end_by, hand_over, median_seconds, parse_arguments
from library import chat_server

from penstock import Engine

WIRE_CHUNKS = 100
MOST_KB = 100.0
"""What an open stream may take."""
Work: TypeAlias = Callable[[], Awaitable[object]]
Candidates: TypeAlias = dict[str, tuple[Work, int]]
"""Each with its work and the number of pieces in it."""


class Scale(NamedTuple):
    """How much is done."""

    rounds: int
    calls: int
    streams: tuple[int, ...] = (1, 10, 100, 1000)
    targets: tuple[int, ...] = (1, 10, 100)
    chunks: tuple[int, ...] = (100, 1000, 10_000)
    history: tuple[int, ...] = (0, 10_000, 100_000)
    held: int = 1000
    failovers: int = 1000


FULL = Scale(rounds=7, calls=1000)
QUICK = Scale(
    rounds=3,
    calls=50,
    streams=(1, 10, 50),
    chunks=(100, 1000),
    history=(0, 1000, 3000),
    held=100,
    failovers=50,
)


class Bench:
    """Runs every candidate on one loop, by turns."""

    def __init__(self, runner: asyncio.Runner, scale: Scale) -> None:
        self._runner = runner
        self.scale = scale

    def cpu_us(self, work: Candidates) -> dict[str, float]:
        """Microseconds for each of the pieces that a candidate's work has."""

        def run(do: Work) -> Callable[[], None]:
            async def once() -> None:
                await do()

            return lambda: self._runner.run(once())

        candidates = {name: run(do) for name, (do, _) in work.items()}
        taken = median_seconds(candidates, self.scale.rounds, clock=time.process_time)
        return {name: seconds * 1e6 / work[name][1] for name, seconds in taken.items()}

    def over_the_wire(self, url: str) -> Figures:
        """A call, and a chunk of a stream, with so many at once."""
        return {str(number): self._wire(url, number) for number in self.scale.streams}

    def _wire(self, url: str, at_once: int) -> dict[str, float]:
        calls = max(self.scale.calls, at_once)
        streams = max(self.scale.calls // 10, at_once)
        engine = wire_engine(url, "m")
        taken = self.cpu_us(
            {
                "call direct": (_repeated(call_directly, engine, calls, at_once), calls),
                "call": (_repeated(call, engine, calls, at_once), calls),
                "chunk direct": (
                    _repeated(stream_directly, engine, streams, at_once),
                    streams * WIRE_CHUNKS,
                ),
                "chunk": (_repeated(stream, engine, streams, at_once), streams * WIRE_CHUNKS),
            }
        )
        self._runner.run(engine.aclose())
        return taken

    def whole_answers(self, url: str) -> Figures:
        """A whole answer of 100 tokens, fetched at once, and as a stream while it may be long."""
        figures: Figures = {}
        for at_once in (1, 32):
            calls = max(self.scale.calls // 2, at_once)
            engines = {"at once": wire_engine(url, "m"), "as a stream": wire_engine(url, "m", "m")}
            figures[str(at_once)] = self.cpu_us(
                {
                    name: (_repeated(call_for_long, engine, calls, at_once), calls)
                    for name, engine in engines.items()
                }
            )
            for engine in engines.values():
                self._runner.run(engine.aclose())
        return figures

    def by_targets(self) -> Figures:
        """The pipeline alone, with so many targets in the model's list."""
        calls, chunks = self.scale.calls, 1000
        figures: Figures = {}
        work: Candidates = {}
        for number in self.scale.targets:
            engine = ready_engine(number, chunks)
            work[f"call {number}"] = (_repeated(call, engine, calls), calls)
            work[f"chunk {number}"] = (_repeated(stream, engine, 10), 10 * chunks)
        floor = ready_engine(1, chunks)
        work["call direct"] = (_repeated(call_directly, floor, calls), calls)
        work["chunk direct"] = (_repeated(stream_directly, floor, 10), 10 * chunks)
        taken = self.cpu_us(work)
        for number in ("direct", *self.scale.targets):
            figures[str(number)] = {key: taken[f"{key} {number}"] for key in ("call", "chunk")}
        return figures

    def by_streams(self) -> Figures:
        """A chunk, with so many streams that take turns after every one."""
        figures: Figures = {}
        for number in self.scale.streams:
            chunks, times = 100, max(self.scale.calls // 10, number)
            engine = ready_engine(1, chunks, taking_turns=True)
            figures[str(number)] = self.cpu_us(
                {
                    name: (_repeated(do, engine, times, number), chunks * times)
                    for name, do in (("direct", stream_directly), ("engine", stream))
                }
            )
        return figures

    def by_chunks(self) -> Figures:
        """A chunk of a stream that has so many."""
        work: Candidates = {}
        most = max(self.scale.chunks)
        for number in self.scale.chunks:
            engine = ready_engine(1, number)
            for name, do in (("direct", stream_directly), ("engine", stream)):
                work[f"{name} {number}"] = (_repeated(do, engine, most // number), most)
        taken = self.cpu_us(work)
        return {
            str(number): {name: taken[f"{name} {number}"] for name in ("direct", "engine")}
            for number in self.scale.chunks
        }

    def by_history(self) -> Figures:
        """A call of an engine that has answered so many before, and what it keeps of each."""
        calls = self.scale.calls
        kept: dict[int, float] = {}
        with _Open(self._runner) as stack:
            work: Candidates = {}
            # The first engine pays for what all share.
            stack.enter(with_history(100))
            for number in self.scale.history:
                gc.collect()
                before = sys.getallocatedblocks()
                engine = stack.enter(with_history(number))
                gc.collect()
                kept[number] = (sys.getallocatedblocks() - before) / max(number, 1)
                work[str(number)] = (_repeated(call, engine, calls), calls)
            taken = self.cpu_us(work)
        empty = kept.pop(0, 0.0)
        return {
            str(number): {
                "call": taken[str(number)],
                "kept": max(0.0, kept[number] - empty / number) if number else 0.0,
            }
            for number in self.scale.history
        }

    def held(self, url: str) -> Figures:
        """Kilobytes for an open stream, each measured in a process of its own."""
        ways = {
            "direct": (url, True),
            "engine": (url, False),
            "engine, no wire": (None, False),
        }
        figures: Figures = {}
        for name, (address, directly) in ways.items():
            figures[name] = {}
            for kind, traced in (("allocated", True), ("resident", False)):
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    done = process.submit(
                        held_bytes, address, self.scale.held, directly=directly, traced=traced
                    )
                    figures[name][kind] = done.result() / 1000
        return figures

    def failover(self, url: str) -> Figures:
        """Milliseconds from an error to the next target's first byte, no back-off among them."""
        figures: Figures = {}
        for failing in (1, 9):
            taken, direct = self._runner.run(failover_seconds(url, failing, self.scale.failovers))
            figures[str(failing)] = {
                "p50": statistics.median(taken) * 1e3,
                "p99": _p99(taken) * 1e3,
                "direct p50": statistics.median(direct) * 1e3,
                "direct p99": _p99(direct) * 1e3,
            }
        return figures


class _Open:
    """Async contexts, entered from code that is not."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()

    def enter(self, context: Any) -> Engine:
        async def enter() -> Engine:
            return await self._stack.enter_async_context(context)

        return self._runner.run(enter())

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._stack.aclose())


def _repeated(
    do: Callable[[Engine], Awaitable[object]], engine: Engine, times: int, at_once: int = 1
) -> Work:
    return lambda: repeat(lambda: do(engine), times, at_once)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1]


def claims_of(found: Mapping[str, Figures]) -> list[Claim]:
    """What must hold anywhere; generous, for machines are shared."""

    def growth(table: str, column: str, start: int = 0) -> float:
        rows = [row for name, row in found[table].items() if name != "direct"]
        return rows[-1][column] / rows[start][column]

    return [
        Claim(
            "a chunk costs as much in a long stream as in a short", growth("chunks", "engine"), 3
        ),
        Claim("a chunk costs as much whatever the list of targets", growth("targets", "chunk"), 3),
        Claim(
            "a call grows no faster than the list of targets, from 10 to 100",
            growth("targets", "call", 1),
            10,
        ),
        Claim("a chunk costs as much among many streams as alone", growth("streams", "engine"), 3),
        Claim("a call costs as much after many others as first", growth("history", "call"), 3),
        Claim(
            "no block of memory is kept of a past request",
            list(found["history"].values())[-1]["kept"],
            0.5,
        ),
        *(
            Claim(f"an open stream takes far under {MOST_KB:g} kB, {kind}", row[kind], MOST_KB)
            for row in [found["held"]["engine"]]
            for kind in ("allocated", "resident")
        ),
        Claim(
            "failing over takes no more than ten times a direct call's time to its first byte",
            max(row["p50"] / row["direct p50"] for row in found["failover"].values()),
            10,
        ),
    ]


def main() -> None:
    arguments = parse_arguments(__doc__)
    scale = QUICK if arguments.quick else FULL
    with chat_server() as url, asyncio.Runner() as runner:
        bench = Bench(runner, scale)
        found: dict[str, Figures] = {
            "wire": bench.over_the_wire(url),
            "whole": bench.whole_answers(url),
            "targets": bench.by_targets(),
            "streams": bench.by_streams(),
            "chunks": bench.by_chunks(),
            "history": bench.by_history(),
            "held": bench.held(url),
            "failover": bench.failover(url),
        }
    claims = claims_of(found)
    if arguments.json:
        hand_over({**found, "claims": {claim.said: claim.found for claim in claims}})
    else:
        show(found, scale.held, claims)
    end_by(claims)


if __name__ == "__main__":
    main()
