"""CPU time a call and a 100-chunk stream cost in the caller's process, beside other libraries.

Run: python bench/library.py [--quick] [--json]

All talk to one fast server on loopback that speaks Chat Completions. The floor is aiohttp and
msgspec by hand, without any check. Every library has an environment and a process of its own; the
rounds go by turns, and the median of each is shown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from _support import ROOT, hand_over, parse_arguments, print_table, throwaway_python

HERE = Path(__file__).parent
PACKAGES: dict[str, tuple[str, ...]] = {
    "floor: aiohttp + msgspec": ("aiohttp", "msgspec", "uvloop"),
    "penstock": ("uvloop",),
    "openai": ("openai", "uvloop"),
    "litellm": ("litellm", "uvloop"),
    "any-llm-sdk": ("any-llm-sdk[openai]", "uvloop"),
    "pydantic-ai": ("pydantic-ai-slim[openai]", "uvloop"),
}
OWN = ("floor: aiohttp + msgspec", "penstock")
QUICK = (*OWN, "openai")
FIGURES = ("call", "call, 32-way", "stream", "stream, 32-way")


@contextmanager
def chat_server() -> Generator[str]:
    """The address of a running server."""
    command = [sys.executable, str(HERE / "_chat_server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.stdin.close()


def measure(name: str, python: Path, url: str, calls: int, streams: int) -> dict[str, float]:
    command = [str(python), str(HERE / "_library_peers.py"), name, url, str(calls), str(streams)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{name} failed")
    return json.loads(done.stdout)


def main() -> None:
    arguments = parse_arguments(__doc__)
    names = QUICK if arguments.quick else tuple(PACKAGES)
    calls, streams, rounds = (64, 32, 1) if arguments.quick else (640, 160, 5)
    pythons = {
        name: throwaway_python(*PACKAGES[name], project_dependencies=name in OWN) for name in names
    }
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with chat_server() as url:
        for turn in range(rounds):
            for name in names[:: -1 if turn % 2 else 1]:
                taken[name].append(measure(name, pythons[name], url, calls, streams))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in taken.items()
    }
    if arguments.json:
        hand_over(medians)
        return
    print("CPU milliseconds in the caller's process; in brackets, times the floor")
    floor = medians[names[0]]
    print_table(
        ["", *FIGURES, "RSS MB"],
        [
            [
                name,
                *(f"{each[key]:.3f} ({each[key] / floor[key]:.1f})" for key in FIGURES),
                round(each["rss_mb"]),
            ]
            for name, each in medians.items()
        ],
    )


if __name__ == "__main__":
    main()
