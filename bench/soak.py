"""Mixed traffic with random faults for some minutes, and what is left behind by it.

Run: python bench/soak.py [--minutes 5] [--seed 1] [--quick] [--json]

Callers ask for whole answers, streams, tools and embeddings; they cancel, leave, abandon and set
limits that are too short. The provider is a server on loopback in a process of its own that breaks
in the ways of the fault suite. The traffic stops every few seconds until all is quiet, and then
nothing may be left: no task, no place at a target, no request that is neither answered nor failed,
none that the provider is still busy with; and after the end no descriptor and no connection. Memory
is looked at in the same quiet moments, after a third of the time, as a slope over the callers with
its standard error. The command fails when anything leaks, when an answer is not the right one, or
when a stream has not exactly one end.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _soak_memory import Memory, Slope, memory
from _soak_traffic import WRONG, Traffic, soak_engine
from _support import ROOT, Claim, end_by, hand_over, make_parser, print_table
from rich.console import Console
from rich.progress import Progress

from penstock import Engine

CALLERS = 48
ROUND_S = 10.0
QUICK_ROUND_S = 1.0
QUICK_ROUNDS = 6
PATIENCE_S = 30.0
"""How long the last requests of a round may take; those that do not end by then never will."""
SETTLE_S = 5.0
"""How long it may take until what was stopped is gone."""
SIDES = {"blocks of Python": 100.0, "kB of the C library": 20.0, "kB resident": 50.0}
"""The sides of `Memory`, and what may be kept of a thousand callers beyond the noise."""


class Quiet(NamedTuple):
    """What there is when nobody asks for anything."""

    callers: int
    tasks: int
    busy: int
    """Places that are taken or waited for."""
    answering: int
    """Requests that the provider is still busy with."""
    descriptors: int
    memory: Memory


class Soak:
    """Engines under traffic, and what was seen of them."""

    def __init__(self, engine: Engine, tool_engine: Engine, seed: int, provider: Server) -> None:
        self._provider = provider
        self._engines = (engine, tool_engine)
        self.traffic = Traffic(engine, tool_engine, str(seed))
        self._own = len(asyncio.all_tasks())
        """Those that are there without any request."""
        self.quiet: list[Quiet] = []
        self.unended = 0
        self.complaints: Counter[str] = Counter()
        """What the event loop and the interpreter had to say of us."""

    async def run(self, rounds: int, round_s: float, progress: Progress) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complain(context["message"]))
        bar = progress.add_task("", total=rounds)
        for _ in range(rounds):
            until = loop.time() + round_s
            callers = [
                asyncio.create_task(self.traffic.caller(until), name="soak-caller")
                for _ in range(CALLERS)
            ]
            done, late = await asyncio.wait(callers, timeout=round_s + PATIENCE_S)
            self.unended += len(late)
            for caller in late:
                caller.cancel()
            for caller in done:
                caller.result()
            self.quiet.append(await self._settled())
            progress.update(bar, advance=1, description=f"{self.traffic.callers} callers")

    async def uncounted(self) -> int:
        """Requests that were asked and are not among the answers or failures, or are twice."""
        stats = await self.traffic.engine.usage_stats()
        return abs(self.traffic.asked - stats.total.requests)

    async def unsettled(self) -> int:
        """Nano-dollars that are held for requests that have ended, and balances that are wrong."""
        ledger = await self.traffic.engine.ledger()
        held = sum(each.held_nanos for each in await ledger.balances())
        return held + len(await ledger.verify())

    async def _settled(self) -> Quiet:
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLE_S
        seen = self._look()
        while (seen.tasks or seen.busy or seen.answering) and loop.time() < until:
            await asyncio.sleep(0.01)
            seen = self._look()
        return seen

    def _look(self) -> Quiet:
        return Quiet(
            self.traffic.callers,
            len(asyncio.all_tasks()) - self._own,
            sum(
                each.in_flight + each.waiting
                for engine in self._engines
                for each in engine.target_health()
            ),
            self._provider.state().answering,
            _descriptors(),
            memory(),
        )

    def _complain(self, message: str) -> None:
        self.complaints[message] += 1


class Seen(NamedTuple):
    """What the provider sees of us."""

    answering: int
    connections: int


class Server:
    """The provider, in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line()

    def state(self) -> Seen:
        """As it is now."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Seen(*map(int, self._line().split()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def server(seed: int) -> Generator[Server]:
    """A running one."""
    script = Path(__file__).with_name("_soak_server.py")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, str(script), str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
    ) as process:
        assert process.stdin is not None
        try:
            yield Server(process)
        finally:
            process.stdin.close()


async def soak(
    seed: int, rounds: int, round_s: float, provider: Server, folder: Path
) -> dict[str, Any]:
    """The traffic, and what is left of it."""
    before = _descriptors()
    async with (
        soak_engine(provider.url, folder / "soak.db") as engine,
        soak_engine(provider.url, folder / "soak.db") as tool_engine,
    ):
        run = Soak(engine, tool_engine, seed, provider)
        with (
            warnings.catch_warnings(record=True) as warned,
            Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress,
        ):
            warnings.simplefilter("always")
            await run.run(rounds, round_s, progress)
        uncounted = await run.uncounted()
        unsettled = await run.unsettled()
    run.complaints.update(f"{each.category.__name__}: {each.message}" for each in warned)
    # What is made once is made in the first third.
    steady = run.quiet[len(run.quiet) // 3 :]
    return {
        "callers": run.traffic.callers,
        "requests": run.traffic.asked,
        "outcomes": _nested(run.traffic.outcomes),
        "complaints": dict(run.complaints),
        "tasks": max(each.tasks for each in run.quiet),
        "busy": max(each.busy for each in run.quiet),
        "answering": max(each.answering for each in run.quiet),
        "pooled": max(each.descriptors for each in run.quiet) - before,
        "unended": run.unended,
        "uncounted": uncounted,
        "unsettled": unsettled,
        "descriptors": max(0, _descriptors() - before),
        "connections": _connections_left(provider),
        "tasks at the end": len(asyncio.all_tasks()) - 1,
        "rss_mb": [each.memory.rss_kb / 1000 for each in (steady[0], steady[-1])],
        "memory": {
            name: Slope.of([(each.callers, each.memory[side]) for each in steady])
            for side, name in enumerate(SIDES)
        },
    }


def _connections_left(provider: Server) -> int:
    """What the provider still sees, once it has had time to hear of the end."""
    until = time.monotonic() + SETTLE_S
    left = provider.state().connections
    while left and time.monotonic() < until:
        # It answers from the loop that hears of the ends, so each question gives it a turn.
        left = provider.state().connections
    return left


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def _nested(outcomes: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (kind, outcome), number in sorted(outcomes.items()):
        found.setdefault(kind, {})[outcome] = number
    return found


def claims_of(found: Mapping[str, Any], *, memory: bool) -> list[Claim]:
    """Nothing may leak, and nobody may be told anything wrong."""
    wrong = sum(
        number
        for outcomes in found["outcomes"].values()
        for outcome, number in outcomes.items()
        if outcome == WRONG or outcome.endswith("ENDS")
    )
    claims = [
        Claim("answers that are wrong, and streams without exactly one end", wrong, 0),
        Claim("requests that never ended", found["unended"], 0),
        Claim("requests that are counted twice or not at all", found["uncounted"], 0),
        Claim("money that is held for nobody, and balances that are wrong", found["unsettled"], 0),
        Claim("tasks left in a quiet moment", found["tasks"], 0),
        Claim("places at targets taken or waited for in a quiet moment", found["busy"], 0),
        Claim("requests that the provider answers in a quiet moment", found["answering"], 0),
        Claim("connections kept for each caller that there was", found["pooled"] / CALLERS, 3),
        Claim("tasks left at the end", found["tasks at the end"], 0),
        Claim("descriptors left at the end", found["descriptors"], 0),
        Claim("connections that the provider still sees", found["connections"], 0),
        Claim("complaints of the loop and the interpreter", sum(found["complaints"].values()), 0),
    ]
    if memory:
        claims += [
            Claim(f"{name}, kept of 1000 callers", found["memory"][name].surely, most)
            for name, most in SIDES.items()
        ]
    return claims


def show(found: Mapping[str, Any], claims: Sequence[Claim]) -> None:
    """The tables, for people."""
    print(f"{found['callers']} callers; {found['requests']} requests besides those of tools\n")
    kinds = found["outcomes"]
    names = sorted({name for outcomes in kinds.values() for name in outcomes})
    print_table(
        ["outcome", "in all", "by what the caller did"],
        [
            [
                name,
                sum(outcomes.get(name, 0) for outcomes in kinds.values()),
                ", ".join(f"{kind} {of[name]}" for kind, of in kinds.items() if name in of),
            ]
            for name in names
        ],
    )
    for complaint, number in found["complaints"].items():
        print(f"\n{number} times: {complaint}")
    first, last = found["rss_mb"]
    print(
        f"\nresident: {first:.1f} MB after the warm-up, {last:.1f} MB at the end; for 1000 callers"
    )
    print_table(
        ["", "growth", "standard error"],
        [[name, *slope] for name, slope in found["memory"].items()],
    )
    print()
    print_table(["left behind", "found", "allowed"], [[*claim] for claim in claims])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; 5 when left out")
    parser.add_argument("--seed", type=int, default=1, help="of traffic and faults")
    arguments = parser.parse_args()
    round_s = QUICK_ROUND_S if arguments.quick else ROUND_S
    rounds = QUICK_ROUNDS if arguments.quick else max(6, round(arguments.minutes * 60 / ROUND_S))
    with server(arguments.seed) as provider, tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(arguments.seed, rounds, round_s, provider, Path(folder)))
    # Some seconds are all warm-up, and say nothing about memory.
    claims = claims_of(found, memory=not arguments.quick)
    if arguments.json:
        hand_over(found)
    else:
        show(found, claims)
    end_by(claims)


if __name__ == "__main__":
    main()
