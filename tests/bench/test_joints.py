"""The joints of continued streams: no word is repeated or lost, wherever the first one is cut."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
CUTS = 200


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    return importlib.import_module("continuation")


@pytest.mark.timeout(120)
async def test_no_word_is_repeated_or_lost_at_random_cuts(bench: Any) -> None:
    """The second server follows the instruction in another manner at each cut."""
    # The same places in each run.
    choose = random.Random(CUTS)
    cuts = [choose.randrange(3, len(bench.FIRST) - 1) for _ in range(CUTS)]
    server = await asyncio.start_server(bench.ScriptedServer().answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    chat = {"kind": "openai-chat", "auth_token": "none", "url": url}
    config = {
        "providers": {"first": chat, "second": chat},
        "pool": {"breaker_failures": 10_000},
    }
    async with server:
        rows = [
            await bench._measure(
                how, f"second/manner:{how}", config, cuts[at :: len(bench.MANNERS)]
            )
            for at, how in enumerate(bench.MANNERS)
        ]
    assert sum(row.joined for row in rows) == CUTS
    assert bench.wrong(rows) == []


@pytest.mark.parametrize(
    ("row", "failures"),
    [
        (("bare", 10, 10, 0, 0), 0),
        (("bare", 10, 9, 0, 0), 1),
        (("bare", 10, 10, 1, 0), 1),
        (("bare", 10, 10, 0, 1), 1),
        (("both embedded, prefill", 100, 90, 5, 0), 0),
        (("both embedded, prefill", 100, 100, 6, 1), 2),
    ],
)
def test_a_wrong_joint_fails_the_bench(
    bench: Any, row: tuple[str, int, int, int, int], failures: int
) -> None:
    assert len(bench.wrong([bench.Row(*row)])) == failures
