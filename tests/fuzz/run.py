"""Coverage-guided fuzzing of every parser: `python -m tests.fuzz.run --seconds 3600`.

atheris is installed into an environment of its own on first use. The kept corpus (`corpus/TARGET`)
is only read; what a run finds stays in `.cache/fuzz/TARGET` for the next one. `--keep` merges the
inputs that reach new code into the kept corpus. An input that fails is written to
`.cache/fuzz/failures`; once mended, it belongs into the kept corpus, which `make test` replays.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.support.environment import PipFailedError, python_with

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "fuzz.txt"
CORPUS = Path(__file__).parent / "corpus"
CACHE = ROOT / ".cache" / "fuzz"
FAILURES = CACHE / "failures"
NOT_FUZZED = 69
"""The exit code for a service that is unavailable."""
_RULE = "!" * 78
_SLOWEST_INPUT_S = 20
"""No input of this size takes a hundredth of it, unless the work is more than linear."""
_MEMORY_MB = 2_048
_LONGEST_INPUT = 8_192
_STARTING_S = 120
_LINES_SHOWN = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz all targets, or those that are named; the number of those that failed.

    `NOT_FUZZED` where atheris cannot be installed: a run that has looked at nothing is no success.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=3600, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="add to the kept corpus instead")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    try:
        python = python_with(LOCK)
    except PipFailedError as error:
        _say(str(error))
        _say(f"{_RULE}\nNO PARSER WAS FUZZED: atheris cannot be installed, see above.\n{_RULE}")
        return NOT_FUZZED
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    names = asked.targets or list(TARGETS)
    seconds = max(1, asked.seconds * asked.jobs // len(names))
    work = partial(_merge if asked.keep else _fuzz, packages, seconds=seconds)
    with ThreadPoolExecutor(asked.jobs) as pool:
        return sum(not good for good in pool.map(work, names))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _fuzz(packages: Path, name: str, seconds: int) -> bool:
    found = CACHE / name
    done = _child(
        packages,
        name,
        str(found),
        str(CORPUS / name),
        f"-max_total_time={seconds}",
        f"-timeout={_SLOWEST_INPUT_S}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-max_len={_LONGEST_INPUT}",
        f"-artifact_prefix={FAILURES}/{name}-",
        "-print_final_stats=1",
        limit_s=seconds + _STARTING_S,
    )
    runs = next((line for line in done.splitlines() if "number_of_executed_units" in line), "")
    good = "ERROR: libFuzzer" not in done and bool(runs)
    _say(f"{name}: {'no failure' if good else 'FAILED'}, {runs.rpartition(' ')[2] or 'no'} inputs")
    if not good:
        _say("\n".join(done.splitlines()[-_LINES_SHOWN:]))
    return good


def _merge(packages: Path, name: str, seconds: int) -> bool:
    kept = CORPUS / name
    before = len(list(kept.iterdir())) if kept.exists() else 0
    kept.mkdir(parents=True, exist_ok=True)
    _child(
        packages, name, "-merge=1", "-max_len=1024", str(kept), str(CACHE / name), limit_s=seconds
    )
    _say(f"{name}: {before} inputs before, {len(list(kept.iterdir()))} now")
    return True


def _child(packages: Path, name: str, *arguments: str, limit_s: int) -> str:
    """What a fuzzing process prints."""
    FAILURES.mkdir(parents=True, exist_ok=True)
    (CACHE / name).mkdir(exist_ok=True)
    paths = [str(packages), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.child", name, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_s + _STARTING_S,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
