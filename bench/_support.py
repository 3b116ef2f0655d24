"""What the benches share: arguments, throw-away environments for peers, medians and tables.

A peer is never a dependency of the project. It is installed into an environment of its own under
`~/.cache/penstock-bench`, and the bench runs itself there with `--worker`, so that Penstock and the
peer are measured by turns in one process:

    arguments = parse_arguments(__doc__)
    if not arguments.worker:
        python = throwaway_python("litellm")
        result = run_worker(python, __file__, arguments)

Delete that folder to get newer peers.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path.home() / ".cache" / "penstock-bench"


class Arguments(NamedTuple):
    """What every bench understands."""

    quick: bool
    json: bool
    worker: bool


class Claim(NamedTuple):
    """What must hold on any machine: a ratio, a size or a count, and never a time."""

    said: str
    found: float
    most: float


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Knows `--quick` and `--json`; the description is the help's text."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def parse_arguments(description: str | None) -> Arguments:
    """Read `--quick`, `--json` and the hidden `--worker`."""
    parser = make_parser(description)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    return Arguments(parsed.quick, parsed.json, parsed.worker)


def throwaway_python(*packages: str, project_dependencies: bool = True) -> Path:
    """Return the Python of an environment with these packages and what Penstock itself needs.

    A bench of a part that needs little can say so: it passes `project_dependencies=False` and
    names what that part needs among the packages. The environment is made on first use, which
    takes a while and needs a package index.
    """
    wanted = sorted(packages)
    if project_dependencies:
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        wanted += pyproject["project"]["dependencies"]
    key = hashlib.sha256("\n".join([sys.version, sys.base_prefix, *wanted]).encode()).hexdigest()
    home = CACHE / key[:16]
    python = Path("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed when whole: a run that breaks off leaves no half environment.
        making = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
        try:
            print(f"installing {', '.join(packages)} into {home}", file=sys.stderr)
            _run([sys.executable, "-m", "venv", str(making)])
            pip = [str(making / python), "-m", "pip", "--disable-pip-version-check", "install"]
            _run([*pip, "-qq", *wanted])
            making.rename(home)
        except OSError:
            # Another bench with the same peers was faster.
            if not home.exists():
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return home / python


def run_worker(python: Path, script: str, arguments: Arguments) -> Any:
    """Run the bench again in a peer's environment and return what it gave to `hand_over`.

    When the worker fails, its message has been shown and the bench ends with its exit status.
    """
    command = [str(python), script, "--worker", *(["--quick"] if arguments.quick else [])]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=False
    )
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def hand_over(result: object) -> None:
    """In the worker: give the figures to the bench that started it."""
    json.dump(result, sys.stdout)


def median_seconds(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time every candidate once per round, by turns, and return the median of each.

    By turns, so that a slow spell of the machine meets all of them; the order is reversed in every
    other round, and one round before the first is not counted. `time.process_time` as the clock
    gives the CPU time of this process.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(-1, rounds):
            for name in list(candidates)[:: 1 if turn % 2 else -1]:
                run = candidates[name]
                start = clock()
                run()
                elapsed = clock() - start
                if turn >= 0:
                    times[name].append(elapsed)
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return {name: statistics.median(measured) for name, measured in times.items()}


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns, figures to the right; floats with two decimals."""
    cells = [
        [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    numeric = [
        all(isinstance(row[column], int | float) for row in rows) for column in range(len(head))
    ]
    for line in (head, ["-" * width for width in widths], *cells):
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(aligned).rstrip())


def end_by(claims: Sequence[Claim]) -> None:
    """End the bench: with status 1 and a sentence for each claim that does not hold."""
    broken = [claim for claim in claims if not claim.found <= claim.most]
    if broken:
        sys.exit(
            "\n".join(
                f"This does not hold: {claim.said}: found {claim.found:.4g}, allowed {claim.most:g}"
                for claim in broken
            )
        )


def _run(command: Sequence[str]) -> None:
    # Standard output belongs to the figures.
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command)}")
