"""The work of a request grows in proportion to its body, and no step of the event loop is long.

Work is counted and not timed: `tests.support.work` rewrites the package so that each step, and each
operation of C code over many items, counts itself. Every repeated field of every endpoint is
measured at three sizes without limits, in all dialects. Then the largest bodies that the default
limits let through are measured by the longest step of the event loop.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.work.counter import growth

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
FASTEST = 1.3
"""1 is linear and 2 the square; a logarithm is a tenth above the former at these sizes."""
LEAST = 300
"""Less work than this, from n to 2n, is what happens to be remembered from request to request."""
LONGEST_STEP = 1_250_000
"""A quarter of a second, at five million steps a second."""
KINDS = ("steps", "items", "characters")
TAKEN = {200, 201, 400, 413}


async def measured(what: str) -> dict[str, Any]:
    """What the other process has counted."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.work.measure", what),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        said, failed = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, failed.decode()[-2000:]
    return json.loads(said)


async def test_work_grows_no_faster_than_the_request() -> None:
    found = await measured("growth")
    assert len(found) > 70
    too_fast: list[str] = []
    for name, each in found.items():
        assert {status for status, _ in each["said"]} <= TAKEN, (name, each["said"])
        for kind, work in zip(KINDS, zip(*each["work"], strict=True), strict=True):
            if work[1] - work[0] > LEAST and growth(work) > FASTEST:
                too_fast.append(f"{name}: {kind} {work}, growth {growth(work):.2f}")
    assert not too_fast, "\n".join(too_fast)


async def test_no_request_within_the_limits_holds_the_event_loop() -> None:
    found = await measured("hold")
    assert len(found) > 10
    for name, each in found.items():
        status, text = each["said"]
        assert status in TAKEN, (name, text)
        assert each["work"] < LONGEST_STEP, (name, each["work"], status, text)


async def test_no_error_of_a_provider_holds_the_event_loop() -> None:
    found = await measured("errors")
    assert len(found) > 20
    for name, each in found.items():
        assert each["said"], name
        assert each["key"] not in each["said"], name
        assert each["work"] < LONGEST_STEP, (name, each["work"])


@pytest.mark.parametrize(
    ("work", "expected"),
    [((100, 200, 400), 1.0), ((100, 400, 1600), 2.0), ((50, 50, 50), 0.0)],
)
def test_growth_is_told_from_three_sizes(work: tuple[int, int, int], expected: float) -> None:
    assert growth(work) == expected
