"""The benches that judge: what they find too much makes them fail, in words."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def run(code: str) -> subprocess.CompletedProcess[str]:
    """As a bench does, with its neighbours to import."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=BENCH
    )


def test_a_bench_fails_with_a_sentence_for_each_claim_that_does_not_hold() -> None:
    done = run(
        "from _support import Claim, end_by\n"
        "end_by([Claim('tasks left', 2, 0), Claim('all well', 1, 1), Claim('no figure', "
        "float('nan'), 1)])"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "This does not hold: tasks left: found 2, allowed 0",
        "This does not hold: no figure: found nan, allowed 1",
    ]


def test_a_bench_whose_claims_hold_ends_well() -> None:
    done = run("from _support import Claim, end_by\nend_by([Claim('all well', 1, 1)])")
    assert (done.returncode, done.stderr) == (0, "")


def test_growth_is_told_from_noise() -> None:
    done = run(
        "from _soak_memory import Slope\n"
        "wave = [(x * 1000, 10 * (-1) ** x) for x in range(20)]\n"
        "print(Slope.of(wave).surely)\n"
        "print(round(Slope.of([(x, y + x / 100) for x, y in wave]).surely, 1))"
    )
    flat, growing = map(float, done.stdout.split())
    assert flat == 0
    assert 5 < growing <= 10


def test_memory_that_is_kept_is_seen_from_every_side() -> None:
    done = run(
        "from _soak_memory import memory\n"
        "before = memory()\n"
        "small, large = [float(each) for each in range(100_000)], bytearray(b'x' * 30_000_000)\n"
        "after = memory()\n"
        "print(*(now - then for now, then in zip(after, before)))"
    )
    blocks, heap_kb, resident_kb = map(float, done.stdout.split())
    assert blocks >= 100_000
    # Only the GNU C library tells.
    assert heap_kb == 0 or heap_kb > 30_000
    assert resident_kb > 30_000
